"""Keeps the length of a sequence symbolic when recurrent layers are exported.

PyTorch finds the sizes of ``aten.lstm.input`` and its kin by running their steps one by one, which
fixes the number of steps in the exported program. Here the sizes are computed without running anything.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtrt_converters_aten_core import pack

aten = torch.ops.aten


def _lstm(input: Tensor, hx: Sequence[Tensor], *rest: Any) -> tuple[Tensor, ...]:
    outputs, _ = _single_state(input, hx[0], *rest)
    return outputs, *(state.new_empty(state.shape) for state in hx)


def _single_state(input: Tensor, hx: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    *_, bidirectional, _batch_first = rest
    width = hx.shape[-1] * (2 if bidirectional else 1)
    return input.new_empty((*input.shape[:2], width)), hx.new_empty(hx.shape)


_SIZES: dict[Any, Any] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _single_state,
    aten.rnn_tanh.input: _single_state,
    aten.rnn_relu.input: _single_state,
}


class _Telling(threading.local):
    """Whether this thread is exporting."""

    active = 0


_telling = _Telling()
_lock = threading.Lock()
_kept: dict[Any, dict[Any, Any]] = {}
_users = 0


@pack.export_context
@contextlib.contextmanager
def symbolic_sequence_lengths() -> Iterator[None]:
    """Lets ``torch.export`` keep recurrent layers whole and their sequences of any length, in a ``with`` block.

    Inside it these ops return sizes and compute no values, in this thread only: only export there.
    """
    _install()
    _telling.active += 1
    try:
        yield
    finally:
        _telling.active -= 1
        _uninstall()


def _install() -> None:
    global _users  # how many blocks are open in all threads
    with _lock:
        _users += 1
        if _users == 1:
            for op, tell in _SIZES.items():
                kept = _kept[op] = dict(op.py_kernels)
                for key, kernel in kept.items():
                    op.py_kernels[key] = functools.partial(_tell_or_compute, tell, kernel)
                op._dispatch_cache.clear()


def _uninstall() -> None:
    global _users
    with _lock:
        _users -= 1
        if _users == 0:
            for op, kernels in _kept.items():
                op.py_kernels.update(kernels)
                op._dispatch_cache.clear()


def _tell_or_compute(tell: Any, compute: Any, *args: Any, **kwargs: Any) -> Any:
    return (tell if _telling.active else compute)(*args, **kwargs)
