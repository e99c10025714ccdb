"""Data that moves and does not change: Shuffle, Squeeze, Unsqueeze, Concatenation, Padding, ReverseSequence."""

# ruff: noqa: ARG002, ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

import math
from collections.abc import Sequence
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
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

_CONCATENABLE = FLOATS | INTEGERS | {"BOOL", "INT8"}


def permuted(
    order: Sequence[int] | None, shape: Sequence[Any], call: Call, what: str
) -> tuple[Any, ...]:
    """Returns a shape with its dimensions in another order; None keeps the order."""
    if order is None:
        return tuple(shape)
    axes = list(order)[: len(shape)]
    call.require(
        sorted(axes) == list(range(len(shape))),
        f"{what} {tuple(axes)} is no permutation of rank {len(shape)}",
    )
    return tuple(shape[axis] for axis in axes)


class Shuffle(Operation):
    """Transpose, reshape, transpose."""

    name = "shuffle"
    methods = frozen({"add_shuffle": {}})
    defaults = frozen(
        {
            "first_transpose": None,
            "reshape_dims": None,
            "second_transpose": None,
            "zero_is_placeholder": True,
        }
    )
    value_inputs = frozenset({1})
    maximum_inputs = 2
    property_types = frozen({"reshape_dims": "Dims"})
    partial = "move"

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """Static dimensions take the place of a shape tensor."""
        layer._attributes[attribute] = value
        if attribute == "reshape_dims":
            layer._drop_inputs(1)

    def _reshaped(self, call: Call) -> tuple[int, ...]:
        """Returns the sizes after the first transpose and the reshape of a shuffle."""
        moved = permuted(call["first_transpose"], call.shape(), call, "first_transpose")
        wanted = call.elements(1)
        is_static = wanted is None
        if wanted is None:
            wanted = None if call["reshape_dims"] is None else list(call["reshape_dims"])
        if wanted is None:
            return moved
        target: list[int | None] = []
        copied = set()
        for index, dimension in enumerate(wanted):
            if dimension == 0 and call["zero_is_placeholder"]:
                call.require(
                    index < len(moved),
                    f"the 0 at index {index} of reshape_dims has no input dimension to copy",
                )
                target.append(None if moved[index] == -1 else moved[index])
                if moved[index] == -1:
                    copied.add(index)
            else:
                call.require(
                    dimension is None or dimension >= -1,
                    f"{dimension} is no dimension to reshape to",
                )
                target.append(dimension)
        call.require(target.count(-1) <= 1, "reshape_dims may hold at most one -1")
        resolved = _resolve(call, moved, target, frozenset(copied))
        if is_static and not call.rules.empty_to_empty_reshape and 0 in moved:
            call.require(
                resolved.count(0) <= moved.count(0),
                "Symbolic relation input.extent()[i] == output.extent()[i] is always false: a static reshape of an "
                "empty tensor to a shape with more zeros does not build",
            )
        return resolved

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The reshape keeps the volume; 0 copies a dimension, one -1 is inferred."""
        shape = permuted(call["second_transpose"], self._reshaped(call), call, "second_transpose")
        return (TensorFacts(call.declared(call.facts(0).dtype), shape),)

    def bind(self, call: Call) -> Function:
        """Only the steps that do something."""
        first, second = call["first_transpose"], call["second_transpose"]
        rank = call.facts(0).rank
        moved = permuted(first, call.shape(), call, "first_transpose")
        target = self._reshaped(call)
        first_order = None if first is None else tuple(first[:rank])
        second_order = None if second is None else tuple(second[: len(target)])
        if second_order is None and target == moved:
            if first_order is None or first_order == tuple(range(rank)):
                return lambda x, shape=None: x
            return lambda x, shape=None: x.permute(first_order)
        if first_order is None and second_order is None:
            return lambda x, shape=None: x.reshape(target)

        def shuffle(x: torch.Tensor, shape: torch.Tensor | None = None) -> torch.Tensor:
            x = x if first_order is None else x.permute(first_order)
            x = x.reshape(target)
            return x if second_order is None else x.permute(second_order)

        return shuffle


def _resolve(
    call: Call, moved: tuple[int, ...], target: list[int | None], copied: frozenset[int]
) -> tuple[int, ...]:
    """The reshape target with its -1 inferred; -1 stays where the build cannot compute it."""
    rest = [dimension for dimension in target if dimension not in (None, -1)]
    target_volume = math.prod(dimension for dimension in rest if dimension is not None)
    have = math.prod(dimension for dimension in moved if dimension != -1)
    unknown = frozenset(index for index, dimension in enumerate(target) if dimension is None)
    # Where every unknown length was copied, the unknown lengths of both sides cancel.
    cancels = unknown == copied and len(unknown) == moved.count(-1)
    if not cancels:
        return complete(target)
    if -1 in target:
        call.require(
            target_volume != 0, "the -1 in reshape_dims is indeterminate: another dimension is 0"
        )
        call.require(
            have % target_volume == 0,
            f"reshape from {moved} to {tuple(target)}: {have} is not divisible by {target_volume}",
        )
        return complete(
            [have // target_volume if dimension == -1 else dimension for dimension in target]
        )
    call.require(
        have == target_volume,
        f"reshape changes the volume: {moved} holds {have} elements, {tuple(target)} {target_volume}",
    )
    return complete(target)


class _AxesOfTensor(Operation):
    """The axes are a constant tensor."""

    value_inputs = frozenset({1})
    partial = "move"

    def _axes(self, call: Call, rank_with_axes: bool) -> tuple[int, ...]:
        """Returns the constant axes of the second operand, in ascending order and none negative.

        With ``rank_with_axes`` they count in the result, which has so many dimensions more than the input.
        """
        fact = call.facts(1)
        call.accept(1, INTEGERS, "axes")
        call.require(fact.rank <= 1, "axes must be one-dimensional")
        call.require(fact.constant is not None, "axes must be a build-time constant")
        assert fact.constant is not None
        axes = [int(axis) for axis in fact.constant.reshape(-1).tolist()]
        rank = call.facts(0).rank + (len(axes) if rank_with_axes else 0)
        for axis in axes:
            call.require(-rank <= axis < rank, f"axis {axis} is not in [{-rank}, {rank - 1}]")
        positive = tuple(sorted(axis % rank for axis in axes))
        call.require(len(set(positive)) == len(positive), f"axes {axes} name a dimension twice")
        return positive


class Squeeze(_AxesOfTensor):
    """Dimensions of length 1 removed."""

    name = "squeeze"
    methods = frozen({"add_squeeze": {}})
    maximum_inputs = 2

    def _removed(self, call: Call) -> tuple[int, ...]:
        """Returns the dimensions that a squeeze removes: those of its second operand, otherwise all of length 1."""
        shape = call.shape()
        if call.optional(1) is None:
            call.require(call.facts(0).is_static, "squeeze without axes needs static dimensions")
            return tuple(axis for axis, dimension in enumerate(shape) if dimension == 1)
        axes = self._axes(call, rank_with_axes=False)
        for axis in axes:
            call.require(
                shape[axis] in (1, -1),
                f"dimension {axis} of length {shape[axis]} cannot be squeezed",
            )
        return axes

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Each squeezed dimension is 1; without axes all of length 1 go (TensorRT 11.4)."""
        removed = self._removed(call)
        shape = tuple(
            dimension for axis, dimension in enumerate(call.shape()) if axis not in removed
        )
        return (TensorFacts(call.declared(call.facts(0).dtype), shape),)

    def bind(self, call: Call) -> Function:
        """A view."""
        removed = self._removed(call)
        target = tuple(
            dimension for axis, dimension in enumerate(call.shape()) if axis not in removed
        )
        return lambda x, axes=None: x.reshape(target)


