"""Tokens per second of ``generate``, compiled and eager: the prompt and the steps behind it apart.

Run with ``python -m tests.benchmarks.generation``; with ``TORCHTRT_TENSORRT=real`` on a machine that has a GPU.
Models have random weights and, on the GPU, a published size. Times are medians of runs that take turns.
Building large engines takes minutes, and timing needs the machine to itself: ``--engines FOLDER --build`` only builds,
next to other work, and a second call with the same folder measures.
"""

from __future__ import annotations

import argparse
import copy
import functools
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
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
    "one engine, CUDA graphs": {"prefill_engine": False, "cuda_graphs": True},
    "tuned, CUDA graphs": {"prefill_engine": False, "cuda_graphs": True, "tune": True},
}
"""Ways to compile a model, by name: settings."""
_LLAMA = {  # SmolLM2-135M
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
_LLAMA_1B = {  # Llama-3.2-1B
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
_LLAMA_PART = {**_LLAMA_1B, "num_hidden_layers": 2, "vocab_size": 4096}
_SMALL = {  # what two cores read in milliseconds
    "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 4096, "max_position_embeddings": 8192,
}  # fmt: skip


def _llama(config: Mapping[str, Any]) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config, eos_token_id=None))


def _gpt2(**config: Any) -> Any:
    config = {"eos_token_id": None, "bos_token_id": None, **config}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))


