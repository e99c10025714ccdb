"""The plan and the memory of a Llama's layers in float16, FP8, INT4 and NVFP4, on the reference.

``python -m tests.benchmarks.quantized_sizes`` compiles layers of the size of a Llama with 1 billion parameters, in a
process for each format, with random weights: 16 layers of width 2048, and 8192 in the feed-forward part. Where memory
does not hold all layers, ``--layers`` takes fewer.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks._measure import circumstances

FORMATS = {"float16": "", "FP8": "FP8", "INT4": "INT4", "NVFP4": "NVFP4"}
WIDTH, INNER, HEADS, KEYS = 2048, 8192, 32, 8


class Linear(nn.Module):
    """A linear layer whose weight is random in a format, without ever being floating point where that is another."""

    def __init__(self, inputs: int, outputs: int, form: str) -> None:
        super().__init__()
        self.form = form
        generator = torch.Generator().manual_seed(inputs + outputs)
        if not form:
            weight = torch.randn(outputs, inputs, generator=generator).mul_(0.02).half()
            self.register_buffer("data", weight)
            return
        if form == "NVFP4":
            data = torch.randint(0, 256, (outputs, inputs // 2), generator=generator)
            self.register_buffer("data", data.to(torch.uint8))
            self.register_buffer("scale", torch.ones(outputs, inputs // 16).to(torch.float8_e4m3fn))
            self.register_buffer("outer", torch.tensor(0.005))
        elif form == "INT4":
            data = torch.randint(-8, 8, (outputs, inputs), generator=generator, dtype=torch.int8)
            self.register_buffer("data", data)
            self.register_buffer("scale", torch.full((outputs, inputs // 128), 0.005))
        else:
            data = torch.randn(outputs, inputs, generator=generator).to(torch.float8_e4m3fn)
            self.register_buffer("data", data)
            self.register_buffer("scale", torch.full((outputs, 1), 0.02))

    def forward(self, x: Tensor) -> Tensor:
        """``(..., inputs)`` to ``(..., outputs)``."""
        from torchtrt_converters_quantization.ops import DEQUANTIZE

        weight: Any = self.data
        if self.form == "NVFP4":
            scale = DEQUANTIZE["FP8"](self.scale, self.outer, x.dtype)
            weight = DEQUANTIZE["FP4"](self.data, scale, x.dtype)
        elif self.form:
            weight = DEQUANTIZE[self.form](self.data, self.scale, x.dtype)
        return nn.functional.linear(x, weight)


class Layer(nn.Module):
    """A layer of a Llama, without its rotary embeddings, which have no weights."""

    def __init__(self, form: str) -> None:
        super().__init__()
        head = WIDTH // HEADS
        sizes = {
            "query": (WIDTH, WIDTH), "key": (WIDTH, KEYS * head), "value": (WIDTH, KEYS * head),
            "out": (WIDTH, WIDTH), "gate": (WIDTH, INNER), "up": (WIDTH, INNER),
            "down": (INNER, WIDTH),
        }  # fmt: skip
        for name, (inputs, outputs) in sizes.items():
            self.add_module(name, Linear(inputs, outputs, form))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """``(n, length, width)`` to the same."""
        y = self.norms[0](x)
        query, key, value = (
            getattr(self, name)(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        y = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))  # type: ignore[no-any-return]


def measure(form: str, layers: int, tensorrt: str) -> dict[str, Any]:
    """Returns the bytes of the weights and of the plan, and this process's memory at its highest."""
    import torchtrt

    model = (
        nn.Sequential(*(Layer(FORMATS[form]) for _ in range(layers))).eval().requires_grad_(False)
    )
    for norm in (module for module in model.modules() if isinstance(module, nn.RMSNorm)):
        norm.half()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = torch.randn(1, 8, WIDTH).half()
    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)
        plan = sum(block.plan_bytes for block in compiled.report.blocks)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = compiled(x)
    assert bool(result.isfinite().all())
    return {
        "weights": sum(buffer.numel() for buffer in model.buffers()),
        "plan": plan / 2**20,
        "model": before / 2**10,
        "compiling": after / 2**10,
        "running": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tensorrt", default="reference@11.4.0")
    parser.add_argument("--format", choices=FORMATS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.format:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(options.format, options.layers, options.tensorrt)))
        return
    me = [sys.executable, "-m", "tests.benchmarks.quantized_sizes"]
    shared = ["--layers", str(options.layers), "--tensorrt", options.tensorrt]
    print(circumstances(), f"{options.layers} layers, {options.tensorrt}.\n")
    print(
        "| format | plan | the process with the model | at most while compiling | at most while running |"
    )
    print("|---|---|---|---|---|")
    for form in FORMATS:
        done = subprocess.run(
            [*me, *shared, "--format", form], check=True, stdout=subprocess.PIPE, text=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        sizes = (f"{row[name]:.0f} MiB" for name in ("plan", "model", "compiling", "running"))
        print(f"| {form} | {' | '.join(sizes)} |")


if __name__ == "__main__":
    main()
