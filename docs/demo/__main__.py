"""Compiles and runs the demo's three models and shows what happened."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import torchtrt
from docs.demo.models import Decoder, ResNet18
from docs.demo.sentences import QUERY, SENTENCES, load_encoder, sizes, tokenize
from torchtrt.packs import current_packs, problems
from torchtrt.packs.listing import IN_USE, list_packs
from torchtrt.tensorrt import is_real
from torchtrt.tensorrt.selection import describe
from torchtrt_runtime import CompiledModule
from torchtrt_runtime.reports.tables import (
    block_table,
    converter_table,
    stage_table,
    torch_table,
)

console = Console(width=None if sys.stdout.isatty() else 110)


def main() -> None:
    """Runs the demo on the CPU, or on the GPU where the real TensorRT is in use."""
    parser = argparse.ArgumentParser(prog="python -m docs.demo", description=__doc__)
    parser.add_argument(
        "--half", action="store_true", help="compile the CNN in float16 (GPU only)"
    )
    parser.add_argument(
        "--calls", type=int, default=10, help="timed calls of each model"
    )
    options = parser.parse_args()
    # PyTorch's own export warns.
    warnings.filterwarnings("ignore", category=FutureWarning)
    device = torch.device("cuda" if is_real() else "cpu")
    torch.manual_seed(0)
    console.print(
        f"[bold]torchtrt {torchtrt.__version__}[/bold] with {describe()} on {device}\n"
    )
    console.print(pack_table())
    settings: dict[str, Any] = {}
    if is_real():
        settings = {"tactic_sources": 0, "disable_tf32": True}
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    console.rule("Sentence encoder: all-MiniLM-L6-v2, dynamic batch and length")
    encoder, tokenizer = load_encoder()
    ids, mask = (tensor.to(device) for tensor in tokenize(tokenizer, SENTENCES))
    compiled = show(encoder.to(device), (ids, mask), sizes(), options.calls, settings)
    query = compiled(*(tensor.to(device) for tensor in tokenize(tokenizer, (QUERY,))))
    console.print(ranking(query[0], compiled(ids, mask)))

    batch = torch.export.Dim("batch", min=1, max=16)
    console.rule(
        "Convolutional network: ResNet-18's shape, random weights, dynamic batch"
    )
    network = ResNet18().eval().to(device)
    images = torch.rand(4, 3, 224, 224, device=device)
    if options.half:
        network, images = network.half(), images.half()
    show(network, (images,), ({0: batch},), options.calls, settings)

    console.rule("Decoder: GPT style, random weights, dynamic batch and length")
    length = torch.export.Dim("length", min=2, max=256)
    tokens = torch.randint(0, 5000, (2, 48), device=device)
    show(
        Decoder().eval().to(device),
        (tokens,),
        ({0: batch, 1: length},),
        options.calls,
        settings,
    )


def pack_table() -> Table:
    """Returns the packs that were found: what each provides, or why it is not in use."""
    table = Table(title="Converter packs", title_justify="left")
    counts = ("converters", "HIGH", "decompositions", "passes")
    for heading in ("pack", "distribution", "version", *counts, "summary"):
        right = heading in counts
        table.add_column(
            heading, justify="right" if right else "left", overflow="fold"
        )
    for row in list_packs(current_packs(), problems()):
        note = row.summary
        if row.status != IN_USE:
            note = f"[red]{row.status}: {row.reason}[/red]"
        info = row.info
        names = (info.name, info.distribution, info.version)
        numbers = (row.converters, row.high, row.decompositions, row.passes)
        table.add_row(*names, *(str(number or "-") for number in numbers), note)
    return table


def show(
    model: nn.Module,
    inputs: tuple[Tensor, ...],
    dynamic_shapes: tuple[dict[int, Any], ...],
    calls: int,
    settings: dict[str, Any],
) -> CompiledModule:
    """Compiles a model, prints its report, and compares a call with eager PyTorch."""
    compiled = torchtrt.compile(
        model, inputs, dynamic_shapes=dynamic_shapes, **settings
    )
    report = compiled.report
    console.print(converter_table(report.converted))
    console.print(block_table(report.blocks))
    console.print(torch_table(report.in_torch, report.inductor))
    console.print()
    with torch.no_grad():
        expected, result = model(*inputs), compiled(*inputs)
        seconds = dict(report.seconds)
        seconds["one call, eager PyTorch"] = fastest(lambda: model(*inputs), calls)
        seconds["one call, compiled"] = fastest(lambda: compiled(*inputs), calls)
    console.print(stage_table(seconds))
    difference = (expected.float() - result.float()).abs().max().item()
    console.print(
        f"Largest difference from eager: {difference:.1e} "
        f"(values up to {expected.abs().max().item():.2f}, {str(expected.dtype).removeprefix('torch.')})\n"
    )
    return compiled


def fastest(call: Callable[[], object], calls: int) -> float:
    """Returns the minimum time of several calls, in seconds; GPU work is waited for."""
    times = []
    for _ in range(calls + 2):
        start = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[2:])


def ranking(query: Tensor, embeddings: Tensor) -> Table:
    """Returns the sentences, most similar to the query first."""
    table = Table(title=f"Most similar to: {QUERY}", title_justify="left")
    table.add_column("cosine", justify="right")
    table.add_column("sentence", overflow="fold")
    similarities = embeddings @ query
    for index in similarities.argsort(descending=True).tolist():
        table.add_row(f"{similarities[index].item():.3f}", SENTENCES[index])
    return table


if __name__ == "__main__":
    main()