MODELS: dict[str, Callable[[], Any]] = {
    "Llama of 1B": lambda: _llama(_LLAMA_1B),
    "two layers of Llama of 1B": lambda: _llama(_LLAMA_PART),
    "Llama of 135M": lambda: _llama(_LLAMA),
    "GPT-2": lambda: _gpt2(),
    "four layers of GPT-2": lambda: _gpt2(n_layer=4),
    "Llama of 7M": lambda: _llama(_SMALL),
    "GPT-2 of 6M": lambda: _gpt2(n_embd=256, n_layer=6, n_head=8, vocab_size=4096),
}
"""What makes each model, in float32 on the CPU."""


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each model, dtype and way to run it."""
    device = "cuda" if is_real() else "cpu"
    published = ("Llama of 135M", "GPT-2") if options.full else ("Llama of 7M", "GPT-2 of 6M")
    for name in options.model or published:
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        for dtype in options.dtype or (("float32", "float16") if is_real() else ("float32",)):
            placed = model.to(device, getattr(torch, dtype))
            yield from _rows(f"{name}, {dtype}", placed, options)


def _compiled(model: Any, options: argparse.Namespace) -> dict[str, CompiledForCausalLM]:
    """Compiles a model in each way that the options name. Ways that differ outside of the engines only share them."""
    length = options.prompt + options.new
    sizes = {
        "max_batch_size": options.batch,
        "max_length": length,
        "opt_length": options.prompt,
        "tactic_sources": options.tactic_sources,
        "optimization_level": options.level,
        "use_fp32_acc": options.use_fp32_acc,
    }
    with tempfile.TemporaryDirectory() as folder:  # engines that kinds share are built once
        return {
            kind: compile_for_generation(
                model, **sizes, engine_cache=options.engines or folder, **settings
            )
            for kind, settings in KINDS.items()
            if (is_real() or not settings.get("cuda_graphs"))
            and (options.kind is None or kind in options.kind)
        }


def _rows(title: str, model: Any, options: argparse.Namespace) -> Iterator[Row]:
    """Yields the speed of each way to generate, and the memory of each compiled model.

    A way that fails is reported and left out. The times are taken in turn, so that all meet the same conditions.
    """
    compiled = _compiled(model, options)
    for kind, compiled_model in compiled.items():
        yield Row(f"{title}: {kind}", _engines(compiled_model))
        for line in compiled_model.step.report.tried:  # type: ignore[union-attr]
            yield Row(f"{title}: {kind}, candidate", line)
    batch, prompt, new = options.batch, options.prompt, options.new
    ids = torch.randint(5, model.config.vocab_size, (batch, prompt), device=model.device)
    ways: dict[str, Callable[[int], Any]] = {
        "eager": functools.partial(_generate, model, ids),
        **{
            kind: functools.partial(_generate, compiled_model, ids)
            for kind, compiled_model in compiled.items()
        },
    }
    by_inductor = transformers.CompileConfig()
    by_inductor._compile_all_devices = True  # on the CPU too
    ways["eager, static cache, torch.compile"] = functools.partial(
        _generate, model, ids, cache_implementation="static", compile_config=by_inductor
    )
    for way, call in list(ways.items()):
        try:
            call(new)  # where engines are only built, Inductor keeps its kernels as well
        except Exception as error:  # as torch.compile without Triton: the others are still measured
            del ways[way]
            yield Row(f"{title}: {way}", f"failed: {type(error).__name__}: {str(error)[:200]}")
    if options.build:
        return
    calls = {
        (way, count): functools.partial(call, count)
        for way, call in ways.items()
        for count in (1, new)
    }
    times = seconds_in_turn(calls, options.rounds, warm_up=2)  # type: ignore[arg-type, type-var]
    expected = ways["eager"](new)
    exact = copy.deepcopy(model).double()
    for way, call in ways.items():
        first, all_ = times[(way, 1)], times[(way, new)]
        same = (call(new) == expected).all(1).sum()
        speed = batch * (new - 1) / (all_ - first)
        result = (
            f"{speed:,.0f} tokens/s, prompt {first * 1e3:.1f} ms, "
            f"{(all_ - first) / (new - 1) * 1e3:.2f} ms a step, {same} of {batch} texts as eager's, "
            f"logits {_error(call, exact, prompt, new):.1e} from float64's"
        )
        yield Row(f"{title}: {way}", result)


def _error(call: Callable[..., Any], exact: Any, prompt: int, new: int) -> float:
    """Returns the norm of the difference of logits over the norm of the exact ones, for the text that a call makes.

    Args:
        call: Generates that many tokens.
        exact: The model in float64, with the same weights.
        prompt: The number of tokens of the prompt.
        new: The number of new tokens.
    """
    output = call(new, return_dict_in_generate=True, output_logits=True)
    with torch.no_grad():
        wanted = exact(output.sequences[:, :-1]).logits[:, prompt - 1 :]
    return float((torch.stack(output.logits, 1).to(wanted) - wanted).norm() / wanted.norm())


def _generate(model: Any, ids: torch.Tensor, count: int, **options: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(
        ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0, **options
    )
    if ids.is_cuda:
        torch.cuda.synchronize()
    return tokens


def _engines(compiled: CompiledForCausalLM) -> str:
    """Returns how many engines there are, how often a block was divided for them, and what they take."""
    reports = [part.report for part in (compiled.step, compiled.prefill) if part is not None]
    plans = [block.plan_bytes for report in reports for block in report.blocks]  # type: ignore[union-attr]
    divided = sum(len(report.splits) for report in reports)  # type: ignore[union-attr]
    seconds = sum(report.seconds.get("building", 0.0) for report in reports)  # type: ignore[union-attr]
    cache = compiled.layout.elements() * compiled.dtype.itemsize
    return (
        f"{sum(plans) / 1e6:.0f} MB in engines ({len(plans)}), built in {seconds:.0f} s with {divided} blocks divided; "
        f"{cache / 1e6:.1f} MB of cache"
    )


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="published sizes on the CPU, too")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--dtype", action="append", help="as 'float16'")
    parser.add_argument("--kind", action="append", choices=KINDS, help="ways to compile")
    parser.add_argument("--engines", help="a folder that keeps the engines")
    parser.add_argument("--use-fp32-acc", action="store_true", help="as the setting")
    parser.add_argument("--build", action="store_true", help="only build the engines")
    parser.add_argument(
        "--tactic-sources", type=int, help="as the setting: 0 without cuBLAS and cuDNN"
    )
    parser.add_argument(
        "--level", type=int, help="TensorRT's optimization level, as the setting optimization_level"
    )
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    options.full = options.full or is_real()
    print(f"{describe()}, torch {torch.__version__}, {vars(options)}")
    for row in measure(options):
        print(f"{row.what}: {row.result}", flush=True)


if __name__ == "__main__":
    main()
