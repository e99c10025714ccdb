"""The layer that replaces those of every library."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_quantization.ops import DEQUANTIZE, FAKE_QUANTIZE, FAKE_QUANTIZE_BLOCKS


@dataclass(frozen=True)
class DynamicInput:
    """An input whose scales the layer computes.

    Attributes:
        form: The format of its values: ``"INT8"`` or ``"FP8"``.
        limit: What the largest magnitude of each scale becomes.
        sharing: Which values share a scale. ``"row"``: those of the last dimension. ``"token"``: those of the
            dimensions after the second, as compressed-tensors has it; of two dimensions, all. ``"tensor"``: all.
        block: How many neighbors of the last dimension share a scale instead, or 0.
        dtype: The dtype that the values are divided in; ``None`` for the input's.
    """

    form: str
    limit: float
    sharing: str
    block: int = 0
    dtype: torch.dtype | None = None

    def __call__(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the rounded values in a dtype, and their scales, which broadcast with them.

        A Quantize layer rounds to the steps of the format, so that TensorRT may multiply them in its type.
        """
        values = x if self.dtype is None else x.to(self.dtype)
        if self.block:
            values = values.unflatten(-1, (-1, self.block))
        first = {"row": x.dim() - 1, "token": 2 if x.dim() > 2 else 0, "tensor": 0}[self.sharing]
        dims = [-1] if self.block else list(range(first, x.dim()))
        largest = values.abs().amax(dims, keepdim=True)
        scale = torch.where(largest == 0, 1.0, largest / self.limit)
        one = torch.ones((), dtype=torch.float32, device=x.device)
        return FAKE_QUANTIZE[self.form](values / scale, one, -128, dtype), scale


class PackedLinear(nn.Linear):
    """A linear layer with a quantized weight, and perhaps a quantized input.

    PEFT puts adapters around it, as around other linear layers. Its ``weight`` is ``None``, so that nothing merges into
    it.

    Args:
        form: The weight's format: ``"INT8"``, ``"INT4"``, ``"FP8"`` or ``"FP4"``.
        data: The weight ``(out, in)``, as ``torchtrt_quantization.dequantize_...`` takes it.
        scale: Its scale, likewise.
        double: A number that the scales of FP4 are multiplied by, or ``None``.
        bias: ``(out,)``, or ``None``.
        offset: What is added to the weights of each group, ``(out, groups)``, or ``None``: zero points. TensorRT's
            formats have none, so that the sums of the inputs of each group are multiplied by them.
        order: The inputs in the order of the weight's columns, ``(in,)``, or ``None`` for their own.
        dynamic: How the input is quantized, or ``None``. See also ``quantize_input``.
    """

    data: Any
    scale: Any
    outer_scale: Any
    bias: Any
    offset: Any
    order: Any
    input_scale: Any

    def __init__(
        self,
        form: str,
        data: Tensor,
        scale: Tensor,
        double: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        offset: Tensor | None = None,
        order: Tensor | None = None,
        dynamic: DynamicInput | None = None,
    ) -> None:
        nn.Module.__init__(self)
        self.register_parameter("weight", None)
        self.form = form
        self.in_features = int(data.shape[1]) * (2 if form == "FP4" else 1)
        self.out_features = int(data.shape[0])
        self.register_buffer("data", data)
        self.register_buffer("scale", scale)
        self.register_buffer("outer_scale", double)
        self.register_buffer("bias", bias)
        self.register_buffer("offset", None if offset is None else offset.to(torch.float32))
        self.register_buffer("order", order)
        self.register_buffer("input_scale", None)
        self.input_form = ""
        self.dynamic = dynamic

    @property
    def qweight(self) -> Tensor:
        """The bytes of the weight: PEFT puts adapters on their device."""
        data: Tensor = self.data
        return data.view(torch.uint8)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLinear:
        """Moves the layer to another device; ``half`` and its like change the type of the bias only."""
        kept = {name: value for name, value in self._buffers.items() if name != "bias"}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, value in kept.items():
            if value is not None:
                self._buffers[name] = value.to(getattr(self, name).device)
        return self

    def quantize_input(self, form: str, scale: Tensor) -> None:
        """Makes the layer quantize its input to ``"INT8"``, ``"FP8"`` or ``"NVFP4"`` with a known scale."""
        self.input_form, self.input_scale = form, scale

    def forward(self, x: Tensor) -> Tensor:
        """Returns ``(..., out)`` in the dtype of the input ``(..., in)``."""
        if self.order is not None:
            x = x.index_select(-1, self.order)
        if self.dynamic is not None:
            return self._dynamic(x, self.dynamic)
        if self.input_form in FAKE_QUANTIZE:
            x = FAKE_QUANTIZE[self.input_form](x, self.input_scale, -128)
        elif self.input_form:
            x = FAKE_QUANTIZE_BLOCKS[self.input_form](x, self.input_scale)
        return self._product(x, x.dtype, self.bias)

    def _product(self, x: Tensor, dtype: torch.dtype, bias: Any) -> Tensor:
        """Multiplies ``x`` of ``(..., in)`` by the dequantized weight, and adds the bias.

        Where the zero points are kept apart as ``offset``, the sums of each group of ``x`` are multiplied by them in
        float32.
        """
        scale = self.scale
        if self.outer_scale is not None:
            scale = DEQUANTIZE["FP8"](scale, self.outer_scale, dtype)
        weight = DEQUANTIZE[self.form](self.data, scale, dtype)
        if self.offset is None:
            return nn.functional.linear(x, weight, bias)
        sums = x.to(torch.float32).unflatten(-1, (self.offset.shape[-1], -1)).sum(-1)
        result = nn.functional.linear(x, weight).to(torch.float32)
        result = result + nn.functional.linear(
            sums, self.offset, None if bias is None else bias.float()
        )
        return result.to(x.dtype)

    def _dynamic(self, x: Tensor, dynamic: DynamicInput) -> Tensor:
        """Multiplies what was rounded, and scales the result where each token has one scale.

        The type is float32 instead of float16, which the products of unscaled values might exceed.
        """
        is_by_row = self.scale.numel() == 1 or self.scale.shape[-1] == 1
        if dynamic.block or not is_by_row or self.offset is not None:
            steps, scale = dynamic(x, dynamic.dtype or x.dtype)
            values = steps * scale
            if dynamic.block:
                values = values.flatten(-2)
            return self._product(values.to(x.dtype), x.dtype, self.bias)
        dtype = torch.float32 if x.dtype is torch.float16 else x.dtype
        steps, scale = dynamic(x, dtype)
        result = self._product(steps, dtype, None) * scale
        if self.bias is not None:
            result = result + self.bias
        return result.to(x.dtype)


