"""The profiles of a compilation: the sizes that the caller declared, as far as PyTorch exported them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt.graphs.nodes import is_number
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.tensorrt.shims import INT32_RANGE
from torchtrt.torch_internals import pytree
from torchtrt_compiler.inputs import CallInputs, Input, Number
from torchtrt_compiler.sizes.guards import fixing_lines
from torchtrt_runtime.size_ranges import LinearSize, Profile, linear_size

_KEY = "torchtrt_declared_sizes"
Limits = Mapping[tuple[int, int], tuple[int | None, int | None]]
"""For the number of an input and its dimension the smallest and the largest size, as far as they are declared."""


def size_profiles(
    exported: ExportedProgram,
    placeholders: Sequence[Node],
    ranges: Mapping[Any, tuple[int, int | None]],
    inputs: CallInputs,
) -> tuple[Profile, ...]:
    """Returns the declared sizes as profiles: in each, the range of each symbol of the program's input shapes.

    The minimum and maximum come from the exported program, widened down to what an ``Input``
    asked for (exporting itself stops at 2). The optimal sizes come from the inputs given here, or
    those it was exported with. A range makes no profile if the program takes none of its sizes.

    Args:
        exported: The exported program.
        placeholders: The inputs of the same program, opened.
        ranges: The minimum and maximum value of each symbol in it.
        inputs: The inputs that the model is compiled for.

    Raises:
        InputError: A dynamic size has no upper bound, or inputs have different numbers of ranges, or the program takes
            none of the sizes. Or an ``Input`` asks for sizes that the exported program fixed, or a floating-point input
            varies.
    """
    leaves = inputs.leaves
    if leaves and len(leaves) != len(placeholders):
        raise InputError(f"The program takes {len(placeholders)} inputs, not {len(leaves)}.")
    profiles: list[dict[Any, SizeRange]] = [{} for _ in range(count_ranges(leaves))]
    dynamic = list(_dynamic_sizes(placeholders, leaves, declared_limits(exported)))
    alone = {size.linear.symbol for size in dynamic if size.linear.is_symbol}
    for dynamic_size in sorted(dynamic, key=lambda size: not size.linear.is_symbol):
        symbol, is_symbol = dynamic_size.linear.symbol, dynamic_size.linear.is_symbol
        for number, profile in enumerate(profiles):
            if symbol in alone and not is_symbol:
                wanted = dynamic_size.limited(number, profile[symbol])
            else:
                wanted = dynamic_size.wanted(number, ranges.get(symbol, (0, None)))
            profile[symbol] = profile.get(symbol, wanted).intersect(wanted)
    taken = [
        profile for profile in profiles if all(size.min <= size.max for size in profile.values())
    ]
    if not taken:
        raise _none_taken(dynamic, profiles[0], ranges)
    return tuple(taken)


def _none_taken(
    dynamic: Sequence[_DynamicSize],
    profile: Profile,
    ranges: Mapping[Any, tuple[int, int | None]],
) -> InputError:
    """Returns the error of a program that takes none of the sizes."""
    symbol = next(symbol for symbol, size in profile.items() if size.min > size.max)
    size = next(size for size in dynamic if size.linear.symbol == symbol)
    minimum, maximum = ranges.get(symbol, (0, None))
    low, high = size.linear.size(minimum), None if maximum is None else size.linear.size(maximum)
    return InputError(
        f"The program takes {low} {'or more' if high is None else f'to {high}'} in {size.where}, and you asked for "
        "none of these sizes. Declare sizes that it takes, or export the model with another range."
    )


class _DynamicSize(NamedTuple):
    """A dimension of an input whose size varies.

    Attributes:
        linear: The size, by its symbol.
        leaf: What was given for the input; None where nothing was.
        dim: The dimension.
        where: The dimension and the input, in words.
        hint: The size that the program was exported with.
        least: The smallest size that was declared, if any was.
        most: The largest, likewise.
    """

    linear: LinearSize
    leaf: Any
    dim: int
    where: str
    hint: int | None
    least: int | None
    most: int | None

    def limited(self, number: int, values: SizeRange) -> SizeRange:
        """Returns those of the symbol's values whose sizes were declared here.

        Args:
            number: The range of the input, where it has several.
            values: The values, for a dimension whose size is the symbol itself.
        """
        least, most = self.least, self.most
        if isinstance(self.leaf, Input):
            least, _, most = (shape[self.dim] for shape in self.leaf.in_profile(number))
        sizes = self.linear.sizes(values)
        low, high = self.linear.values(
            sizes.min if least is None else least, sizes.max if most is None else most
        )
        return SizeRange(low, values.opt, high)

    def wanted(self, number: int, exported_range: tuple[int, int | None]) -> SizeRange:
        """Returns the values of the symbol to build for.

        Args:
            number: The range of the input, where it has several.
            exported_range: The minimum and the maximum value in the exported program.

        Raises:
            InputError: There is no greatest value.
        """
        minimum, maximum = exported_range
        if isinstance(self.leaf, Input):
            low, optimal, high = (shape[self.dim] for shape in self.leaf.in_profile(number))
            low = max(low, self.least or 0)
            _, optimal = self.linear.values(low, optimal)
            low, high = self.linear.values(low, high)
            # An exported range that starts at 2 stands for "not 0 or 1", which engines need no proof of.
            minimum = low if minimum <= 2 else max(low, minimum)
            maximum = high if maximum is None else min(high, maximum)
        else:
            # Empty tensors were not requested: 0 is only where torch.export.Dim starts by default.
            least = self.least if minimum <= 2 else None
            minimum = max(minimum, 1) if least is None else self.linear.values(least, least)[0]
            optimal = self._usual(minimum)
        if maximum is None or maximum > INT32_RANGE[1]:
            raise InputError(
                f"There is no upper bound in int32 for {self.where}, and an engine is built for a maximum. Give one: "
                "torchtrt.Input(min_shape, opt_shape, max_shape), or torch.export.Dim(name, max=...) when exporting. "
                "For a number, give torchtrt.Number(min, opt, max), or torch.export.Dim.AUTO(max=...) when exporting."
            )
        return SizeRange(minimum, min(max(optimal, minimum), maximum), maximum)

    def _usual(self, minimum: int) -> int:
        """Returns the symbol's value in the example that was given or exported with; else the least one."""
        is_tensor = isinstance(self.leaf, torch.Tensor)
        size = int(self.leaf.shape[self.dim]) if is_tensor else self.hint
        return minimum if size is None else self.linear.values(size, size)[1]


