"""Quantizers of ModelOpt that a model has and its exported program lacks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from torchtrt.callers import warn_caller
from torchtrt.errors import UnsupportedProgramError


@contextlib.contextmanager
def without_dropped_quantizers(quantizer_class: Any) -> Iterator[None]:
    """Checks that the quantizers of each module that runs in a ``with`` block run as well.

    A layer may compute something else while it is exported, and then the program would have other values than the
    model.

    Args:
        quantizer_class: ModelOpt's ``TensorQuantizer``.

    Raises:
        UnsupportedProgramError: Some quantizers did not run although they are enabled, or one dequantizes a weight
            that ModelOpt has compressed.
    """
    ran: dict[int, nn.Module] = {}
    thread = threading.get_ident()

    def note(module: nn.Module, _: Any) -> None:
        if threading.get_ident() != thread:
            return
        if any(map(_dequantizes, dict(_quantizers_of(module, quantizer_class)).values())):
            raise UnsupportedProgramError(
                "ModelOpt has compressed the weights of the model (mtq.compress), and torch.export cannot read them. "
                "Compile the model without this step: its plan has packed weights."
            )
        ran.setdefault(id(module), module)

    handle = register_module_forward_pre_hook(note)
    try:
        yield
    finally:
        handle.remove()
    dropped = [
        (layer, name, quantizer)
        for layer in ran.values()
        if not isinstance(layer, quantizer_class)
        for name, quantizer in _quantizers_of(layer, quantizer_class)
        if id(quantizer) not in ran and _is_used(layer, quantizer)
    ]
    if dropped:
        model = next(iter(ran.values()))
        layer, first, _ = dropped[0]
        path = next((path for path, module in model.named_modules() if module is layer), "")
        names = f"{path}.{first}".removeprefix(".")
        if len(dropped) > 1:
            names += f" and {len(dropped) - 1} more"
        raise UnsupportedProgramError(
            f"ModelOpt's enabled quantizers {names} do not run while torch.export traces their layer, a "
            f"{type(layer).__name__}: the engine would compute without them. Disable them "
            f'(mtq.disable_quantizer(model, "*{first}")), or quantize the model without this layer.'
        )
    if any(_has_fast_path(layer, quantizer_class) for layer in ran.values()):
        warn_caller(
            "Where no gradients are needed, PyTorch computes nn.TransformerEncoderLayer without the quantizers of its "
            "layers, and the engine computes with them. torch.backends.mha.set_fastpath_enabled(False) lets PyTorch "
            "use them as well, also while ModelOpt calibrates."
        )


def _quantizers_of(layer: nn.Module, quantizer_class: Any) -> Iterator[tuple[str, Any]]:
    """Returns the quantizers of a layer itself, also those in its lists, with their names in the layer."""
    for name, child in layer.named_children():
        if isinstance(child, quantizer_class):
            yield name, child
        elif isinstance(child, (nn.ModuleList, nn.Sequential)):
            for own, quantizer in child.named_children():
                if isinstance(quantizer, quantizer_class):
                    yield f"{name}.{own}", quantizer


def _is_used(layer: nn.Module, quantizer: Any) -> bool:
    """Returns whether a quantizer quantizes what its layer gives it in eager PyTorch."""
    is_active = quantizer.is_enabled and quantizer._if_quant
    blocks = quantizer.block_sizes or {}
    is_dynamic = quantizer._dynamic or blocks.get("type") == "dynamic"
    return (
        bool(is_active)
        and (quantizer.amax is not None or is_dynamic)
        and not _is_surplus(layer, quantizer)
    )


def _dequantizes(quantizer: Any) -> bool:
    return bool(getattr(quantizer, "_dequantize", False) and not quantizer.fake_quant)


def _has_fast_path(layer: nn.Module, quantizer_class: Any) -> bool:
    """Returns whether PyTorch computes a layer by a function that reads the weights of its quantized layers."""
    if not isinstance(layer, nn.TransformerEncoderLayer) or layer.training:
        return False
    is_fast = layer.activation_relu_or_gelu and layer.self_attn.batch_first
    return bool(is_fast and torch.backends.mha.get_fastpath_enabled()) and any(
        quantizer.is_enabled
        for part in (layer.linear1, layer.linear2)
        for _, quantizer in _quantizers_of(part, quantizer_class)
    )


def _is_surplus(layer: Any, quantizer: Any) -> bool:
    """Returns whether a bidirectional recurrent layer has a quantizer for an inner layer that it lacks."""
    count = getattr(layer, "num_layers", 0) * (2 if getattr(layer, "bidirectional", False) else 1)
    names = ("_input_quantizers", "_proj_input_quantizers")
    surplus = (candidate for name in names for candidate in getattr(layer, name, ())[count:])
    return any(candidate is quantizer for candidate in surplus)
