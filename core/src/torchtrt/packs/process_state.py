"""The state of a process that other libraries share, so that a pack that changes it can be named."""

from __future__ import annotations

import gc
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any


def process_state() -> dict[str, Any]:
    """Returns what is common to a whole process, by a name that users see in messages."""
    import torch

    from torchtrt.torch_internals import print_options

    numpy = sys.modules.get("numpy")
    root = logging.getLogger()
    state = {
        "sys.path": list(sys.path),
        "sys.meta_path": list(map(repr, sys.meta_path)),
        "sys.path_hooks": list(map(repr, sys.path_hooks)),
        "sys.excepthook": repr(sys.excepthook),
        "sys.displayhook": repr(sys.displayhook),
        "sys.stdout": repr(sys.stdout),
        "sys.stderr": repr(sys.stderr),
        "sys.getrecursionlimit()": sys.getrecursionlimit(),
        "warnings.filters": list(map(repr, warnings.filters)),
        "os.environ": dict(os.environ),
        "os.getcwd()": os.getcwd(),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the root logger": (root.level, list(map(repr, root.handlers))),
        "gc.get_threshold()": gc.get_threshold(),
        "gc.isenabled()": gc.isenabled(),
        "the handlers of signals": {
            str(number): repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())
        },
        "the running threads": [thread.name for thread in threading.enumerate()],
        "Python's random numbers": hash(random.getstate()),
        "PyTorch's random numbers": hash(bytes(torch.get_rng_state().tolist())),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_num_interop_threads()": torch.get_num_interop_threads(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.backends.cudnn": [
            getattr(torch.backends.cudnn, name)
            for name in ("enabled", "benchmark", "deterministic", "allow_tf32")
        ],
        "torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32,
        "torch.set_printoptions(...)": repr(print_options()),
    }
    if numpy is not None:
        state["numpy.geterr()"] = dict(numpy.geterr())
    return state | _functions_of_torch()


def _functions_of_torch() -> dict[str, int]:
    """Returns the identities of PyTorch's own functions and classes, which a pack may replace."""
    import torch

    owners = (
        torch,
        torch.Tensor,
        torch.nn.Module,
        torch.nn.functional,
        torch.library,
        torch.export,
    )
    return {
        f"{owner.__name__}.{name}": id(value)
        for owner in owners
        for name, value in vars(owner).items()
        if name[:2] != "__"
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yields what is not as it was, in words."""
    for name, value in before.items():
        if name not in after:
            yield f"{name} is gone"
        elif after[name] != value:
            kept = isinstance(value, int) and name.startswith("torch.") and not name.endswith(")")
            yield f"{name} was {'replaced' if kept else _change(value, after[name])}"


def _change(before: object, after: object) -> str:
    """Returns how a value changed; of a collection, what is new and what is gone."""
    if isinstance(before, dict) and isinstance(after, dict):
        before, after = list(before.items()), list(after.items())
    if isinstance(before, list) and isinstance(after, list):
        new = [value for value in after if value not in before]
        gone = [value for value in before if value not in after]
        if new or gone:
            parts = (f"without {gone!r}" if gone else "", f"given {new!r}" if new else "")
            return "changed: " + ", ".join(filter(None, parts))
    return f"{before!r} and is {after!r}"
