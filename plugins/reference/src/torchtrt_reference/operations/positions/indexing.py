"""Elements chosen by position: Gather, Scatter, OneHot, NonZero, TopK."""

# ruff: noqa: ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts, broadcast

_INDEX = INTEGERS


def _masked_take(taken: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    return taken if bool(valid.all()) else torch.where(valid, taken, 0)


def _wrapped(index: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices brought into range (negative ones count from the end), and which of them were in range."""
    index = index.long()
    index = torch.where(index < 0, index + length, index)
    valid = (index >= 0) & (index < length)
    return index.clamp(0, max(length - 1, 0)), valid


def _require_no_more(
    call: Call, indices: tuple[int, ...], data: tuple[int, ...], besides: int | None
) -> None:
    for dimension, (ours, theirs) in enumerate(zip(indices, data, strict=True)):
        call.require(
            dimension == besides or -1 in (ours, theirs) or ours <= theirs,
            f"dimension {dimension} of the indices is {ours}, more than the data's {theirs}",
        )


class Gather(Operation):
    """Elements of a tensor at indices, in three modes; what is out of range reads as 0."""

    name = "gather"
    methods = frozen({"add_gather": {"mode": "DEFAULT"}, "add_gather_v2": {"axis": 0}})
    defaults = frozen({"axis": 0, "num_elementwise_dims": 0, "mode": "DEFAULT"})
    steering = frozenset({1})
    partial = "move"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Integer indices; the rank depends on the mode."""
        data, indices = call.shape(0), call.shape(1)
        call.accept(0, ANY - {"UINT8", "E8M0"}, "the data of gather")
        call.accept(1, _INDEX, "indices")
        call.require(len(data) >= 1, "the data of gather must have at least rank 1")
        mode, shared = call["mode"], int(call["num_elementwise_dims"])
        if mode == "ND":
            shape = self._nd_shape(call, data, indices, shared)
        elif mode == "ELEMENT":
            call.axis()
            call.require(shared == 0, "num_elementwise_dims must be 0 in ELEMENT mode")
            call.require(
                len(data) == len(indices),
                "data and indices must have the same rank in ELEMENT mode",
            )
            _require_no_more(call, indices, data, besides=int(call["axis"]))
            shape = indices
        else:
            axis = call.axis()
            call.require(shared in (0, 1), "num_elementwise_dims must be 0 or 1 in DEFAULT mode")
            call.require(
                shared <= len(indices) and (not shared or axis > 0),
                "too many elementwise dimensions",
            )
            leading = (
                broadcast([data[:shared], indices[:shared]], "elementwise dimensions of gather")
                if shared
                else ()
            )
            shape = leading + data[shared:axis] + indices[shared:] + data[axis + 1 :]
            call.require(
                data[axis] != 0 or 0 in indices or -1 in indices,
                "cannot do non-empty gather from an empty axis",
            )
            call.require(
                len(shape) <= 8,
                f"the result of gather would have rank {len(shape)}; the limit is 8",
            )
        return (TensorFacts(call.declared(call.facts(0).dtype), shape),)

    @staticmethod
    def _nd_shape(
        call: Call, data: tuple[int, ...], indices: tuple[int, ...], shared: int
    ) -> tuple[int, ...]:
        """Returns the shape of a gather in ND mode.

        Args:
            call: The call that is checked.
            data: The shape of the data.
            indices: The shape of the indices, whose last dimension counts the coordinates.
            shared: How many leading dimensions data and indices have in common.
        """
        call.require(len(indices) >= 1, "indices must have at least rank 1 in ND mode")
        depth = indices[-1]
        call.require(
            depth != -1, "the last dimension of indices must be a build-time constant in ND mode"
        )
        call.require(
            0 < depth <= len(data) - shared, f"{depth} indices reach beyond rank {len(data)}"
        )
        call.require(0 <= shared < max(len(data) - 1, 1), "too many elementwise dimensions")
        for ours, theirs in zip(data[:shared], indices[:shared], strict=True):
            call.require(
                ours == theirs or -1 in (ours, theirs),
                "elementwise dimensions must be equal in ND mode",
            )
        return indices[:-1] + data[shared + depth :]

    def bind(self, call: Call) -> Function:
        """``torch.index_select`` where it applies."""
        mode, shared = call["mode"], int(call["num_elementwise_dims"])
        if mode == "ND":
            return _gather_nd(shared)
        axis = call.axis()
        if mode == "ELEMENT":
            return _gather_element(axis)
        if shared:
            return _gather_shared(axis, self.infer(call)[0].shape)
        return _gather_default(axis, call)


def _gather_default(axis: int, call: Call) -> Function:
    """Returns the function of a gather in default mode; one constant index is a view."""
    data, indices = call.shape(0), call.shape(1)
    length, target = data[axis], data[:axis] + indices + data[axis + 1 :]
    constant = call.facts(1).constant
    if constant is not None and constant.numel() == 1 and length:
        position = int(constant.reshape(-1)[0])
        position += length if position < 0 else 0
        if 0 <= position < length:
            return lambda x, index: x.narrow(axis, position, 1).reshape(target)

    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        flat, valid = _wrapped(index.reshape(-1), length)
        if length == 0:
            return x.new_zeros(target)
        taken = x.index_select(axis, flat)
        view = [1] * x.dim()
        view[axis] = -1
        return _masked_take(taken, valid.view(view)).view(target)

    return gather


def _gather_element(axis: int) -> Function:
    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        positions, valid = _wrapped(index, x.shape[axis])
        if x.shape[axis] == 0:
            return x.new_zeros(index.shape)
        return _masked_take(torch.gather(x, axis, positions), valid)

    return gather


def _gather_shared(axis: int, target: tuple[int, ...]) -> Function:
    """Returns a gather of shape ``target`` along ``axis``, with indices for each element of the batch."""

    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        batch = max(x.shape[0], index.shape[0])
        x = x.expand(batch, *x.shape[1:])
        index = index.expand(batch, *index.shape[1:])
        positions, valid = _wrapped(index.reshape(batch, -1), x.shape[axis])
        rows = torch.arange(batch, device=x.device).unsqueeze(1)
        taken = x.movedim(axis, 1)[rows, positions]
        valid = valid.reshape(valid.shape + (1,) * (taken.dim() - 2))
        return _masked_take(taken, valid).movedim(1, axis).reshape(target)

    return gather


def _gather_nd(shared: int) -> Function:
    """Returns a gather by coordinates in the last dimension, with so many shared leading dimensions."""

    def gather(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        depth = index.shape[-1]
        ok = torch.ones(index.shape[:-1], dtype=torch.bool, device=x.device)
        where: list[torch.Tensor] = []
        for axis in range(shared):
            view = [1] * (index.dim() - 1)
            view[axis] = -1
            where.append(torch.arange(x.shape[axis], device=x.device).view(view))
        for offset in range(depth):
            positions, valid = _wrapped(index[..., offset], x.shape[shared + offset])
            where.append(positions)
            ok = ok & valid
        taken = x[tuple(where)]
        return _masked_take(taken, ok.reshape(ok.shape + (1,) * (taken.dim() - ok.dim())))

    return gather


class Scatter(Operation):
    """A copy of a tensor with elements replaced; the last of several writes to one place wins.

    Elements that would be written outside the tensor are dropped.
    """

    name = "scatter"
    methods = frozen({"add_scatter": {}})
    defaults = frozen({"axis": 0, "mode": "ELEMENT"})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Data and updates of one type, integer indices."""
        data, indices, updates = (call.shape(index) for index in range(3))
        for index in (0, 2):
            call.accept(index, NUMBERS | {"BOOL", "INT8"}, f"input {index}")
        call.accept(1, _INDEX, "indices")
        dtype = call.same_type(0, 2, what="data and updates")
        call.require(len(data) >= 1, "the data of scatter must have at least rank 1")
        if call["mode"] == "ELEMENT":
            call.axis(negative=True)
            call.require(
                len(data) == len(indices) == len(updates), "scatter inputs must have the same rank"
            )
            # Seen on TensorRT 8.6: no implementation for more indices than data, not even along the axis.
            _require_no_more(call, indices, data, besides=None)
            expected = indices
        else:
            call.require(len(indices) >= 1, "indices must have at least rank 1 in ND mode")
            depth = indices[-1]
            call.require(
                depth != -1,
                "the last dimension of indices must be a build-time constant in ND mode",
            )
            call.require(0 < depth <= len(data), f"{depth} indices reach beyond rank {len(data)}")
            expected = indices[:-1] + data[depth:]
        call.require(
            len(updates) == len(expected)
            and all(
                -1 in pair or pair[0] == pair[1] for pair in zip(updates, expected, strict=True)
            ),
            f"updates must have the shape {expected}, not {updates}",
        )
        return (TensorFacts(dtype, data),)

    def bind(self, call: Call) -> Function:
        """``scatter`` and ``index_put`` on a copy."""
        if call["mode"] == "ELEMENT":
            axis = call.axis(negative=True)
            length = call.shape(0)[axis]

            def scatter(
                x: torch.Tensor, index: torch.Tensor, updates: torch.Tensor
            ) -> torch.Tensor:
                positions, valid = _wrapped(index, length)
                if bool(valid.all()):
                    return torch.scatter(x, axis, positions, updates)
                # What is out of range goes to one row more, which is cut off again.
                row = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
                longer = torch.cat([x, x.new_zeros(row)], axis)
                positions = torch.where(valid, positions, length)
                return torch.scatter(longer, axis, positions, updates).narrow(axis, 0, length)

            return scatter
        depth = call.shape(1)[-1]
        lengths = call.shape(0)[:depth]

        def scatter_nd(x: torch.Tensor, index: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
            wrapped = [_wrapped(index[..., axis], lengths[axis]) for axis in range(depth)]
            valid = torch.stack([in_range for _, in_range in wrapped]).all(0)
            where = tuple(positions[valid] for positions, _ in wrapped)
            return torch.index_put(x, where, updates[valid])

        return scatter_nd


class OneHot(Operation):
    """One of two values, chosen by an index along a new axis."""

    name = "one_hot"
    methods = frozen({"add_one_hot": {}})
    defaults = frozen({"axis": -1})
    value_inputs = frozenset({2})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """int32 indices, two values, a constant depth."""
        call.accept(0, frozenset({"INT32"}), "indices")
        call.accept(1, NUMBERS | {"BOOL", "INT8"}, "values")
        call.require(
            call.shape(1) in ((2,), (-1,)),
            "values must be one-dimensional with two elements: off and on",
        )
        depth = call.scalar(2, INTEGERS, "depth")
        call.require(depth is not None, "depth must be a build-time constant")
        call.require(depth >= 0, f"depth must not be negative, not {depth}")
        indices = call.shape(0)
        axis = call.axis(rank=len(indices) + 1, negative=True)
        return (
            TensorFacts(
                call.declared(call.facts(1).dtype), (*indices[:axis], depth, *indices[axis:])
            ),
        )

    def bind(self, call: Call) -> Function:
        """A comparison with a range; negative indices count from the end."""
        depth = call.scalar(2, INTEGERS, "depth")
        rank = call.facts(0).rank
        axis = call.axis(rank=rank + 1, negative=True)
        view = [1] * (rank + 1)
        view[axis] = depth

        def one_hot(indices: torch.Tensor, values: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
            indices = torch.where(indices < 0, indices + depth, indices)
            steps = torch.arange(depth, device=indices.device).view(view)
            return torch.where(indices.unsqueeze(axis) == steps, values[1], values[0])

        return one_hot


class NonZero(Operation):
    """The positions of the elements that are not zero: one row per dimension, one column per element."""

    name = "non_zero"
    methods = frozen({"add_non_zero": {}})
    defaults = frozen({"indices_type": "INT32"})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The number of columns depends on the data."""
        call.accept(0, FLOATS | {"BOOL", "INT8", "INT32"}, "the input of nonzero")
        call.require(call["indices_type"] in INTEGERS, "indices_type must be Int32 or Int64")
        return (TensorFacts(call["indices_type"], (call.facts(0).rank, -1)),)

    def infer_maximum(self, call: Call) -> tuple[TensorFacts, ...]:
        """A column for every element."""
        fact = call.facts(0)
        columns = fact.volume if fact.is_static else -1
        return (TensorFacts(call["indices_type"], (fact.rank, columns)),)

    def bind(self, call: Call) -> Function:
        """``torch.nonzero``, transposed."""
        target = dtypes.TORCH[call["indices_type"]]
        return lambda x: torch.nonzero(x).t().to(target)


_TOPK_LIMIT = 3840


class TopK(Operation):
    """The largest or smallest elements along one axis, sorted, and their positions."""

    name = "topk"
    methods = frozen({"add_topk": {}})
    defaults = frozen({"op": "MAX", "k": 1, "axes": 0, "indices_type": "INT32"})
    value_inputs = frozenset({1})
    maximum_inputs = 2
    outputs = 2

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """A static k takes the place of a tensor."""
        layer._attributes[attribute] = value
        if attribute == "k":
            layer._drop_inputs(1)

    def read(self, layer: Any, attribute: str) -> Any:
        """A k that is a tensor reads as -1."""
        dynamic = attribute == "k" and len(layer._inputs) > 1 and layer._inputs[1] is not None
        return -1 if dynamic else layer._attributes[attribute]

    def _axis_and_k(self, call: Call) -> tuple[int, int | None]:
        """Returns the one dimension and ``k``, which is ``None`` while it is known at run time only."""
        rank = call.facts(0).rank
        axes = call.axes_of_mask()
        call.require(len(axes) == 1, "topk works along exactly one dimension")
        call.require(axes[0] >= rank - 4, "topk works along one of the last four dimensions")
        k = int(call["k"]) if call.optional(1) is None else call.scalar(1, INTEGERS, "k")
        if k is not None:
            call.require(1 <= k <= _TOPK_LIMIT, f"k must be in [1, {_TOPK_LIMIT}], not {k}")
            length = call.shape()[axes[0]]
            call.require(length == -1 or k <= length, f"k = {k} exceeds the dimension {length}")
        return axes[0], k

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Rank 2 at least, one axis among the last four, k at most 3840."""
        dtype = call.accept(0, NUMBERS if call.rules.integer_topk else FLOATS, "the input of topk")
        call.require(call.facts(0).rank >= 2, "the input of topk must have at least rank 2")
        call.require(call["indices_type"] in INTEGERS, "indices_type must be Int32 or Int64")
        axis, k = self._axis_and_k(call)
        shape = call.shape()
        shape = (*shape[:axis], -1 if k is None else k, *shape[axis + 1 :])
        return (TensorFacts(call.declared(dtype), shape), TensorFacts(call["indices_type"], shape))

    def bind(self, call: Call) -> Function:
        """A stable sort: the lower index first, NaN smallest (on TensorRT 8.6 never selected)."""
        axis, k = self._axis_and_k(call)
        largest = call["op"] == "MAX"
        target = dtypes.TORCH[call["indices_type"]]
        if k is None:
            message = "k is not known"
            raise RefusedError(message)

        worst = -math.inf if largest else math.inf
        drops = call.rules.topk_drops_the_worst

        def topk(
            x: torch.Tensor, _: torch.Tensor | None = None
        ) -> tuple[torch.Tensor, torch.Tensor]:
            keys = x
            if x.dtype.is_floating_point:
                keys = torch.where(torch.isnan(x), worst if drops else -math.inf, x)
            if k == 1:  # of equal elements these return the first
                order = (torch.argmax if largest else torch.argmin)(keys, axis, keepdim=True)
            else:
                order = torch.sort(keys, dim=axis, descending=largest, stable=True).indices
            order = order.narrow(axis, 0, k)
            if not drops:
                return torch.gather(x, axis, order), order.to(target)
            values = torch.gather(keys, axis, order)
            return values, torch.where(values == worst, -1, order).to(target)

        return topk


OPERATIONS = (Gather(), Scatter(), OneHot(), NonZero(), TopK())
