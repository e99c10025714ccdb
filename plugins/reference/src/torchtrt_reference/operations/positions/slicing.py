"""Slice: a regular grid of elements, and what lies beyond the edge."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt_reference.semantics.operation import (
    FLOATS,
    INTEGERS,
    Call,
    Function,
    Operation,
    complete,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts

_Dimensions = list[int | None]
_ATTRIBUTES = {1: "start", 2: "shape", 3: "stride"}


class Slice(Operation):
    """Element ``y`` of the result is element ``start + y * stride`` of the input; ``shape`` is the result's size."""

    name = "slice"
    methods = frozen({"add_slice": {}})
    defaults = frozen(
        {"start": (), "shape": (), "stride": (), "mode": "STRICT_BOUNDS", "axes": None}
    )
    value_inputs = frozenset({1, 2, 3, 5})
    steering = frozenset({4})
    maximum_inputs = 6
    property_types = frozen(dict.fromkeys(("start", "shape", "stride", "axes"), "Dims"))
    partial = "move"

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """Static dimensions take the place of a tensor."""
        layer._attributes[attribute] = value
        for index, name in {**_ATTRIBUTES, 5: "axes"}.items():
            if name == attribute:
                layer._drop_input(index)

    def _grid(self, call: Call) -> tuple[_Dimensions, _Dimensions, _Dimensions]:
        """Start, size and stride for every dimension of the input."""
        rank = call.facts(0).rank
        axes = self._axes(call)
        count = rank if axes is None else len(axes)
        grid = []
        for index, name in _ATTRIBUTES.items():
            values = call.elements(index)
            if values is None:
                values = list(call[name])
            call.require(
                len(values) == count, f"{name} must have {count} elements, not {len(values)}"
            )
            grid.append(values)
        if axes is not None:
            whole: list[_Dimensions] = [
                [0] * rank,
                [None if dimension == -1 else dimension for dimension in call.shape()],
                [1] * rank,
            ]
            for target, values in zip(whole, grid, strict=True):
                for axis, value in zip(axes, values, strict=True):
                    target[axis] = value
            grid = whole
        for size in grid[1]:
            call.require(size is None or size >= 0, f"a slice cannot have the size {size}")
        return grid[0], grid[1], grid[2]

    @staticmethod
    def _axes(call: Call) -> list[int] | None:
        """Returns the dimensions that a slice takes, none negative, or ``None`` where it takes all of them."""
        rank = call.facts(0).rank
        values = call.elements(5)
        if values is None:
            values = None if call["axes"] is None else list(call["axes"])
        if values is None:
            return None
        call.require(None not in values, "axes must be a build-time constant")
        axes = [int(axis or 0) for axis in values]
        for axis in axes:
            call.require(-rank <= axis < rank, f"axis {axis} is not in [{-rank}, {rank - 1}]")
        positive = [axis % rank for axis in axes]
        call.require(len(set(positive)) == len(positive), f"axes {axes} name a dimension twice")
        return positive

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """STRICT_BOUNDS allows no element outside; FILL alone takes a fill value."""
        mode = call["mode"]
        types = FLOATS | INTEGERS | {"BOOL", "INT8", "FP8", "INT4"}
        if mode in ("CLAMP", "FILL", "REFLECT"):
            types -= {"INT64", "BF16"} if call.rules.boolean_slice_modes else {"BOOL"}
        dtype = call.accept(0, types, f"the input of a slice in {mode} mode")
        start, size, stride = self._grid(call)
        fill = call.optional(4)
        if fill is not None:
            call.require(mode == "FILL", "input 4 is the fill value, for FILL mode only")
            call.require(
                fill.shape in ((), (1,)),
                "the fill value must be a scalar, or one element of rank 1",
            )
            call.same_type(0, 4, what="the input and the fill value")
        is_static = all(call.optional(index) is None for index in _ATTRIBUTES)
        self._check_bounds(call, start, size, stride, is_static)
        return (TensorFacts(call.declared(dtype), complete(size)),)

    @staticmethod
    def _check_bounds(
        call: Call, start: _Dimensions, size: _Dimensions, stride: _Dimensions, is_static: bool
    ) -> None:
        """Requires that a slice starts and ends where its mode allows."""
        mode, shape = call["mode"], call.shape()
        empty = 0 in size
        if mode == "STRICT_BOUNDS" and empty and is_static and not call.rules.empty_slice_beyond:
            call.require(
                all(
                    length == -1 or int(first or 0) + int(count or 0) <= length
                    for first, count, length in zip(start, size, shape, strict=True)
                ),
                "Symbolic relation t->start.d[i] + t->extent.d[i] <= r.dims.d[i] is always false: "
                "a static empty slice with STRICT_BOUNDS must start inside",
            )
        for axis, (first, count, step, length) in enumerate(
            zip(start, size, stride, shape, strict=True)
        ):
            if mode == "STRICT_BOUNDS" and not empty and first is not None:
                call.require(first >= 0, f"the slice starts at {first} in dimension {axis}")
            if first is None or count is None or step is None or length == -1:
                continue
            if mode == "STRICT_BOUNDS" and not empty:
                last = first + (count - 1) * step
                call.require(
                    0 <= first < length and 0 <= last < length,
                    f"the slice reads elements {first} to {last} of dimension {axis}, which has length {length}",
                )
            if mode in ("CLAMP", "REFLECT", "WRAP") and length == 0:
                call.require(empty, f"mode {mode} cannot read from the empty dimension {axis}")

    def bind(self, call: Call) -> Function:
        """Views where the grid is inside the input; index selection elsewhere."""
        grid = self._grid(call)
        start = [int(value or 0) for value in grid[0]]
        size = [int(value or 0) for value in grid[1]]
        stride = [int(value or 0) for value in grid[2]]
        shape = call.shape()
        if math.prod(size) == 0:
            target = tuple(size)
            return lambda x, *_: x.new_empty(target)
        inside = all(
            0 <= first < length and 0 <= first + (count - 1) * step < length
            for first, count, step, length in zip(start, size, stride, shape, strict=True)
        )
        if inside and all(step >= 0 for step in stride):
            return _strided_view(start, size, stride, shape)
        return _by_index(call["mode"], start, size, stride, shape)


