"""Images in other sizes, and at other places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from torchtrt.conversion import (
    ConversionContext,
    NetworkTensor,
    Size,
    SymbolicSize,
    add_layer,
    arguments_of,
    value_of,
)
from torchtrt.errors import ConversionError
from torchtrt.tensorrt import trt
from torchtrt_blocks import creation, indexing, shape, sizes, types
from torchtrt_blocks.formulas import Formula
from torchtrt_converters_aten_core import pack
from torchtrt_converters_aten_core.resampling import (
    CUBIC_COEFFICIENT,
    EXACT,
    KINDS,
    LINEAR,
    Kind,
    rounds_otherwise,
    taps_of,
    unlike_formula,
)
from torchtrt_converters_aten_core.weighted_sums import Taps, sum_of_taps, taps_in

aten = torch.ops.aten


def _resize(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    extents: Sequence[Size],
    kind: Kind,
    coordinates: str,
) -> NetworkTensor:
    """Returns ``tensor`` with its last dimensions resampled to other sizes.

    Args:
        ctx: The conversion context.
        tensor: A float32 or float16 network tensor of shape ``(batch, channels, *spatial)``.
        extents: The new sizes of the spatial dimensions: numbers or 0-d int32 tensors.
        kind: How they are resampled.
        coordinates: The name of a ``trt.ResizeCoordinateTransformation``, where corners may be aligned.
    """
    if len(extents) == 1 and kind.mode == "CUBIC":
        wide = shape.unsqueeze(ctx, tensor, [2])
        result = _resize(ctx, wide, [1, *extents], kind, coordinates)
        return shape.squeeze(ctx, result, [2])
    kept = sizes.sizes_of(ctx, tensor)[: len(tensor.shape) - len(extents)]
    target = [*kept, *extents]
    layer = add_layer(ctx, "resize", tensor)
    if sizes.is_static(target):
        layer.shape = tuple(target)
    else:
        layer.set_input(1, sizes.to_tensor(ctx, target))
    layer.resize_mode = getattr(trt.InterpolationMode, kind.mode)
    layer.coordinate_transformation = getattr(trt.ResizeCoordinateTransformation, coordinates)
    layer.nearest_rounding = getattr(trt.ResizeRoundMode, kind.rounding)
    if kind.mode == "CUBIC":
        layer.cubic_coeff = CUBIC_COEFFICIENT
    return layer.get_output(0)


SMOOTHED = tuple(
    getattr(getattr(aten, packet), overload)
    for packet in (
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
        "_upsample_lanczos2d_aa",
    )
    if hasattr(aten, packet)
    for overload in ("default", "vec")
)
"""Ops that average over what a smaller image leaves out."""


def _scales(op: Any, count: int) -> list[Any]:
    if hasattr(op, "scale_factors"):
        return list(op.scale_factors) if op.scale_factors is not None else [None] * count
    labels = ("scales",) if count == 1 else ("scales_d", "scales_h", "scales_w")[-count:]
    return [getattr(op, label) for label in labels]


RESAMPLED = (torch.float32, torch.float16, torch.float64)
_LONGEST = 1 << 14
"""The maximum size that a table of scaled sizes holds."""


def _is_in_table(size: int | torch.SymInt) -> bool:
    most = sizes.maximum(size)
    return most is not None and most <= _LONGEST


def _is_scaled(size: int, scale: float, result: int | torch.SymInt) -> bool:
    """Returns whether a size of the result is certainly the scaled one."""
    return sizes.minimum(result) == sizes.maximum(result) == size * scale


def _unlike_layer(node: Node) -> str | None:
    """Returns what TensorRT's layer does not do, or ``None``."""
    op = arguments_of(node)
    tensor = value_of(_image(op))
    if tensor.dtype not in RESAMPLED:
        return "TensorRT resamples float32 and float16 only"
    count = tensor.dim() - 2
    results = node.meta["val"].shape[2:]
    for size, result, scale in zip(tensor.shape[2:], results, _scales(op, count), strict=True):
        if scale is None or (isinstance(size, int) and getattr(op, "align_corners", False)):
            continue
        if not isinstance(scale, (int, float)):
            return "the scale factors must be fixed"
        if getattr(op, "align_corners", False):
            if not float(scale).is_integer() and not _is_in_table(size):
                return f"a size that a fraction scales must be known to be at most {_LONGEST}"
            continue
        # TensorRT takes the ratio of the sizes; a scale that gives a whole size for every input is that ratio.
        exact = (
            float(scale).is_integer()
            if not isinstance(size, int)
            else _is_scaled(size, scale, result)
        )
        if op.output_size is not None and not isinstance(size, int):
            exact = exact and sizes.same(size * int(scale), result)
        if not exact:
            return "PyTorch samples by the scale factor, TensorRT by the ratio of the sizes, and here they differ"
    if KINDS[node.target].mode == "NEAREST" and any(
        rounds_otherwise(KINDS[node.target], *row)
        for row in zip(tensor.shape[2:], results, _scales(op, count), strict=True)
    ):
        return "PyTorch rounds positions in float32 to other elements than those of the ratio of the sizes"
    return None


