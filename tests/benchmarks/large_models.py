"""Memory of building and sizes of plans of a large model, without a GPU.

``python -m tests.benchmarks.large_models`` builds feed-forward layers of a Llama with 1 billion parameters in float16,
in a process for each row. The first table shows the memory that a compilation with ``max_engine_bytes`` adds at its
peak, by the builder of TensorRT for RTX. The second one shows ``strip_engine_weights`` on the reference TensorRT.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.benchmarks._measure import circumstances

LAYERS, WIDTH, INNER = 16, 2048, 8192
REFERENCE = "reference@11.4.0"
STRIPPED = {"`False`": False, "`True`": True}
LIMITS = {"none": None, "512 MiB": 2**29, "256 MiB": 2**28, "128 MiB": 2**27}


class FeedForward(nn.Module):
    """A gated feed-forward layer with a sum around it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(batch, tokens, WIDTH)`` to the same."""
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]


def kilobytes(what: str) -> int:
    """Returns a line of this process's status in KiB, such as ``VmHWM``, the peak of its memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0])


def large_model() -> tuple[nn.Module, Tensor]:
    """Returns the layers and an input."""
    torch.manual_seed(0)
    with torch.device("meta"):
        model = nn.Sequential(*(FeedForward() for _ in range(LAYERS))).half()
    model = model.to_empty(device="cpu").eval()
    for parameter in model.parameters():
        parameter.data.uniform_(-0.02, 0.02)
    return model, torch.rand(1, 16, WIDTH).half()


def compile_measured(
    tensorrt: str, model: nn.Module, x: Tensor, **settings: Any
) -> tuple[Any, dict[str, float]]:
    """Returns a compiled model, and megabytes of weights, of plans, and of memory at the peak and afterwards."""
    import torchtrt

    small = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    with torchtrt.use_tensorrt(tensorrt), torch.no_grad():
        torchtrt.compile(small, [torch.rand(2, 8)], min_block_size=1)  # what is loaded on first use
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, start = kilobytes("VmRSS"), time.perf_counter()
        compiled = torchtrt.compile(model, [x], min_block_size=1, **settings)
        seconds = time.perf_counter() - start
    weights = sum(parameter.nbytes for parameter in model.parameters())
    plans = sum(block.plan_bytes for block in compiled.report.blocks)
    peak = kilobytes("VmHWM")
    gc.collect()
    return compiled, {
        "engines": len(compiled.report.blocks),
        "weights": weights / 2**20,
        "plans": plans / 2**20,
        "peak": (peak - before) / 2**10,
        "kept": (kilobytes("VmRSS") - before) / 2**10,
        "seconds": seconds,
    }


def measure(limit: int | None) -> dict[str, float]:
    """Compiles the layers with a limit."""
    return compile_measured("rtx", *large_model(), max_engine_bytes=limit)[1]


def measure_stripped(is_stripped: bool) -> dict[str, float]:
    """Compiles the layers with or without weights in the plan, and measures the file and the loading of it too."""
    import torchtrt

    model, x = large_model()
    compiled, measures = compile_measured(REFERENCE, model, x, strip_engine_weights=is_stripped)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.pt2"
        torchtrt.save(compiled, path)
        loaded = torchtrt.load(path, weights=model if is_stripped else None)
        torch.testing.assert_close(loaded(x), compiled(x), rtol=0, atol=0)
        return {**measures, "file": path.stat().st_size / 2**20}


def measured_apart(name: str) -> dict[str, float]:
    """Returns what a process of its own measures for a row."""
    command = [sys.executable, "-m", "tests.benchmarks.large_models", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    """Prints the tables; with an argument, measures one row and prints JSON."""
    warnings.simplefilter("ignore")
    if len(sys.argv) > 1:
        name = sys.argv[1]
        is_limit = name in LIMITS
        print(json.dumps(measure(LIMITS[name]) if is_limit else measure_stripped(STRIPPED[name])))
        return
    print(circumstances())
    print(
        "\n| `max_engine_bytes` | engines | weights | plans | added at the peak | of the weights |"
    )
    print("|---|---|---|---|---|---|")
    for name in LIMITS:
        measures = measured_apart(name)
        print(
            f"| {name} | {measures['engines']} | {measures['weights']:,.0f} MiB | {measures['plans']:,.0f} MiB "
            f"| {measures['peak']:,.0f} MiB | {measures['peak'] / measures['weights']:.2f}× |",
            flush=True,
        )
    print("\n| `strip_engine_weights` | weights | plans | file | kept |")
    print("|---|---|---|---|---|")
    for name in STRIPPED:
        measures = measured_apart(name)
        print(
            f"| {name} | {measures['weights']:,.0f} MiB | {measures['plans']:,.2f} MiB | {measures['file']:,.2f} MiB "
            f"| {measures['kept']:,.0f} MiB |",
            flush=True,
        )


if __name__ == "__main__":
    main()