def _strided_view(
    start: list[int], size: list[int], stride: list[int], shape: tuple[int, ...]
) -> Function:
    """Returns a slice inside the bounds as a view, which copies nothing."""
    steps = []
    for axis, (first, count, step, length) in enumerate(
        zip(start, size, stride, shape, strict=True)
    ):
        if (first, count, step) != (0, length, 1):
            steps.append((axis, first, count, step))
    if not steps:
        return lambda x, *_: x
    if len(steps) == 1 and steps[0][3] == 1:
        axis, first, count, _ = steps[0]
        return lambda x, *_: x.narrow(axis, first, count)

    def view(x: torch.Tensor, *_: torch.Tensor | None) -> torch.Tensor:
        for axis, first, count, step in steps:
            if step == 0 or count == 1:
                x = x.narrow(axis, first, 1)
                if count > 1:
                    expanded = list(x.shape)
                    expanded[axis] = count
                    x = x.expand(expanded)
            else:
                x = x.narrow(axis, first, (count - 1) * step + 1)
                if step > 1:
                    x = x[(slice(None),) * axis + (slice(None, None, step),)]
        return x

    return view


def _by_index(
    mode: str, start: list[int], size: list[int], stride: list[int], shape: tuple[int, ...]
) -> Function:
    """Returns a slice that takes each dimension's elements by their positions, filled where they are outside."""
    selections: list[tuple[int, torch.Tensor]] = []
    inside: list[tuple[int, torch.Tensor]] = []
    for axis, (first, count, step, length) in enumerate(
        zip(start, size, stride, shape, strict=True)
    ):
        if (first, count, step) == (0, length, 1):
            continue
        position = first + step * torch.arange(count)
        if mode == "WRAP":
            position = position.remainder(length)
        elif mode == "REFLECT":
            period = max(2 * length - 2, 1)
            position = position.abs().remainder(period)
            position = torch.where(position >= length, period - position, position)
        elif mode == "FILL":
            valid = (position >= 0) & (position < length)
            if not bool(valid.all()):
                view = [1] * len(shape)
                view[axis] = count
                inside.append((axis, valid.view(view)))
        selections.append((axis, position.clamp(0, max(length - 1, 0))))
    target = tuple(size)

    def select(x: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
        fill = others[3] if len(others) > 3 else None
        if x.numel() == 0:
            return x.new_zeros(target) if fill is None else fill.expand(target).clone()
        for axis, position in selections:
            x = x.index_select(axis, position.to(x.device))
        for _, valid in inside:
            x = torch.where(valid.to(x.device), x, 0 if fill is None else fill)
        return x

    return select


OPERATIONS = (Slice(),)
