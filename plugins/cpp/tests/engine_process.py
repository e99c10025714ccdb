"""Functions for a process that has the library and not torchtrt, so that the op of the name is the library's."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import torch

_stand_in: Any = None
_plans: dict[str, torch.Tensor] = {}


def load(library: str, stand_in: str) -> None:
    """Loads the library, and the stand-in that it calls."""
    global _stand_in
    torch.ops.load_library(library)
    _stand_in = ctypes.CDLL(stand_in)


def counts() -> dict[str, int]:
    """Returns how many runtimes, engines and contexts are alive, and how many plans were loaded so far."""
    numbers = (ctypes.c_int * 4)()
    _stand_in.stand_in_live(numbers)
    return dict(zip(("runtimes", "engines", "contexts", "loads"), numbers, strict=True))


def run(plan: str, description: str, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Returns what the op returns. The plan stays until it is dropped."""
    if plan not in _plans:
        _plans[plan] = torch.frombuffer(bytearray(plan.encode()), dtype=torch.uint8)
    return torch.ops.torchtrt.execute_engine(list(inputs), _plans[plan], description)


def run_numbers(plan: str, description: str, *inputs: tuple[Any, str]) -> list[tuple[Any, str]]:
    """Returns what the op returns, from and to lists of numbers, each with its dtype."""
    tensors = [torch.tensor(numbers, dtype=getattr(torch, dtype)) for numbers, dtype in inputs]
    outputs = run(plan, description, *tensors)
    return [(output.tolist(), str(output.dtype).removeprefix("torch.")) for output in outputs]


def run_layouts(plan: str, description: str) -> list[bool]:
    """Returns whether the results of ``2 * x + 1`` are right for tensors that are not contiguous, or not there."""
    x = torch.arange(8.0).reshape(2, 4).T[:, ::1]
    wide = torch.arange(32.0).reshape(8, 4)[::2, 1:3]
    zeros = torch._efficientzerotensor((3, 2))
    negative = torch.complex(torch.zeros(3, 2), torch.ones(3, 2)).conj().imag
    return [
        torch.equal(run(plan, description, tensor)[0], 2 * tensor + 1)
        for tensor in (x, wide, zeros, negative)
    ]


def run_elsewhere(plan: str, description: str) -> None:
    """Runs a plan on tensors of a device that has no memory."""
    run(plan, description, torch.ones(2, 2, device="meta"))


def run_in_threads(plan: str, description: str, threads: int, calls: int) -> list[str]:
    """Runs a plan for ``2 * x + 1`` in many threads, each with sizes of its own; returns what went wrong."""
    wrong: list[str] = []

    def work(number: int) -> None:
        for call in range(calls):
            x = torch.full(((number + call) % 8 + 1, 2), float(number * calls + call))
            try:
                (output,) = run(plan, description, x)
            except RuntimeError as error:
                wrong.append(str(error))
            else:
                if not torch.equal(output, 2 * x + 1):
                    wrong.append(f"{number}: {x} gave {output}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return wrong


def drop_plans() -> None:
    """Frees the plans."""
    _plans.clear()


def run_with_gradients(plan: str, description: str) -> None:
    """Runs a plan on a tensor that requires gradients, and goes backward."""
    x = torch.ones(2, 2, requires_grad=True)
    run(plan, description, x)[0].sum().backward()


def same_plan_with_two_descriptions(plan: str, first: str, second: str) -> list[Any]:
    """Returns what one plan returns by two descriptions, the first one again at the end."""
    return [run_numbers(plan, text, ([[1.0, 2.0]], "float32")) for text in (first, second, first)]
