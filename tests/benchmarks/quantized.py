"""Models in INT8 on a GPU, against float16 and ``torch.compile``, in one run.

``python -m tests.benchmarks.quantized FOLDER`` needs a GPU, the real TensorRT, ``torchvision`` and ``transformers``,
and no library for quantization: ``_int8.py`` writes the programs. Each model is exported once into the folder, in
float16 and in int8, gets ready in processes of its own, and is measured alone. Where TensorRT is installed for another
Python than PyTorch, ``--tensorrt-python`` names that. ``--tiny`` runs all of it with small models on a CPU and the
reference.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks import gpu
from tests.benchmarks._int8 import quantize, without_batch_norms
from tests.benchmarks._measure import circumstances, write_section
from tests.benchmarks._turns import in_turns, take_turn
from tests.benchmarks.published import MODELS

COLUMNS = {
    "half": "ours float16",
    "half_graph": "ours float16, graph",
    "int8": "ours INT8",
    "int8_graph": "ours INT8, graph",
    "compiled": "`torch.compile` float16",
    "compiled_graph": "the same, reduce-overhead",
    "compiled_int8": "`torch.compile` INT8",
    "compiled_int8_graph": "the same, reduce-overhead",
}
PROGRAMS = ("half", "int8", "pytorch", "pytorch_int8")
NAMES = ("ResNet-50", "ViT-B/16", "BERT-base 128 tokens")
BATCHES = (1, 32)


class TinyResNet(nn.Module):
    """A convolution and a block with a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16))
        self.first = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, 3, h, w)`` to ``(n, 10)``."""
        x = torch.relu(self.stem(x))
        x = torch.relu(self.second(torch.relu(self.first(x))) + x)
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class TinyViT(nn.Module):
    """Patches and a block of a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: Tensor) -> Tensor:
        """``(n, 3, h, w)`` to ``(n, patches, 32)``."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        y = self.norms[0](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))  # type: ignore[no-any-return]


def _tiny_bert() -> nn.Module:
    """Returns a BERT with one narrow layer, for a run that measures nothing."""
    import transformers

    from tests.benchmarks.published import _Logits

    config = transformers.BertConfig(
        vocab_size=100,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
    )
    return _Logits(transformers.BertModel(config))


TINY: Mapping[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, ...]]]] = {
    "ResNet-50": (TinyResNet, lambda batch: (torch.rand(batch, 3, 32, 32),)),
    "ViT-B/16": (TinyViT, lambda batch: (torch.rand(batch, 3, 32, 32),)),
    "BERT-base 128 tokens": (_tiny_bert, lambda batch: (torch.randint(100, (batch, 8)),)),
}
"""What ``--tiny`` measures in place of the models with these names."""


class Work:
    """One model and batch, and its files in the folder.

    Args:
        folder: The folder.
        label: The model's name and batch: ``"ResNet-50, batch 1"``.
        tiny: Whether to take the small models, on the CPU.
    """

    def __init__(self, folder: Path, label: str, tiny: bool) -> None:
        self.label, self.tiny = label, tiny
        self.name, _, batch = label.rpartition(", batch ")
        self.batch = int(batch)
        self.device = "cpu" if tiny else "cuda"
        stem = "".join(letter if letter.isalnum() else "-" for letter in label)
        self.files = {
            kind: folder / f"{stem}-{kind}" for kind in ("half.pt2", "int8.pt2", "data.pt")
        }

    def model(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Returns the module and its inputs in float16, the same each time."""
        torch.manual_seed(0)
        if self.tiny:
            make, inputs = TINY[self.name]
        else:
            make, inputs = MODELS[self.name].make, MODELS[self.name].inputs
        model = make().eval()
        for parameter in model.parameters():
            if not parameter.any():  # heads that begin at zero would have nothing to compare
                nn.init.normal_(parameter, std=0.02)
        model = without_batch_norms(model).eval().half().to(self.device)
        operands = tuple(
            (input_.half() if input_.is_floating_point() else input_).to(self.device)
            for input_ in inputs(self.batch)
        )
        return model, operands


def export(work: Work) -> None:
    """Writes the programs of a model, its inputs, and its results in float16 and in int8."""
    from torchtrt_compiler.exporting.export import export as export_program

    model, inputs = work.model()
    # PyTorch's one op for attention in inference would hide its linear layers.
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        half = export_program(model, inputs, {}, None)
        int8 = quantize(half, inputs)
        results = {"half": half.module()(*inputs), "int8": int8.module()(*inputs)}
    torch.export.save(half, work.files["half.pt2"])
    torch.export.save(int8, work.files["int8.pt2"])
    torch.save((inputs, results), work.files["data.pt"])


def _times(work: Work, call: Callable[[], Any]) -> list[float]:
    """Returns milliseconds a call: the median, the minimum and the maximum of some rounds."""
    if not work.tiny:
        return gpu.times(call)
    rounds = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        rounds.append(1000 * (time.perf_counter() - start))
    return [statistics.median(rounds), min(rounds), max(rounds)]


