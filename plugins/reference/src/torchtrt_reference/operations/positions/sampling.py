"""Images at other coordinates: Resize and GridSample."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torchtrt_reference.semantics.operation import (
    FLOATS,
    Call,
    Function,
    Operation,
    complete,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor


def cubic_weights(fraction: Tensor, a: float) -> list[Tensor]:
    """Returns the four weights of cubic convolution at offsets -1, 0, 1 and 2.

    Source: R. Keys, Cubic convolution interpolation for digital image processing, 1981; ``a`` is its parameter.
    """

    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [far(fraction + 1), near(fraction), near(1 - fraction), far(2 - fraction)]


class Resize(Operation):
    """A tensor resized by nearest, linear or cubic interpolation."""

    name = "resize"
    methods = frozen({"add_resize": {}})
    defaults = frozen(
        {
            "shape": None,
            "scales": (),
            "resize_mode": "NEAREST",
            "coordinate_transformation": None,
            "selector_for_single_pixel": "FORMULA",
            "nearest_rounding": "FLOOR",
            "exclude_outside": False,
            "cubic_coeff": -0.75,
        }
    )
    value_inputs = frozenset({1})
    maximum_inputs = 2
    property_types = frozen({"shape": "Dims"})

    def admit(self, call: Call) -> None:
        """No scalar."""
        call.admit_rank(0, range(1, 9), "a scalar cannot be resized")

    def read(self, layer: Any, attribute: str) -> Any:
        """An unset coordinate transformation reads as asymmetric, TensorRT's documented default."""
        value = layer._attributes[attribute]
        return "ASYMMETRIC" if value is None and attribute == "coordinate_transformation" else value

    def _target(self, call: Call) -> tuple[int, ...]:
        """Returns the output sizes of a resize, from its shape tensor, its shape or its scales."""
        shape = call.shape()
        wanted = call.elements(1)
        if wanted is None and call["shape"] is not None:
            wanted = list(call["shape"])
        elif wanted is not None:
            call.require(
                call["shape"] is None and not call["scales"],
                "a resize with a shape tensor takes no static shape or scales",
            )
        if wanted is not None:
            call.require(
                len(wanted) == len(shape),
                f"the resize shape must have {len(shape)} elements, not {len(wanted)}",
            )
            return complete(wanted)
        scales = call["scales"]
        if not scales:
            return shape
        call.require(
            len(scales) == len(shape), f"scales must have {len(shape)} elements, not {len(scales)}"
        )
        # Scales are 32-bit floats: a product that should be an integer may fall short of it by less than that.
        return tuple(
            -1 if size == -1 else math.floor(size * scale + 1e-4)
            for size, scale in zip(shape, scales, strict=True)
        )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """LINEAR resizes at most the last three dimensions, CUBIC the last two."""
        dtype = call.accept(
            0,
            frozenset({"FLOAT", "HALF"}) | ({"BF16"} if call.strong else set()),
            "the input of resize",
        )
        shape, target = call.shape(), self._target(call)
        mode, rank = call["resize_mode"], len(call.shape())
        call.require(
            mode != "CUBIC" or call["coordinate_transformation"] is not None or target == shape,
            "Could not find any implementation: a CUBIC resize needs its coordinate transformation set",
        )
        resizable = {"NEAREST": 8, "LINEAR": 3, "CUBIC": 2}[mode]
        call.require(
            rank >= (2 if mode == "CUBIC" else 1),
            f"resize mode {mode} needs a higher rank than {rank}",
        )
        for axis, (size, wanted) in enumerate(zip(shape, target, strict=True)):
            fixed = axis < rank - resizable
            call.require(
                not fixed or -1 in (size, wanted) or size == wanted,
                f"{mode} resizes the last {resizable} dimensions only, not dimension {axis}",
            )
            call.require(wanted >= -1, f"{wanted} is no size to resize to")
        return (TensorFacts(call.declared(dtype), target),)

    def bind(self, call: Call) -> Function:
        """One dimension at a time: gathers and weights."""
        mode, shape, target = call["resize_mode"], call.shape(), self._target(call)
        steps = []
        for axis, (size, wanted) in enumerate(zip(shape, target, strict=True)):
            if size == wanted and (mode != "CUBIC" or axis < len(shape) - 2):
                continue
            # Seen on TensorRT 8.6: a scale that is given is the ratio, whatever the lengths came out as.
            has_scale = bool(call["scales"]) and call["shape"] is None and call.optional(1) is None
            ratio = 1 / call["scales"][axis] if has_scale else size / max(wanted, 1)
            steps.append((axis, *_taps(call, mode, size, wanted, ratio)))

        def resize(x: Tensor, _: Tensor | None = None) -> Tensor:
            for axis, indices, weights in steps:
                if weights is None:
                    x = x.index_select(axis, indices[0].to(x.device))
                    continue
                view = [1] * x.dim()
                view[axis] = -1
                pieces = [
                    x.index_select(axis, index.to(x.device))
                    * weight.to(x.device, x.dtype).view(view)
                    for index, weight in zip(indices, weights, strict=True)
                ]
                x = torch.stack(pieces).sum(0)
            return x

        return resize