def refusal(path: str, what: str) -> UnsupportedProgramError:
    """Returns the error for a layer that has no equal in TensorRT."""
    return UnsupportedProgramError(
        f"The layer {path!r} has {what}, which the pack `quantization` has no layers of TensorRT for. Take a "
        "checkpoint without them, or load this one dequantized."
    )


def unpacked(words: Tensor, bits: int, count: int) -> Tensor:
    """Returns the unsigned int32 values ``(rows, count)`` of a stream of bits, the lowest first, in int32 words."""
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
        values: Tensor = ((words.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(1)[:, :count]
        return values
    shifts = torch.arange(32, dtype=torch.int32, device=words.device)
    stream = ((words.unsqueeze(-1) >> shifts) & 1).flatten(1)[:, : count * bits]
    parts: Tensor = stream.unflatten(1, (count, bits)) << shifts[:bits]
    return parts.sum(-1, dtype=torch.int32)


def integer_form(bits: int) -> str:
    """Returns the smallest format that holds signed integers of some bits."""
    return "INT4" if bits <= 4 else "INT8"


def block_scales(scale: Tensor, block: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    """Returns the scales of two-dimensional blocks as scales of parts of rows, ``(out, in / part)``.

    Args:
        scale: ``(ceil(out / rows), ceil(in / columns))``.
        block: The rows and columns of a block; the last ones may be smaller.
        shape: ``(out, in)``.
    """
    count = tuple(-(-size // part) for size, part in zip(shape, block, strict=True))
    if tuple(scale.shape) != count:
        message = f"{tuple(scale.shape)} scales for {count} blocks"
        raise ValueError(message)
    rows = scale.repeat_interleave(block[0], 0)[: shape[0]]
    part = shape[1] if block[1] >= shape[1] else math.gcd(block[1], shape[1])
    return rows.repeat_interleave(max(1, block[1] // part), 1)[:, : shape[1] // part].contiguous()