def ours(work: Work, kind: str, settings: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Gets torchtrt ready for the program in float16 or in int8."""
    import torchtrt
    from torchtrt.tensorrt.selection import describe

    program = torch.export.load(work.files[f"{kind}.pt2"])
    inputs, results = torch.load(work.files["data.pt"])
    chosen = {"require_full_compilation": True, **settings}
    start = time.perf_counter()
    plain = torchtrt.compile(program, **chosen)
    build = time.perf_counter() - start
    calls = {kind: plain}
    if not work.tiny:
        calls[f"{kind}_graph"] = torchtrt.compile(program, **chosen, cuda_graphs=True)
    torch.set_grad_enabled(False)
    for call in calls.values():
        for _ in range(4):
            result = call(*inputs)
    position = "CPU" if work.tiny else torch.cuda.get_device_name()
    answer = {
        f"{kind}_error": gpu._error(result, results[kind]),
        f"{kind}_loss": gpu._error(result, results["half"]),
        f"{kind}_build": build,
        f"{kind}_plan": sum(block.plan_bytes for block in plain.report.blocks) / 2**20,
        "on": f"{position}, {describe()}",
    }
    held: list[Any] = [None]

    def hold(compiled: Any) -> None:  # as ``result = model(x)`` in a loop
        held[0] = compiled(*inputs)

    def measure() -> dict[str, Any]:
        measured: dict[str, Any] = {
            name: _times(work, lambda call=call: hold(call)) for name, call in calls.items()
        }
        if not work.tiny:
            measured[f"{kind}_kernels"] = gpu._kernels(lambda: plain(*inputs))
        return {**answer, **measured}

    return measure


def pytorch(work: Work, kind: str) -> Callable[[], dict[str, Any]]:
    """Gets ``torch.compile`` ready for the model in float16, or for the program in int8."""
    inputs, _ = torch.load(work.files["data.pt"])
    column = "compiled" if kind == "half" else "compiled_int8"
    if kind == "half":
        model, _ = work.model()
    else:
        model = _cast_to_quantize(torch.export.load(work.files["int8.pt2"]).module())
    torch.set_grad_enabled(False)
    modes = {column: "default", f"{column}_graph": "reduce-overhead"}
    calls = {}
    for name, mode in modes.items():
        torch._dynamo.reset()
        options: dict[str, Any] = {"backend": "eager"} if work.tiny else {"mode": mode}
        compiled = torch.compile(model, **options)
        for _ in range(4):
            compiled(*inputs)
        calls[name] = compiled
    return lambda: {
        name: _times(work, lambda call=call: call(*inputs)) for name, call in calls.items()
    }


def _cast_to_quantize(module: Any) -> Any:
    """Returns a module whose Quantize ops read float32, because Inductor of PyTorch 2.11 compiles no others."""
    for node in list(module.graph.nodes):
        if node.target is torch.ops.quantized_decomposed.quantize_per_tensor.default:
            with module.graph.inserting_before(node):
                cast = module.graph.call_function(
                    torch.ops.aten.to.dtype, (node.args[0], torch.float32)
                )
            node.update_arg(0, cast)
    module.recompile()
    return module


def table(rows: Mapping[str, dict[str, Any]]) -> str:
    """Returns the table of all columns, with the speed of INT8 as a multiple of our float16."""
    lines = gpu._head("model", *COLUMNS.values(), "INT8 / float16", "error", "loss")
    for label, row in rows.items():
        cells = []
        best = min((row[column][0] for column in COLUMNS if column in row), default=0.0)
        for column in COLUMNS:
            median, low, high = row.get(column, (0.0, 0.0, 0.0))
            text = f"{median:#.3g}" if median else "-"
            text = f"**{text}**" if median and median <= gpu.LEVEL * best else text
            cells.append(text + (f" ({low:#.3g} to {high:#.3g})" if high > 1.1 * low else ""))
        pairs = [("half_graph", "int8_graph"), ("half", "int8")]
        ratios = [row[a][0] / row[b][0] for a, b in pairs if a in row and b in row]
        cells.append(f"{ratios[0]:.2f}×" if ratios else "-")
        for name in ("int8_error", "int8_loss"):
            cells.append(f"{row[name]:.1e}" if name in row else "-")
        lines.append(gpu._row(label, *cells))
    return "\n".join(lines)


def section(rows: Mapping[str, dict[str, Any]]) -> str:
    """Returns the part of ``docs/benchmarks.md`` about a run."""
    positions = sorted({row["on"] for row in rows.values() if "on" in row})
    lines = gpu._head("model", "float16 engine", "INT8 engine", "float16 build", "INT8 build")
    for label, row in rows.items():
        sizes = (
            f"{row[name]:.1f} {unit}" if name in row else "-"
            for name, unit in (
                ("half_plan", "MiB"),
                ("int8_plan", "MiB"),
                ("half_build", "s"),
                ("int8_build", "s"),
            )
        )
        lines.append(gpu._row(label, *sizes))
    sizes_table = "\n".join(lines)
    return f"""{circumstances()} {"; ".join(positions)}.

Milliseconds a call, medians of eleven rounds; bold is the fastest of a row, and what is within 1 % of it. *INT8 /
float16* is how many times as fast our INT8 is as our float16, both in graphs. *Error* is the relative error against the
same quantized program in PyTorch, and *loss* that against the model in float16; weights and inputs are random.

{table(rows)}

{sizes_table}
"""


def run(options: argparse.Namespace, labels: list[str]) -> None:
    """Exports, measures, and appends each answer to ``results.jsonl`` as it comes."""
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    me = ["-m", "tests.benchmarks.quantized", str(folder), *_passed_on(options)]

    def note(name: str, answer: Any) -> None:
        with (folder / "results.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, "answer": answer}) + "\n")

    for label in labels:
        if not Work(folder, label, options.tiny).files["data.pt"].exists():
            command = [sys.executable, *me, "--program", "export", "--model", label]
            subprocess.run(command, check=False, timeout=options.export_seconds)
    positions = {"half": options.jobs, "int8": options.jobs, "pytorch": 2, "pytorch_int8": 2}
    programs = {
        f"{program}:{label}": [
            sys.executable if program.startswith("pytorch") else options.tensorrt_python,
            *me,
            "--program",
            program,
            "--model",
            label,
        ]
        for label in labels
        for program in PROGRAMS
    }
    in_turns(programs, positions, options.seconds, note)


def _passed_on(options: argparse.Namespace) -> list[str]:
    arguments = ["--tiny"] if options.tiny else []
    for name in ("tactic_sources", "optimization_level"):
        value = getattr(options, name)
        arguments += [f"--{name.replace('_', '-')}", str(value)] if value is not None else []
    return arguments


def collect(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns what was measured of each model."""
    rows: dict[str, dict[str, Any]] = {}
    for line in (folder / "results.jsonl").read_text().splitlines():
        entry = json.loads(line)
        program, _, label = entry["name"].partition(":")
        answer = entry["answer"]
        if "failed" in answer:
            answer = {f"{program}_failed": answer["failed"]}
        rows.setdefault(label, {}).update(answer)
    return {label: rows[label] for label in all_labels() if label in rows}


def all_labels() -> list[str]:
    """Returns all rows, in order."""
    return [f"{name}, batch {batch}" for name in NAMES for batch in BATCHES]


def _ready(options: argparse.Namespace, label: str) -> Callable[[], dict[str, Any]]:
    """Gets one program ready."""
    import torch.ao.quantization.fx._decomposed  # noqa: F401  # programs in int8 call its ops

    work = Work(options.folder, label, options.tiny)
    kind = "int8" if options.program.endswith("int8") else "half"
    if options.program.startswith("pytorch"):
        return pytorch(work, kind)
    settings = {
        "tactic_sources": options.tactic_sources,
        "optimization_level": options.optimization_level,
        "engine_cache": options.folder / "engines",
    }
    return ours(work, kind, settings)


def _options() -> argparse.Namespace:
    """Returns what the command line asks for. ``--program`` is for the processes that the benchmark starts itself."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.quantized", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tensorrt-python", default=sys.executable)
    parser.add_argument(
        "--jobs", type=int, default=1, help="how many engines of a kind build at a time"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e6, help="how long all may take to get ready"
    )
    parser.add_argument(
        "--export-seconds", type=float, default=600.0, help="how long an export may take"
    )
    parser.add_argument(
        "--tactic-sources", type=int, help="as the setting: 0 without cuBLAS and cuDNN"
    )
    parser.add_argument("--optimization-level", type=int, help="as the setting")
    parser.add_argument(
        "--tiny", action="store_true", help="small models on a CPU, with the reference"
    )
    parser.add_argument("--program", choices=("export", *PROGRAMS), help=argparse.SUPPRESS)
    parser.add_argument(
        "--model", action="append", help="a row, as 'ResNet-50, batch 1'; default: all"
    )
    parser.add_argument("--table", action="store_true", help="print the tables of an earlier run")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    return parser.parse_args()


def main() -> None:
    """Runs the command line."""
    options = _options()
    labels = options.model or all_labels()
    if options.program is not None:
        warnings.simplefilter("ignore")
        default = "reference@8.6.0" if options.tiny else "real"
        os.environ.setdefault("TORCHTRT_TENSORRT", default)
    if options.table:
        print(section(collect(options.folder)))
    elif options.program == "export":
        export(Work(options.folder, labels[0], options.tiny))
    elif options.program:
        take_turn(lambda: _ready(options, labels[0]))
    else:
        run(options, labels)
        text = section(collect(options.folder))
        print(text)
        if options.write:
            write_section("make bench-quantized", text)


if __name__ == "__main__":
    main()