def _dynamic_sizes(
    placeholders: Sequence[Node], leaves: Sequence[Any], limits: Limits
) -> Iterator[_DynamicSize]:
    """Yields the dimensions whose sizes grow with a symbol, and checks the others.

    Raises:
        InputError: An ``Input`` asks for sizes that the program fixed, or a floating-point input varies.
    """
    for index, placeholder in enumerate(placeholders):
        value = placeholder.meta.get("val")
        if isinstance(value, torch.SymFloat):
            raise InputError(
                f"Input {placeholder.target!r} is a floating-point number that varies. Export the model with a fixed "
                "number, or give it a tensor."
            )
        leaf = leaves[index] if leaves else None
        if isinstance(value, int):
            _check_fixed(leaf, 0, f"input {placeholder.target!r}", placeholder)
        if not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(tuple[Any, ...](value.shape)):
            where = f"dimension {dim} of input {placeholder.target!r}"
            if is_number(placeholder):
                where = f"input {placeholder.target!r}"
            if isinstance(size, int):
                _check_fixed(leaf, dim, where, placeholder)
                continue
            linear = linear_size(size.node.expr)
            if linear is not None:
                least, most = limits.get((index, dim), (None, None))
                yield _DynamicSize(linear, leaf, dim, where, size.node.hint, least, most)


