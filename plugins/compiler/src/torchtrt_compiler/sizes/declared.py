"""The profiles of a compilation: the sizes that the caller declared, as far as PyTorch exported them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.conversion.inputs import SizeRange
from torchtrt.errors import InputError
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.tensorrt.shims import INT32_RANGE
from torchtrt.torch_internals import pytree
from torchtrt_compiler.inputs import CallInputs, Input, Number
from torchtrt_compiler.sizes.guards import fixing_lines
from torchtrt_compiler.torch_internals import size_as_traced
from torchtrt_runtime.checks.dimensions import Dimension
from torchtrt_runtime.checks.inputs import tensor_check
from torchtrt_runtime.serialization.exported_program import user_inputs
from torchtrt_runtime.size_ranges import LinearSize, Profile, linear_size

_KEY, _MINIMA = "torchtrt_declared_sizes", "torchtrt_declared_minima"
Limits = Mapping[tuple[int, int], tuple[int | None, int | None]]
"""For the number of an input and its dimension the smallest and the largest size, as far as they are declared."""

_Range = tuple[int | None, int | None, int | None]


class DeclaredSize(NamedTuple):
    """A dimension of an input whose size varies, with the sizes that were declared for it.

    Attributes:
        dimension: The dimension. Its size grows with a symbol.
        linear: The size by its symbol.
        size: The size in the program.
        is_input: Whether a ``torchtrt.Input`` declares it.
        ranges: For each range of the inputs the smallest, the optimal and the largest size. One that is not declared is
            None.
    """

    dimension: Dimension
    linear: LinearSize
    size: torch.SymInt
    is_input: bool
    ranges: Sequence[_Range]

    def values(self, number: int, taken: tuple[int, int | None]) -> SizeRange:
        """Returns the values of the symbol that were asked for.

        Args:
            number: The range, where the inputs have several.
            taken: The smallest and the largest value that the program takes, for what is not declared.

        Raises:
            InputError: There is no largest value.
        """
        low, optimal, high = self.ranges[number]
        least, most = taken
        if low is not None:
            least, _ = self.linear.values(low, low)
        if high is not None:
            _, most = self.linear.values(high, high)
        if most is None or most > INT32_RANGE[1]:
            raise InputError(
                f"There is no upper bound in int32 for {self.dimension}, and an engine is built for a maximum. Give "
                "one: torchtrt.Input(min_shape=..., opt_shape=..., max_shape=...), or torch.export.Dim(name, max=...) "
                "when exporting. For a number, give torchtrt.Number(min, opt, max), or torch.export.Dim.AUTO(max=...) "
                "when exporting."
            )
        usual = least if optimal is None else self.linear.values(optimal, optimal)[1]
        return SizeRange(least, min(max(usual, least), most), most)


def declared_sizes(
    exported: ExportedProgram, placeholders: Sequence[Node], inputs: CallInputs
) -> list[DeclaredSize]:
    """Returns the dimensions of a program's inputs whose sizes grow with a symbol, and checks the others.

    Args:
        exported: The exported program.
        placeholders: The inputs of the same program, opened.
        inputs: The inputs that the model is compiled for.

    Raises:
        InputError: There are more or fewer inputs than the program takes, or they have different numbers of ranges. Or
            an ``Input`` asks for sizes that the program fixed, or a floating-point input varies.
    """
    leaves = inputs.leaves or [None] * len(placeholders)
    if len(leaves) != len(placeholders):
        raise InputError(f"The program takes {len(placeholders)} inputs, not {len(leaves)}.")
    limits, count = declared_limits(exported), count_ranges(leaves)
    declared: list[DeclaredSize] = []
    for index, (placeholder, leaf) in enumerate(zip(placeholders, leaves, strict=True)):
        value = placeholder.meta.get("val")
        if isinstance(value, torch.SymFloat):
            raise InputError(
                f"Input {placeholder.target!r} is a floating-point number that varies. Export the model with a fixed "
                "number, or give it a tensor."
            )
        if isinstance(value, int):
            _check_fixed(leaf, 0, Dimension(str(placeholder.target), None, value), placeholder)
        if not isinstance(value, torch.Tensor):
            continue
        for dim, dimension in enumerate(tensor_check(placeholder).dimensions):
            if dimension.linear is not None:
                size: Any = value.shape[dim]
                own = limits.get((index, dim), (None, None))
                ranges = [_range_of(leaf, dim, number, own, size) for number in range(count)]
                is_input = isinstance(leaf, Input)
                declared.append(DeclaredSize(dimension, dimension.linear, size, is_input, ranges))
            elif isinstance(dimension.size, int):
                _check_fixed(leaf, dim, dimension, placeholder)
    return declared


def codes_as_traced(placeholders: Sequence[Node]) -> dict[Any, str]:
    """Returns how a model's code reads the sizes of its inputs, by the symbols that PyTorch traced them as.

    It may have replaced such a symbol by another size since.
    """
    checks = (
        (placeholder.meta["val"].shape, tensor_check(placeholder).dimensions)
        for placeholder in placeholders
        if isinstance(placeholder.meta.get("val"), torch.Tensor)
    )
    return {
        size_as_traced(size): dimension.code
        for shape, dimensions in checks
        for size, dimension in zip(shape, dimensions, strict=True)
        if isinstance(size, torch.SymInt)
    }


def _range_of(
    leaf: Any, dim: int, number: int, limits: tuple[int | None, int | None], size: Any
) -> _Range:
    """Returns the smallest, the optimal and the largest size of a dimension in one of the ranges.

    Args:
        leaf: What was passed for the input; None where nothing was.
        dim: The dimension.
        number: The range.
        limits: The smallest and the largest size that ``dynamic_shapes`` declares.
        size: The size in the program.
    """
    least, most = limits
    if isinstance(leaf, Input):
        low, optimal, high = (shape[dim] for shape in leaf.in_profile(number))
        return max(low, least or 0), optimal, high if most is None else min(high, most)
    if least == 0:  # only an Input asks for empty tensors
        least = 1
    optimal = int(leaf.shape[dim]) if isinstance(leaf, torch.Tensor) else size.node.hint
    return least, optimal, most


def size_profiles(
    sizes: Sequence[DeclaredSize], count: int, taken: Mapping[Any, tuple[int, int | None]]
) -> tuple[Profile, ...]:
    """Returns the declared sizes as profiles: in each, the range of each symbol of the program's input shapes.

    A range makes no profile if two inputs have one size, and their ranges none in common.

    Args:
        sizes: The dimensions whose sizes vary.
        count: How many ranges the inputs have.
        taken: The smallest and the largest value of each symbol that the program takes, for what is not declared.

    Raises:
        InputError: A dynamic size has no upper bound, or ranges have no size in common.
    """
    profiles: list[dict[Any, SizeRange]] = [{} for _ in range(count)]
    for size in sorted(sizes, key=lambda size: not size.linear.is_symbol):
        symbol = size.linear.symbol
        for number, profile in enumerate(profiles):
            others = profile.get(symbol)
            limits = (others.min, others.max) if others else taken.get(symbol, (1, None))
            values = size.values(number, limits)
            profile[symbol] = others.intersect(values) if others else values
    possible = [
        profile for profile in profiles if all(size.min <= size.max for size in profile.values())
    ]
    if not possible:
        raise _nothing_in_common(sizes, profiles[0])
    return tuple(possible)


def _nothing_in_common(sizes: Sequence[DeclaredSize], profile: Profile) -> InputError:
    """Returns the error of ranges that no value of a symbol satisfies."""
    symbol = next(symbol for symbol, size in profile.items() if size.min > size.max)
    own = [str(size.dimension) for size in sizes if size.linear.symbol == symbol]
    return InputError(
        f"The program has one size for {' and '.join(own)}, and no size is in all of the ranges that you asked for "
        "there. Declare ranges with sizes in common."
    )


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


def _check_fixed(leaf: Any, dim: int, dimension: Dimension, placeholder: Node) -> None:
    """Checks that no range was asked for in a dimension that the exported program fixed.

    Raises:
        InputError: There was one.
    """
    if not isinstance(leaf, Input):
        return
    minimum, _, maximum = leaf.bounds
    if minimum[dim] == maximum[dim]:
        return
    size: Any = dimension.size
    lines = fixing_lines(shape_env_of(placeholder.graph), size)
    line = f" ({lines[0]})" if lines else ""
    if isinstance(leaf, Number):
        raise InputError(
            f"You asked for {minimum[dim]} to {maximum[dim]} in {dimension}, but the model fixes it to {size}{line}. "
            "Make the code independent of the number, or give a fixed one. With dynamic_shapes, the number has an "
            f"entry there: torch.export.Dim.AUTO(min={minimum[dim]}, max={maximum[dim]}). If no op reads the number, "
            "export the model without strict=True."
        )
    raise InputError(
        f"You asked for {minimum[dim]} to {maximum[dim]} in {dimension}, but the model fixes it to {size}{line}: "
        "something in its code or its ops depends on that number. Make the code independent of it, or give a fixed "
        "size. If it is len() of a tensor or int() of a size, write x.shape[0], or compile what "
        "torch.export.export(..., strict=True) returns. If a feature map has one pixel for the optimal size, give a "
        "larger optimal size."
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
        if isinstance(leaf, (torch.Tensor, Input, int))
        for dim, declared in _dimensions_of(specs.get(id(leaf)))
        if (limits := _limits(declared)) != (None, None)
    }
    program.graph_module.meta[_MINIMA] = {
        (number, dim): least
        for number, leaf in enumerate(inputs.leaves)
        if isinstance(leaf, Input)
        for dim, least in enumerate(leaf.bounds[0])
    }


def declared_minima(exported: ExportedProgram) -> dict[Any, int]:
    """Returns the least value of each symbol that was declared where a program was exported."""
    limits = {
        dimension: least for dimension, (least, _) in declared_limits(exported).items() if least
    }
    limits |= exported.graph_module.meta.get(_MINIMA, {})
    minima: dict[Any, int] = {}
    for number, node in enumerate(user_inputs(exported)):
        for dim, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            linear = linear_size(size.node.expr) if isinstance(size, torch.SymInt) else None
            if linear is not None and (least := limits.get((number, dim))) is not None:
                value, _ = linear.values(least, least)
                minima[linear.symbol] = max(value, minima.get(linear.symbol, value))
    return minima


def declared_limits(exported: ExportedProgram) -> Limits:
    """Returns the limits that were declared where a program was exported."""
    return exported.graph_module.meta.get(_KEY, {})  # type: ignore[no-any-return]


def _dimensions_of(shape: Any) -> Sequence[tuple[int, Any]]:
    """Returns the dimensions of a shape in ``dynamic_shapes``, by their places; a number has one."""
    if shape is not None and not isinstance(shape, (Mapping, Sequence)):
        return [(0, shape)]
    return [*(shape.items() if isinstance(shape, Mapping) else enumerate(shape or ()))]


def _limits(dimension: Any) -> tuple[int | None, int | None]:
    """Returns the limits of a dimension. A named one has a minimum of 0 also where none was declared."""
    least, most = (getattr(dimension, name, None) for name in ("min", "max"))
    is_named = isinstance(dimension, torch.export.Dim)
    return (
        least if isinstance(least, int) and not (is_named and least == 0) else None,
        most if isinstance(most, int) else None,
    )
