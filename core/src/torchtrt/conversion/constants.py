"""Values that are not yet network tensors: Python numbers, NumPy arrays and PyTorch tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from torchtrt.conversion.context import ConversionContext
from torchtrt.errors import ConversionError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.shims import add_cast, weights_of

Constant = bool | int | float | np.ndarray | torch.Tensor | list | tuple  # type: ignore[type-arg]


def is_network_tensor(value: Any) -> bool:
    """Returns whether ``value`` is a tensor of the network under construction."""
    return isinstance(value, trt.ITensor)


def as_torch_tensor(value: Constant, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Returns a constant as a PyTorch tensor; a Python ``float`` becomes float32 and an ``int`` becomes int32."""
    if isinstance(value, torch.Tensor):
        tensor = value
    elif isinstance(value, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(value))
    else:
        tensor = torch.tensor(value)
        if dtype is None:
            narrow = {torch.float64: torch.float32, torch.int64: torch.int32}
            tensor = tensor.to(narrow.get(tensor.dtype, tensor.dtype))
    return tensor if dtype is None else tensor.to(dtype)


def get_trt_tensor(
    ctx: ConversionContext, value: Any, name: str, dtype: torch.dtype | None = None
) -> Any:
    """Returns a network tensor for ``value``.

    Args:
        ctx: The conversion context.
        value: A network tensor (returned as it is, or cast to ``dtype``), a Python number or nested
            list of them, a NumPy array or a PyTorch tensor (a constant layer is made; a number's is
            shared by the whole network).
        name: The name of the constant layer.
        dtype: The dtype to have. Without it a constant keeps its own, and a Python number becomes
            int32 or float32.

    Raises:
        ConversionError: ``value`` is none of these.
    """
    if is_network_tensor(value):
        if dtype is None or ctx.dtype_of(value) is network_type(dtype):
            return value
        return add_cast(ctx.net, value, dtype, f"{name}/{dtype_name(dtype)}")
    if not isinstance(value, (bool, int, float, np.ndarray, torch.Tensor, list, tuple)):
        message = f"{name}: a {type(value).__name__} cannot become a TensorRT constant."
        raise ConversionError(message)
    tensor = as_torch_tensor(value, dtype)
    if tensor.numel() > 1 or isinstance(value, (np.ndarray, torch.Tensor)):
        return _add_constant(ctx, tensor, name)
    key = (tensor.dtype, tuple(tensor.shape), repr(tensor.tolist()))  # repr tells -0.0 from 0.0
    if key not in ctx._constants:
        ctx._constants[key] = _add_constant(ctx, tensor, name)
    return ctx._constants[key]


def network_type(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype that ``dtype`` has inside the network, whatever the settings say of float64."""
    from torchtrt.tensorrt.dtypes import network_dtype

    return network_dtype(dtype, truncate_double=True)


def dtype_name(dtype: torch.dtype) -> str:
    """Returns ``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def get_weights(ctx: ConversionContext, tensor: torch.Tensor) -> Any:
    """Returns ``trt.Weights`` over a tensor's values, for layers that take weights rather than tensors.

    Call :func:`name_weights` with the same tensor after the layer has been added.
    """
    weights, owner = weights_of(tensor)
    ctx.cpu_weights_reference_holder.append(owner)
    return weights


def name_weights(ctx: ConversionContext, weights: Any, tensor: torch.Tensor) -> None:
    """Gives weights that a layer now uses the model's name for them, which is what refitting asks for."""
    name = ctx.weight_names.get(id(tensor))
    if (
        name is not None
        and name not in ctx.weight_refit_map
        and ctx.net.set_weights_name(weights, name)
    ):
        ctx.record_weight(name, tensor)


def _add_constant(ctx: ConversionContext, tensor: torch.Tensor, name: str) -> Any:
    if tensor.dtype is torch.bool:
        # Boolean weights are undocumented on some versions: an integer constant and a cast are safe
        # on all.
        integers = _add_constant(ctx, tensor.to(torch.int32), name)
        return add_cast(ctx.net, integers, torch.bool, name + "/bool")
    weights = get_weights(ctx, tensor)
    layer = ctx.net.add_constant(tuple(tensor.shape), weights)
    layer.name = name
    name_weights(ctx, weights, tensor)
    return layer.get_output(0)
