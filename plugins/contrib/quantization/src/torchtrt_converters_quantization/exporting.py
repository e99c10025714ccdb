"""How models of ModelOpt are exported."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import torch

from torchtrt_converters_quantization import pack

_exporting: ContextVar[bool] = ContextVar("torchtrt_quantization_exporting", default=False)
_lock = threading.Lock()
_TENSOR_QUANT = "modelopt.torch.quantization.tensor_quant"
_UTILS = "modelopt.torch.quantization.utils"
_LAYERS = tuple(
    f"modelopt.torch.quantization.nn.modules.{name}" for name in ("quant_module", "quant_embedding")
)


@pack.export_context
@contextlib.contextmanager
def modelopt_quantizers() -> Iterator[None]:
    """Exports the quantizers of ModelOpt as its op ``tensorrt::quantize_op``, on a CPU as on a GPU.

    On a CPU, ModelOpt computes integers by a function that reads the values of a tensor, which ``torch.export``
    cannot trace. Where ModelOpt was not imported, no model has its quantizers, and nothing happens.
    """
    module, utils = sys.modules.get(_TENSOR_QUANT), sys.modules.get(_UTILS)
    if module is None or utils is None:
        yield
        return
    _route(module)
    for name in _LAYERS:
        if layers := sys.modules.get(name):
            _quantize_where_eager_does(layers)
    token = _exporting.set(True)
    try:
        with utils.export_torch_mode():
            yield
    finally:
        _exporting.reset(token)


def _route(module: Any) -> None:
    """Lets ModelOpt's function for the CPU call its op while this context exports; it stays itself otherwise."""
    with _lock:
        original = module._tensor_quant
        if getattr(original, "is_routed", False):
            return

        def tensor_quant(
            inputs: torch.Tensor,
            amax: torch.Tensor,
            num_bits: int = 8,
            unsigned: bool = False,
            narrow_range: bool = True,
        ) -> torch.Tensor:
            if not _exporting.get():
                result: torch.Tensor = original(inputs, amax, num_bits, unsigned, narrow_range)
                return result
            made: torch.Tensor = torch.ops.tensorrt.quantize_op(
                inputs, amax, num_bits, 0, unsigned, narrow_range
            )
            return made

        tensor_quant.is_routed = True  # type: ignore[attr-defined]
        module._tensor_quant = tensor_quant


def _quantize_where_eager_does(module: Any) -> None:
    """Lets layers of ModelOpt quantize their weights while they run, and not for others that read them.

    In its mode for exporting, ModelOpt quantizes a weight wherever it is read. ``nn.MultiheadAttention`` reads the
    weight of ``out_proj`` in its own forward, and the program would have another weight than the model.
    """
    with _lock:
        original = module.is_torch_export_mode
        if getattr(original, "is_routed", False):
            return

        def is_torch_export_mode() -> bool:
            return bool(original()) and not _exporting.get()

        is_torch_export_mode.is_routed = True  # type: ignore[attr-defined]
        module.is_torch_export_mode = is_torch_export_mode