def _varying(node: Node) -> str | None:
    """Returns why there is no table of weights for each element of the result, or ``None``."""
    op = arguments_of(node)
    tensor = value_of(_image(op))
    if not tensor.dtype.is_floating_point:
        return "TensorRT resamples floating-point numbers only"
    sizes_ = (*tensor.shape[2:], *node.meta["val"].shape[2:])
    if not all(isinstance(size, int) for size in sizes_):
        return "weights for each element of the result are known only for fixed sizes"
    return None


def _has_taps(node: Node) -> bool:
    """Returns whether an op resamples by factors that give the same elements for all sizes of their ranges."""
    op = arguments_of(node)
    tensor, results = value_of(_image(op)), node.meta["val"].shape[2:]
    scales = _scales(op, len(results))
    if tensor.dtype not in RESAMPLED or op.output_size is not None:
        return False
    return not getattr(op, "align_corners", False) and all(
        (isinstance(size, int) and isinstance(result, int))
        or (
            isinstance(scale, (int, float))
            and _is_in_table(size)
            and _is_in_table(result)
            and unlike_formula(KINDS[node.target], len(results), size, scale) is None
        )
        for size, result, scale in zip(tensor.shape[2:], results, scales, strict=True)
    )


def _is_nearest_by_sizes(node: Node) -> bool:
    """Returns whether an op takes the nearest elements by the ratio of the sizes, which the network can compute."""
    op = arguments_of(node)
    tensor, count = value_of(_image(op)), len(node.meta["val"].shape) - 2
    return (
        KINDS[node.target].mode == "NEAREST"
        and tensor.dtype.is_floating_point
        and _scales(op, count) == [None] * count
    )


def _has_no_resize_layer(node: Node) -> str | None:
    reason = _unlike_layer(node)
    if _has_taps(node) or _is_nearest_by_sizes(node):
        return None
    return reason and _varying(node) and reason


def _image(op: Any) -> Any:
    return op.input if hasattr(op, "input") else op.self


@pack.converter(table={"kind": KINDS}, reject_if=_has_no_resize_layer)
def resize(
    ctx: ConversionContext,
    self: NetworkTensor | None = None,
    input: NetworkTensor | None = None,
    output_size: Sequence[Size] | None = None,
    align_corners: bool = False,
    *,
    kind: Kind,
    **_: Any,
) -> NetworkTensor:
    """Converts resampling by the nearest element, or linear or cubic interpolation."""
    tensor = input if self is None else self
    assert tensor is not None  # one of the two names is the op's
    node = types.node_of(ctx)
    if _unlike_layer(node) is not None:
        return _by_taps(ctx, tensor, kind, output_size)
    result = types.output_value(ctx).shape[2:]
    scales = _scales(arguments_of(node), len(result))
    extents: list[Size] = []
    for index, (size, scale) in enumerate(zip(result, scales, strict=True)):
        if isinstance(size, int):
            extents.append(size)
        elif output_size is not None:
            extents.append(output_size[index])
        else:
            extents.append(_scaled(ctx, sizes.size_of(ctx, tensor, index + 2), scale))
    coordinates = "ALIGN_CORNERS" if align_corners else kind.coordinates
    return _resize(ctx, tensor, extents, kind, coordinates)