def _coordinates(call: Call, mode: str, size: int, wanted: int, ratio: float) -> Tensor:
    """Returns where the ``wanted`` output places along a dimension lie in an input of ``size`` places, in float64."""
    position = torch.arange(wanted, dtype=torch.float64)
    # Seen on TensorRT 8.6: unless it is set, LINEAR works half-pixel although the documentation says asymmetric.
    unset = "HALF_PIXEL" if mode == "LINEAR" else "ASYMMETRIC"
    transformation = call["coordinate_transformation"] or unset
    if wanted == 1 and call["selector_for_single_pixel"] == "UPPER":
        return torch.zeros(1, dtype=torch.float64)
    if transformation == "ALIGN_CORNERS":
        return (
            position * ((size - 1) / (wanted - 1))
            if wanted > 1
            else torch.zeros(wanted, dtype=torch.float64)
        )
    return (position + 0.5) * ratio - 0.5 if transformation == "HALF_PIXEL" else position * ratio


def _taps(
    call: Call, mode: str, size: int, wanted: int, ratio: float
) -> tuple[list[Tensor], list[Tensor] | None]:
    """For each output position the input positions it reads, and their weights (None for one of weight 1)."""
    x = _coordinates(call, mode, size, wanted, ratio)
    last = max(size - 1, 0)
    if mode == "NEAREST":
        rounding: Callable[[Tensor], Tensor] = {
            "FLOOR": torch.floor,
            "CEIL": torch.ceil,
            "HALF_UP": lambda t: torch.floor(t + 0.5),
            "HALF_DOWN": lambda t: torch.ceil(t - 0.5),
        }[call["nearest_rounding"]]
        return [rounding(x).long().clamp(0, last)], None
    if mode == "LINEAR":
        x = x.clamp(0, last)
        low = torch.floor(x)
        fraction = x - low
        return [low.long(), (low.long() + 1).clamp(max=last)], [1 - fraction, fraction]
    low = torch.floor(x)
    weights = cubic_weights(x - low, float(call["cubic_coeff"]))
    positions = [low.long() + offset for offset in (-1, 0, 1, 2)]
    if call["exclude_outside"]:
        inside = [((p >= 0) & (p <= last)).double() for p in positions]
        weights = [weight * keep for weight, keep in zip(weights, inside, strict=True)]
        total = torch.stack(weights).sum(0)
        weights = [weight / total for weight in weights]
    return [p.clamp(0, last) for p in positions], weights


class GridSample(Operation):
    """An image sampled at the points of a grid."""

    name = "grid_sample"
    methods = frozen({"add_grid_sample": {}})
    defaults = frozen(
        {"interpolation_mode": "LINEAR", "align_corners": False, "sample_mode": "FILL"}
    )

    def admit(self, call: Call) -> None:
        """Input and grid of rank 4, on TensorRT 11 also of rank 5."""
        maximum = call.rules.grid_sample_maximum_rank
        for index in (0, 1):
            call.admit_rank(
                index,
                range(4, maximum + 1),
                f"input and grid of grid sample must have rank 4 to {maximum}",
            )

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """There are no bounds to be strict about, and nothing to wrap around."""
        if attribute == "sample_mode" and value not in _GRID_MODES:
            message = f"grid sample supports {', '.join(_GRID_MODES)}, not {value}"
            raise RefusedError(message)
        layer._attributes[attribute] = value

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Input ``[N, C, H, W]`` and grid ``[N, Ho, Wo, 2]`` of one type; a volume has one dimension more.

        TensorRT 8 also takes integers for the input, beside a floating-point grid.
        """
        self.admit(call)
        images = FLOATS | {"INT32"} if call.rules.integer_images else FLOATS
        dtype = call.accept(0, images, "the input of grid sample")
        call.accept(1, FLOATS, "the grid of grid sample")
        if dtype != "INT32":
            dtype = call.same_type(0, 1)
        shape, grid = call.shape(0), call.shape(1)
        call.require(
            len(shape) == len(grid), "input and grid of grid sample must have the same rank"
        )
        count = len(shape) - 2
        call.require(grid[-1] == count, f"the last dimension of the grid must be {count}")
        call.require(
            count == 2 or call["interpolation_mode"] != "CUBIC", "CUBIC samples images, not volumes"
        )
        call.require(
            -1 in (shape[0], grid[0]) or shape[0] == grid[0],
            "input and grid must have the same batch size",
        )
        return (TensorFacts(dtype, (*shape[:2], *grid[1:-1])),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.grid_sample``."""
        mode = {"NEAREST": "nearest", "LINEAR": "bilinear", "CUBIC": "bicubic"}[
            call["interpolation_mode"]
        ]
        padding, align = _GRID_MODES[call["sample_mode"]], bool(call["align_corners"])

        def sample(x: Tensor, grid: Tensor) -> Tensor:
            if mode == "nearest":
                # NaN rounds to the first pixel; in the other modes it is NaN.
                sizes = torch.tensor(x.shape[:1:-1], dtype=grid.dtype, device=grid.device)
                first = -torch.ones_like(sizes) if align else 1 / sizes - 1
                grid = torch.where(grid.isnan(), first, grid)
            return torch.nn.functional.grid_sample(x, grid, mode, padding, align)

        if call.facts(0).dtype == "INT32":
            # Seen on TensorRT 8.6: what lies between the pixels is truncated.
            return lambda x, grid: sample(x.to(grid.dtype), grid).to(torch.int32)
        return sample


_GRID_MODES = {"CLAMP": "border", "FILL": "zeros", "REFLECT": "reflection"}
OPERATIONS = (Resize(), GridSample())