class Unsqueeze(_AxesOfTensor):
    """Dimensions of length 1 inserted."""

    name = "unsqueeze"
    methods = frozen({"add_unsqueeze": {}})
    maximum_inputs = 2

    def _target(self, call: Call) -> tuple[int, ...]:
        axes = self._axes(call, rank_with_axes=True)
        rank = call.facts(0).rank + len(axes)
        call.require(rank < 8, f"the rank of an unsqueezed tensor must be less than 8, not {rank}")
        remaining = iter(call.shape())
        return tuple(1 if axis in axes else next(remaining) for axis in range(rank))

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Axes count in the result."""
        return (TensorFacts(call.declared(call.facts(0).dtype), self._target(call)),)

    def bind(self, call: Call) -> Function:
        """A view."""
        target = self._target(call)
        return lambda x, axes=None: x.reshape(target)


class Concatenation(Operation):
    """Tensors one after the other along an axis."""

    name = "concatenation"
    methods = frozen({"add_concatenation": {}})
    defaults = frozen({"axis": None})
    partial = "move"

    def admit(self, call: Call) -> None:
        """One tensor at least."""
        call.require(len(call.inputs) > 0, "there is nothing to concatenate")

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """An axis is not negative."""
        if value < 0:
            message = f"the axis of a concatenation must not be negative, not {value}"
            raise RefusedError(message)
        layer._attributes[attribute] = value

    def _axis(self, call: Call) -> int:
        rank = call.facts(0).rank
        call.require(rank >= 1, "scalars cannot be concatenated")
        return max(0, rank - 3) if call["axis"] is None else call.axis()

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Equal types and ranks; dimensions equal except along the axis."""
        axis = self._axis(call)
        count = len(call.inputs)
        call.require(count <= 10000, f"at most 10000 tensors can be concatenated, not {count}")
        shapes = [call.shape(index) for index in range(count)]
        for index in range(count):
            call.accept(index, _CONCATENABLE, f"input {index}")
            call.require(
                len(shapes[index]) == len(shapes[0]), "concatenated tensors must have the same rank"
            )
        dtype = call.same_type(*range(count))
        result = []
        for position, dimensions in enumerate(zip(*shapes, strict=True)):
            if position == axis:
                result.append(-1 if -1 in dimensions else sum(dimensions))
                continue
            sizes = set(dimensions) - {-1}
            call.require(
                len(sizes) <= 1,
                f"concatenated tensors must have equal dimensions except along axis {axis}: {shapes}",
            )
            result.append(sizes.pop() if sizes else -1)
        return (TensorFacts(dtype, tuple(result)),)

    def bind(self, call: Call) -> Function:
        """``torch.cat``."""
        axis = self._axis(call)
        return lambda *pieces: torch.cat(pieces, axis)

    def read(self, layer: Any, attribute: str) -> Any:
        """An unset axis reads as TensorRT's default, the third dimension from the end."""
        axis = layer._attributes["axis"]
        return max(0, layer._input_facts()[0].rank - 3) if axis is None else axis