def _by_taps(
    ctx: ConversionContext,
    tensor: NetworkTensor,
    kind: Kind,
    output_size: Sequence[Size] | None,
) -> NetworkTensor:
    """Returns a tensor resampled along one dimension after the other: by PyTorch's weights, or by its positions."""
    node = types.node_of(ctx)
    extents = types.output_value(ctx).shape[2:]
    scales = _scales(arguments_of(node), len(extents))
    # Before anything is taken, while their symbols are known.
    lengths = sizes.sizes_of(ctx, tensor)[2:]
    for axis, (length, extent, scale) in enumerate(zip(lengths, extents, scales, strict=True)):
        if isinstance(length, int) and isinstance(extent, int):
            tensor = sum_of_taps(ctx, tensor, _taps(node, axis), axis + 2)
            continue
        if kind is LINEAR and scale == 1:  # PyTorch reads no neighbors of what keeps its size
            continue
        if scale is None:
            assert output_size is not None
            positions = _nearest(ctx, length, output_size[axis], extent, kind)
            tensor = indexing.gather(ctx, tensor, positions, axis + 2)
            continue
        most = sizes.maximum(extent)
        assert most is not None  # _has_taps
        varying = length, _scaled(ctx, length, scale)
        tensor = sum_of_taps(ctx, tensor, taps_of(kind, scale, most), axis + 2, varying)
    return tensor


def _nearest(
    ctx: ConversionContext, length: Size, extent: Size, count: SymbolicSize, kind: Kind
) -> NetworkTensor:
    """Returns what ``resampling.nearest`` returns, of dynamic sizes."""
    numbers = creation.arange(ctx, 0, extent, 1, count, torch.int32)
    index = Formula(ctx, numbers, torch.float32)
    if kind is EXACT:
        index = index + 0.5
    step = Formula(ctx, ctx.tensor(length), torch.float32) / ctx.tensor(extent)
    last = sizes.combine(ctx, "SUB", length, 1)
    return (index * step).cast(torch.int32).minimum(last).tensor


def _scaled(ctx: ConversionContext, size: Size, scale: float) -> Size:
    """Returns ``floor(size * scale)`` as float64 has it, from integers or from a table.

    TensorRT 8.6 computes no shapes from a table, so that a fraction of integers with the same results is better.
    """
    if float(scale).is_integer():
        return sizes.combine(ctx, "PROD", size, int(scale))
    symbol = sizes.symbol_of(ctx, size)
    most = None if symbol is None else sizes.maximum(symbol)
    if most is None:
        raise ConversionError("The size that a fraction scales has no maximum.")
    table = torch.tensor([int(number * scale) for number in range(most + 1)], dtype=torch.int32)
    fraction = _fraction_of(scale, table.long())
    if fraction is not None:
        factor, divisor = fraction
        scaled = sizes.combine(ctx, "PROD", size, factor)
        return sizes.combine(ctx, "FLOOR_DIV", scaled, divisor)
    return indexing.gather(ctx, ctx.tensor(table), ctx.tensor(size), 0)


