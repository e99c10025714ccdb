"""Checkpoints that are quantized already, as models whose weights stay packed.

transformers loads a checkpoint of compressed-tensors with packed weights, and unpacks them to floating point in the
first call. ``packed`` replaces its layers before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_quantization.ops import DEQUANTIZE, FAKE_QUANTIZE, FAKE_QUANTIZE_BLOCKS


class PackedLinear(nn.Module):
    """A linear layer with a quantized weight, and perhaps a quantized input.

    Args:
        form: The weight's format: ``"INT8"``, ``"INT4"``, ``"FP8"`` or ``"FP4"``.
        data: The weight ``(out, in)``, as ``torchtrt_quantization.dequantize_...`` takes it.
        scale: Its scale, likewise.
        double: A number that the scales of FP4 are multiplied by, or ``None``.
        bias: ``(out,)``, or ``None``.
    """

    def __init__(
        self, form: str, data: Tensor, scale: Tensor, double: Tensor | None, bias: Tensor | None
    ) -> None:
        super().__init__()
        self.form = form
        self.register_buffer("data", data)
        self.register_buffer("scale", scale)
        self.register_buffer("outer_scale", double)
        self.register_buffer("bias", bias)
        self.register_buffer("input_scale", None)
        self.input_form = ""

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``(..., out)`` in the dtype of the input ``(..., in)``."""
        scale: Any = self.scale
        if self.outer_scale is not None:
            scale = DEQUANTIZE["FP8"](scale, self.outer_scale, x.dtype)
        weight = DEQUANTIZE[self.form](self.data, scale, x.dtype)
        if self.input_form in FAKE_QUANTIZE:
            x = FAKE_QUANTIZE[self.input_form](x, self.input_scale, -128)
        elif self.input_form:
            x = FAKE_QUANTIZE_BLOCKS[self.input_form](x, self.input_scale)
        bias: Any = self.bias
        return nn.functional.linear(x, weight, bias)


def packed(model: nn.Module) -> nn.Module:
    """Replaces the linear layers that compressed-tensors has quantized by ``PackedLinear``, in place.

    Args:
        model: What ``from_pretrained`` of transformers returned, before its first call.

    Returns:
        The model.

    Raises:
        UnsupportedProgramError: A layer has a scheme that TensorRT has no format for. The message names both.
    """
    for path, module in list(model.named_modules()):
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None or not isinstance(module, nn.Linear):
            continue
        made = _layer(path, module, scheme)
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, made)
    for hooks in (model._forward_pre_hooks, model._forward_hooks):
        for key, hook in list(hooks.items()):
            if "compressed" in getattr(hook, "__module__", ""):
                del hooks[key]
    return model


def _refuse(path: str, what: str) -> UnsupportedProgramError:
    return UnsupportedProgramError(
        f"The layer {path!r} has {what}, which TensorRT has no format for. Take a checkpoint with symmetric weights, "
        "and with inputs that have one scale, blocks of NVFP4, or no quantization."
    )


def _layer(path: str, module: nn.Module, scheme: Any) -> PackedLinear:
    given: dict[str, Any] = {**module._parameters, **module._buffers}
    if given.get("weight_g_idx") is not None:
        raise _refuse(path, "reordered groups")
    zero = given.get("weight_zero_point")
    if zero is not None and bool(zero.any()):
        raise _refuse(path, "zero points other than 0")
    bias = given.get("bias")
    form, data, scale, double = _weight(path, given, scheme.weights)
    layer = PackedLinear(form, data, scale, double, None if bias is None else bias.detach())
    _quantize_input(path, layer, given, scheme.input_activations)
    return layer.eval()


def _weight(
    path: str, given: dict[str, Any], spec: Any
) -> tuple[str, Tensor, Tensor, Tensor | None]:
    """Returns format, data, scale and the scale of scales of a weight of compressed-tensors."""
    kind = (getattr(spec.type, "value", spec.type), spec.num_bits)
    scale = given["weight_scale"].detach()
    if kind == ("float", 4):
        return (
            "FP4",
            given["weight_packed"].detach(),
            scale,
            1 / given["weight_global_scale"].detach(),
        )
    if kind == ("float", 8):
        return "FP8", given["weight"].detach(), _by_row(scale), None
    if kind == ("int", 8) and given.get("weight") is not None:
        return "INT8", given["weight"].detach(), _by_row(scale), None
    if kind[0] == "int" and kind[1] in (4, 8):
        shape = [int(size) for size in given["weight_shape"]]
        values = _unpacked(given["weight_packed"].detach(), kind[1])[:, : shape[1]]
        return f"INT{kind[1]}", values.contiguous(), _by_row(scale), None
    raise _refuse(path, f"weights of {kind[1]} bits ({kind[0]})")


def _by_row(scale: Tensor) -> Tensor:
    return scale.reshape(()) if scale.numel() == 1 else scale


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """Returns the int8 values of int32 words ``(out, in / values in a word)``, which are stored plus half the range."""
    places = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    values = (words.unsqueeze(-1) >> places) & (2**bits - 1)
    unpacked: Tensor = (values - 2 ** (bits - 1)).flatten(1).to(torch.int8)
    return unpacked


def _quantize_input(path: str, layer: PackedLinear, given: dict[str, Any], spec: Any) -> None:
    """Has a layer quantize its input as a scheme says.

    Raises:
        UnsupportedProgramError: The scales depend on the input otherwise than in NVFP4.
    """
    if spec is None:
        return
    kind = (getattr(spec.type, "value", spec.type), spec.num_bits)
    if kind == ("float", 4):
        layer.input_form = "NVFP4"
        layer.input_scale = 1 / given["input_global_scale"].detach().float().reshape(())
        return
    forms = {("int", 8): "INT8", ("float", 8): "FP8"}
    scale = given.get("input_scale")
    if spec.dynamic or kind not in forms or scale is None or scale.numel() != 1:
        raise _refuse(path, "a scale for each token of the input")
    if not spec.symmetric:
        raise _refuse(path, "inputs with zero points")
    layer.input_form = forms[kind]
    layer.input_scale = scale.detach().float().reshape(())
