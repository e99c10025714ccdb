"""Peak memory of building with ``max_engine_bytes``, by the builder of TensorRT for RTX, which needs no GPU.

``python -m tests.benchmarks.large_models`` builds feed-forward layers of a Llama with 1 billion parameters in float16,
in a process for each limit, and prints a table of the memory that a compilation adds at its peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.benchmarks._measure import circumstances

LAYERS, WIDTH, INNER = 16, 2048, 8192
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


def measure(limit: int | None) -> dict[str, float]:
    """Compiles the layers and returns megabytes of weights, of memory at the peak, and seconds."""
    import torchtrt

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    with torch.device("meta"):
        model = nn.Sequential(*(FeedForward() for _ in range(LAYERS))).half()
    model = model.to_empty(device="cpu").eval()
    for parameter in model.parameters():
        parameter.data.uniform_(-0.02, 0.02)
    x = torch.rand(1, 16, WIDTH).half()
    small = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    with torchtrt.use_tensorrt("rtx"), torch.no_grad():
        torchtrt.compile(small, [torch.rand(2, 8)], min_block_size=1)  # what is loaded on first use
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before, start = kilobytes("VmRSS"), time.perf_counter()
        compiled = torchtrt.compile(model, [x], min_block_size=1, max_engine_bytes=limit)
        seconds = time.perf_counter() - start
    weights = sum(each.nbytes for each in model.parameters())
    plans = sum(block.plan_bytes for block in compiled.report.blocks)
    return {
        "engines": len(compiled.report.blocks),
        "weights": weights / 2**20,
        "plans": plans / 2**20,
        "peak": (kilobytes("VmHWM") - before) / 2**10,
        "seconds": seconds,
    }


def main() -> None:
    """Prints the table; with an argument, measures one limit and prints JSON."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(LIMITS[sys.argv[1]])))
        return
    print(circumstances())
    print(
        "\n| `max_engine_bytes` | engines | weights | plans | added at the peak | of the weights |"
    )
    print("|---|---|---|---|---|---|")
    for name in LIMITS:
        command = [sys.executable, "-m", "tests.benchmarks.large_models", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {name} | {found['engines']} | {found['weights']:,.0f} MiB | {found['plans']:,.0f} MiB "
            f"| {found['peak']:,.0f} MiB | {found['peak'] / found['weights']:.2f}× |",
            flush=True,
        )


if __name__ == "__main__":
    main()