def _fraction_of(scale: float, table: torch.Tensor) -> tuple[int, int] | None:
    """Returns integers by which sizes are multiplied and divided to give the sizes of a table, within int32."""
    lengths = torch.arange(len(table))
    for bits in range(31):
        below = int(scale * 2**bits)
        # Products that are integers are rounded down, or up to them.
        for factor in (below, below + 1):
            if factor * len(table) < 2**31 and torch.equal(lengths * factor // 2**bits, table):
                return factor, 2**bits
    return None


@pack.converter(*SMOOTHED, reject_if=_varying)
def resize_smoothly(
    ctx: ConversionContext,
    self: NetworkTensor | None = None,
    input: NetworkTensor | None = None,
    **_: Any,
) -> NetworkTensor:
    """Converts resampling along one dimension after the other, by the weights that PyTorch itself uses."""
    tensor = input if self is None else self
    assert tensor is not None  # one of the two names is the op's
    for axis in range(len(tensor.shape) - 2):
        tensor = sum_of_taps(ctx, tensor, _taps(types.node_of(ctx), axis), axis + 2)
    return tensor


def _taps(node: Node, axis: int) -> Taps:
    """Returns the elements along one spatial dimension that an op reads for each new one, and their weights.

    The op runs where the model runs, because PyTorch's functions for the CPU and CUDA differ. It makes the weights of
    the identity, and of NaN in its place the elements that it reads, those without weight among them. Some of its
    functions copy what they are given only if no size changes. With antialiasing, PyTorch 2.13 repeats the first row of
    images whose width stays 1. The sizes beside therefore change, or stay 1 or more, as those of the model.
    """
    op = arguments_of(node)
    image, count = value_of(_image(op)), len(node.meta["val"].shape) - 2
    probed, wanted, factors = [], [], [None] * count
    for length, extent in zip(image.shape[2:], node.meta["val"].shape[2:], strict=True):
        stays = sizes.same(length, extent)
        probed.append(2 if stays and not sizes.same(length, 1) else 1)
        wanted.append(probed[-1] if stays else 2)
    probed[axis], wanted[axis] = image.shape[axis + 2], node.meta["val"].shape[axis + 2]
    factors[axis] = _scales(op, count)[axis]
    is_there = image.device.type == "cuda" and torch.cuda.is_available()
    identity = torch.eye(probed[axis], device=image.device if is_there else "cpu")
    along = [1] * count
    along[axis] = -1
    packet = getattr(aten, node.target._schema.name.removeprefix("aten::"))  # type: ignore[union-attr]
    aligned = [op.align_corners] if hasattr(op, "align_corners") else []

    def resampled(rows: torch.Tensor) -> torch.Tensor:
        images = rows.reshape(len(rows), 1, *along).expand(-1, 1, *probed).contiguous()
        result: torch.Tensor = packet.default(images, wanted, *aligned, *factors)
        return result.movedim(axis + 2, 1).flatten(2)[..., 0].cpu()

    windows = resampled(torch.where(identity == 1, torch.nan, 0.0)).isnan()
    return taps_in(windows, resampled(identity))


_INTERPOLATION = ("LINEAR", "NEAREST", "CUBIC")
_OUTSIDE = ("FILL", "CLAMP", "REFLECT")


def _unsupported_grid(node: Node) -> str | None:
    op = arguments_of(node)
    tensor, grid = value_of(op.input), value_of(op.grid)
    if tensor.dim() != 4 or tensor.dtype not in (torch.float32, torch.float16):
        return "TensorRT samples float32 and float16 images of two dimensions"
    if tensor.dtype is not grid.dtype:
        return "TensorRT samples by a grid of the image's dtype"
    return None


@pack.converter(
    aten.grid_sampler_2d.default, aten.grid_sampler.default, reject_if=_unsupported_grid
)
def grid_sample(
    ctx: ConversionContext,
    input: NetworkTensor,
    grid: NetworkTensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> NetworkTensor:
    """Converts samples of an image at the places that a grid contains."""
    layer = add_layer(ctx, "grid_sample", input, grid)
    layer.interpolation_mode = getattr(trt.InterpolationMode, _INTERPOLATION[interpolation_mode])
    layer.sample_mode = getattr(trt.SampleMode, _OUTSIDE[padding_mode])
    layer.align_corners = align_corners
    return layer.get_output(0)
