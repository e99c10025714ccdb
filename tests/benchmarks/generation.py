"""Tokens per second of ``generate``, compiled and eager: the prompt and the steps behind it apart.

Run with ``python -m tests.benchmarks.generation``; with ``TORCHTRT_TENSORRT=real`` on a machine that has a GPU.
Models have random weights and, on the GPU, a published size. Times are medians of runs that take turns.
"""

from __future__ import annotations

import argparse
import functools
import logging
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from tests.benchmarks._measure import Row, seconds_in_turn
from torchtrt.tensorrt import is_real
from torchtrt.tensorrt.selection import describe
from torchtrt_converters_transformers import CompiledForCausalLM, compile_for_generation

KINDS: dict[str, dict[str, Any]] = {
    "two engines": {},
    "two engines, CUDA graphs": {"cuda_graphs": True},
    "one engine": {"prefill_engine": False},
}
"""Ways to compile a model, by name: settings."""
_LLAMA = {  # SmolLM2-135M
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
_SMALL = {  # what two cores read in milliseconds
    "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 8192,
}  # fmt: skip


def models(full: bool) -> Iterator[tuple[str, Any]]:
    """Yields names and models, in float32 on the CPU."""
    torch.manual_seed(0)
    if full:
        llama = transformers.LlamaConfig(**_LLAMA, eos_token_id=None)
        yield "Llama of 135M", transformers.LlamaForCausalLM(llama)
        yield "GPT-2", transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=None))
    else:
        llama = transformers.LlamaConfig(**_SMALL, eos_token_id=None)
        yield "Llama of 7M", transformers.LlamaForCausalLM(llama)
        gpt2 = transformers.GPT2Config(
            n_embd=256, n_layer=6, n_head=8, vocab_size=4096, eos_token_id=None, bos_token_id=None
        )
        yield "GPT-2 of 6M", transformers.GPT2LMHeadModel(gpt2)


def measure(full: bool, prompt: int, new: int, batch: int, rounds: int) -> Iterator[Row]:
    """Yields a row for each model, dtype and way to run it."""
    device = "cuda" if is_real() else "cpu"
    dtypes = (torch.float32, torch.float16) if is_real() else (torch.float32,)
    for name, model in models(full):
        for dtype in dtypes:
            yield from _rows(
                f"{name}, {str(dtype).removeprefix('torch.')}",
                model.eval().to(device, dtype),
                *(prompt, new, batch, rounds),
            )


def _rows(title: str, model: Any, prompt: int, new: int, batch: int, rounds: int) -> Iterator[Row]:
    sizes = {"max_batch_size": batch, "max_length": prompt + new, "opt_length": prompt}
    with tempfile.TemporaryDirectory() as engines:  # those that kinds share are built once
        compiled = {
            kind: compile_for_generation(model, **sizes, engine_cache=engines, **settings)
            for kind, settings in KINDS.items()
            if is_real() or not settings.get("cuda_graphs")
        }
    ids = torch.randint(5, model.config.vocab_size, (batch, prompt), device=model.device)
    ways: dict[str, Callable[[int], Any]] = {
        "eager": functools.partial(_generate, model, ids),
        **{kind: functools.partial(_generate, each, ids) for kind, each in compiled.items()},
    }
    by_inductor = transformers.CompileConfig()
    by_inductor._compile_all_devices = True  # on the CPU too
    ways["eager, static cache, torch.compile"] = functools.partial(
        _generate, model, ids, cache_implementation="static", compile_config=by_inductor
    )
    calls = {
        (way, count): functools.partial(call, count)
        for way, call in ways.items()
        for count in (1, new)
    }
    times = seconds_in_turn(calls, rounds, warm_up=2)  # type: ignore[arg-type, type-var]
    expected = ways["eager"](new)
    for way, call in ways.items():
        first, all_ = times[(way, 1)], times[(way, new)]
        same = (call(new) == expected).all(1).sum()
        speed = batch * (new - 1) / (all_ - first)
        result = (
            f"{speed:,.0f} tokens/s, prompt {first * 1e3:.1f} ms, "
            f"{(all_ - first) / (new - 1) * 1e3:.2f} ms a step, {same} of {batch} texts as eager's"
        )
        yield Row(f"{title}: {way}", result)
    for kind, each in compiled.items():
        yield Row(f"{title}: {kind}", _memory(each))


def _generate(model: Any, ids: torch.Tensor, count: int, **options: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(
        ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0, **options
    )
    if ids.is_cuda:
        torch.cuda.synchronize()
    return tokens


def _memory(compiled: CompiledForCausalLM) -> str:
    plans = [
        block.plan_bytes
        for module in (compiled.step, compiled.prefill)
        if module is not None
        for block in module.report.blocks  # type: ignore[union-attr]
    ]
    layout, size = compiled.layout, compiled.dtype.itemsize
    return f"{sum(plans) / 1e6:.0f} MB of engines, {layout.elements() * size / 1e6:.1f} MB of cache"


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="published sizes on the CPU, too")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = vars(parser.parse_args())
    logging.getLogger("transformers").setLevel(logging.ERROR)
    options["full"] = options["full"] or is_real()
    print(f"{describe()}, torch {torch.__version__}, {options}")
    for row in measure(**options):
        print(f"{row.what}: {row.result}", flush=True)


if __name__ == "__main__":
    main()