class Padding(Operation):
    """Zeros around the last two dimensions; negative amounts crop."""

    name = "padding"
    methods = frozen({"add_padding_nd": {}, "add_padding": {}})
    renames = frozen({"pre_padding": "pre_padding_nd", "post_padding": "post_padding_nd"})
    defaults = frozen({"pre_padding_nd": (), "post_padding_nd": ()})
    aliases = frozen({"pre_padding": "pre_padding_nd", "post_padding": "post_padding_nd"})

    def admit(self, call: Call) -> None:
        """Exactly two values on each side."""
        for name in ("pre_padding_nd", "post_padding_nd"):
            call.require(
                len(call[name]) == 2,
                f"{name} must hold exactly 2 values: only the last two dimensions are padded",
            )

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Rank 4 at least, floating point."""
        self.admit(call)
        dtype = call.accept(0, FLOATS, "the input of padding")
        shape = call.shape()
        call.require(
            len(shape) >= 4, f"the input of padding must have at least rank 4, not {len(shape)}"
        )
        padded = []
        for dimension, pre, post in zip(
            shape[-2:], call["pre_padding_nd"], call["post_padding_nd"], strict=True
        ):
            length = -1 if dimension == -1 else dimension + pre + post
            call.require(length >= -1, f"cropping leaves a negative dimension of {shape}")
            padded.append(length)
        return (TensorFacts(call.declared(dtype), shape[:-2] + tuple(padded)),)

    def bind(self, call: Call) -> Function:
        """``torch.nn.functional.pad``."""
        pre, post = call["pre_padding_nd"], call["post_padding_nd"]
        amounts = (pre[1], post[1], pre[0], post[0])
        return lambda x: torch.nn.functional.pad(x, amounts)


class ReverseSequence(Operation):
    """The first elements of each sequence in reverse order."""

    name = "reverse_sequence"
    methods = frozen({"add_reverse_sequence": {}})
    defaults = frozen({"batch_axis": 1, "sequence_axis": 0})

    def admit(self, call: Call) -> None:
        """Rank 2 at least."""
        call.admit_rank(0, range(2, 9), "reverse_sequence needs rank 2")

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """One length for each element of the batch."""
        self.admit(call)
        shape = call.shape(0)
        batch, sequence = call.axis("batch_axis"), call.axis("sequence_axis")
        call.require(batch != sequence, "batch_axis and sequence_axis must differ")
        call.accept(1, INTEGERS, "sequence_lens")
        lengths = call.shape(1)
        call.require(
            len(lengths) == 1 and (-1 in (lengths[0], shape[batch]) or lengths[0] == shape[batch]),
            "sequence_lens must be one-dimensional with one length per batch element",
        )
        return (TensorFacts(call.declared(call.facts(0).dtype), shape),)

    def bind(self, call: Call) -> Function:
        """A gather with reversed indices."""
        batch, sequence = call.axis("batch_axis"), call.axis("sequence_axis")
        shape = call.shape(0)

        def reverse(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            steps = torch.arange(shape[sequence], device=x.device)
            view = [1] * len(shape)
            view[batch] = shape[batch]
            limits = lengths.long().view(view)
            if bool((limits > shape[sequence]).any()):
                message = f"the lengths {lengths.tolist()} go beyond the {shape[sequence]} elements of a sequence"
                raise RefusedError(message)
            view = [1] * len(shape)
            view[sequence] = shape[sequence]
            positions = steps.view(view)
            index = torch.where(positions < limits, limits - 1 - positions, positions)
            return torch.gather(x, sequence, index.expand(shape))

        return reverse


OPERATIONS = (Shuffle(), Squeeze(), Unsqueeze(), Concatenation(), Padding(), ReverseSequence())