def count_ranges(leaves: Sequence[Any]) -> int:
    """Returns how many ranges of sizes the inputs have: 1 if none has several.

    An input with one range goes with each range of the others.

    Raises:
        InputError: Two inputs have several ranges, and not equally many.
    """
    counts = {len(leaf.ranges or "1") for leaf in leaves if isinstance(leaf, Input)} - {1}
    if len(counts) > 1:
        raise InputError(
            f"Inputs have {' and '.join(map(str, sorted(counts)))} ranges of sizes. Each range of one goes with the "
            "range of another in its place: give all of them equally many, or one."
        )
    return next(iter(counts), 1)


def _check_fixed(leaf: Any, dim: int, where: str, placeholder: Node) -> None:
    """Checks that no range was asked for in a dimension that the exported program fixed.

    Raises:
        InputError: There was one.
    """
    if not isinstance(leaf, Input):
        return
    minimum, _, maximum = leaf.bounds
    if minimum[dim] == maximum[dim]:
        return
    value = placeholder.meta["val"]
    size = value if isinstance(value, int) else value.shape[dim]
    lines = fixing_lines(shape_env_of(placeholder.graph), size)
    line = f" ({lines[0]})" if lines else ""
    if isinstance(leaf, Number):
        raise InputError(
            f"You asked for {minimum[dim]} to {maximum[dim]} in {where}, but the model fixes it to {size}{line}. Make "
            "the code independent of the number, or give a fixed one. With dynamic_shapes, the number has an entry "
            f"there: torch.export.Dim.AUTO(min={minimum[dim]}, max={maximum[dim]})."
        )
    raise InputError(
        f"You asked for {minimum[dim]} to {maximum[dim]} in {where}, but the model fixes it to {size}{line}: something "
        "in its code depends on that number. Make the code independent of it, or give a fixed size. If it is len() of "
        "a tensor or int() of a size, write x.shape[0], or compile what torch.export.export(..., strict=True) returns."
    )


def keep_declared(
    program: ExportedProgram,
    model: torch.nn.Module,
    inputs: CallInputs,
    dynamic_shapes: Any,
) -> None:
    """Keeps the declared limits in a program's metadata, where ``declared_limits`` finds them.

    Args:
        program: The program.
        model: The model.
        inputs: The inputs, positional and by keyword.
        dynamic_shapes: As ``torch.export.export`` takes it. Shapes that nest in another way than the inputs are
            ignored.
    """
    specs: dict[int, Any] = {}
    if isinstance(dynamic_shapes, (Mapping, tuple, list)):
        with contextlib.suppress(TypeError, ValueError, AttributeError):
            arguments = (
                inspect.signature(model.forward).bind(*inputs.args, **inputs.kwargs).arguments
            )
            by_name = (
                dynamic_shapes
                if isinstance(dynamic_shapes, Mapping)
                else dict(zip(arguments, dynamic_shapes, strict=True))
            )
            for name, value in arguments.items():
                values, tree = pytree.tree_flatten(value)
                shapes = tree.flatten_up_to(by_name.get(name))
                specs.update(zip(map(id, values), shapes, strict=True))
    program.graph_module.meta[_KEY] = {
        (number, dim): limits
        for number, leaf in enumerate(inputs.leaves)
        if isinstance(leaf, (torch.Tensor, Input))
        for dim, declared in _dimensions_of(specs.get(id(leaf)))
        if (limits := _limits(declared)) != (None, None)
    }


def declared_limits(exported: ExportedProgram) -> Limits:
    """Returns the limits that were declared where a program was exported."""
    return exported.graph_module.meta.get(_KEY, {})  # type: ignore[no-any-return]


def _dimensions_of(shape: Any) -> Sequence[tuple[int, Any]]:
    """Returns the dimensions of a shape in ``dynamic_shapes``, by their places; a number has one."""
    if shape is not None and not isinstance(shape, (Mapping, Sequence)):
        return [(0, shape)]
    return [*(shape.items() if isinstance(shape, Mapping) else enumerate(shape or ()))]


def _limits(dimension: Any) -> tuple[int | None, int | None]:
    """Returns the limits of a ``torch.export.Dim``. A minimum of 0 is also that of one without a minimum."""
    least, most = (getattr(dimension, name, None) for name in ("min", "max"))
    return (
        least if isinstance(least, int) and least > 0 else None,
        most if isinstance(most, int) else None,
    )
