"""How models of ModelOpt are exported."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import torch

from torchtrt_converters_quantization import pack
from torchtrt_converters_quantization.dropped_quantizers import without_dropped_quantizers

_exporting: ContextVar[bool] = ContextVar("torchtrt_quantization_exporting", default=False)
_lock = threading.Lock()
_TENSOR_QUANT = "modelopt.torch.quantization.tensor_quant"
_UTILS = "modelopt.torch.quantization.utils"
_QUANTIZER = "modelopt.torch.quantization.nn.modules.tensor_quantizer"
_RECURRENT = "modelopt.torch.quantization.nn.modules.quant_rnn"


@pack.export_context
@contextlib.contextmanager
def modelopt_quantizers() -> Iterator[None]:
    """Exports the quantizers of ModelOpt as its op ``tensorrt::quantize_op``, on a CPU as on a GPU.

    On a CPU, ModelOpt computes integers by a function that reads the values of a tensor, which ``torch.export``
    cannot trace. Where ModelOpt was not imported, no model has its quantizers, and nothing happens.

    Raises:
        UnsupportedProgramError: A layer ran, and some of its enabled quantizers did not.
    """
    module, utils = sys.modules.get(_TENSOR_QUANT), sys.modules.get(_UTILS)
    quantizers = sys.modules.get(_QUANTIZER)
    if module is None or utils is None or quantizers is None:
        yield
        return
    _route(module)
    for name, layers in list(sys.modules.items()):
        if name.startswith("modelopt.") and not name.startswith(_UTILS):
            if hasattr(layers, "replace_function"):
                _restore_after_errors(layers)
            if hasattr(layers, "is_torch_export_mode") and layers is not quantizers:
                _run_as_in_eager(layers)
    if recurrent := sys.modules.get(_RECURRENT):
        _keep_whole(recurrent.QuantRNNBase)
    token = _exporting.set(True)
    try:
        with (
            utils.export_torch_mode(),
            without_dropped_quantizers(quantizers.TensorQuantizer),
        ):
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


def _run_as_in_eager(module: Any) -> None:
    """Lets the layers of one module of ModelOpt run as they do in eager PyTorch while this context exports.

    In ModelOpt's mode for exporting, some layers compute something else. Linear layers quantize a weight wherever it is
    read, also where ``nn.MultiheadAttention`` reads the weight of ``out_proj`` in its own forward. Recurrent layers
    quantize nothing.
    """
    with _lock:
        original = module.is_torch_export_mode
        if getattr(original, "is_routed", False):
            return

        def is_torch_export_mode() -> bool:
            return bool(original()) and not _exporting.get()

        is_torch_export_mode.is_routed = True  # type: ignore[attr-defined]
        module.is_torch_export_mode = is_torch_export_mode


def _keep_whole(layer: Any) -> None:
    """Lets recurrent layers whose inputs are not quantized run as one op, over sequences of any length.

    ModelOpt always runs them step by step, with the same values.
    """
    with _lock:
        original = layer.functionals_to_replace
        if getattr(original.fget, "is_routed", False):
            return

        def functionals_to_replace(self: Any) -> Iterable[Any]:
            inputs = (*self._input_quantizers, *self._proj_input_quantizers)
            if _exporting.get() and all(map(_does_nothing, inputs)):
                return ()
            result: Iterable[Any] = original.fget(self)
            return result

        functionals_to_replace.is_routed = True  # type: ignore[attr-defined]
        layer.functionals_to_replace = property(functionals_to_replace)


def _does_nothing(quantizer: Any) -> bool:
    return (
        not quantizer.is_enabled
        and quantizer.pre_quant_scale is None
        and not getattr(quantizer, "rotate_is_enabled", False)
    )


def _restore_after_errors(module: Any) -> None:
    """Lets the functions of PyTorch that a module of ModelOpt replaces for a call come back after an error as well.

    ``torch.export`` raises inside the call where it cannot trace a layer, and the whole process would go on with
    ``torch.nn.functional.linear`` of that layer.
    """
    with _lock:
        if getattr(module.replace_function, "is_routed", False):
            return
        original = module.replace_function

        @contextlib.contextmanager
        def replace_function(
            package: Any, name: str, function: Any, kept_as: str | None = None
        ) -> Iterator[None]:
            names = (name, kept_as or f"_{name}")
            held = {key: vars(package)[key] for key in names if key in vars(package)}
            try:
                with original(package, name, function, kept_as):
                    yield
            except BaseException:
                for key in names:
                    if key in held:
                        setattr(package, key, held[key])
                    elif key in vars(package):
                        delattr(package, key)
                raise

        replace_function.is_routed = True  # type: ignore[attr-defined]
        module.replace_function = replace_function
