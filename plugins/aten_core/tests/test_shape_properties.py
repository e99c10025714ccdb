"""Shape ops agree with PyTorch for any shape and any arguments, static and dynamic."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import torchtrt
from tests.support.modules import Function
from tests.support.versions import since
from torchtrt.errors import InputError

VERSIONS = ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0")
DTYPES = (torch.float32, torch.float16, torch.int64, torch.bool)

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def tries(*strategies: Any) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Makes a test of a property: of 8 examples, and of 25 in a slow one."""

    def make(test: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("count", [8, pytest.param(25, marks=pytest.mark.slow)])
        def tried(count: int) -> None:
            drawn = settings(
                max_examples=count,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow],
                derandomize=True,
            )
            drawn(given(*strategies)(test))()

        tried.__name__, tried.__doc__ = test.__name__, test.__doc__
        return tried

    return make


@st.composite
def runs(draw: Any) -> tuple[str, torch.dtype, bool]:
    """Returns a version, a dtype, and whether the first dimension varies."""
    version, dtype = draw(st.sampled_from(VERSIONS)), draw(st.sampled_from(DTYPES))
    return version, dtype, draw(st.booleans())


def numbers(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor with another value at every place, as far as its dtype can."""
    return torch.arange(1, prod(shape) + 1).reshape(tuple(shape)).remainder(7 * 11).to(dtype)


def agree(
    function: Callable[..., Any],
    shapes: Sequence[Sequence[int]],
    run: tuple[str, torch.dtype, bool],
) -> None:
    """Compiles a function with everything in engines, and compares it with PyTorch: every element is the same.

    Where the first dimension of the first tensor varies it is compiled for 1 to 8, or what exporting
    leaves of that, and run at several sizes.
    """
    version, dtype, dynamic = run
    inputs = tuple(numbers(shape, dtype) for shape in shapes)
    dims = {"inputs": ({0: torch.export.Dim.AUTO(min=1, max=8)}, *[None] * (len(inputs) - 1))}
    model = Function(function).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(
            model, inputs, dynamic_shapes=dims if dynamic else None, strict=False
        )
    with torchtrt.use_tensorrt(version):
        compiled = torchtrt.compile(exported, require_full_compilation=True)
        torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=0, atol=0)
        for size in (1, 2, 5, 8) if dynamic else ():
            others = (numbers((size, *shapes[0][1:]), dtype), *inputs[1:])
            try:
                actual = compiled(*others)
            except InputError:  # exporting found that the function needs other sizes
                continue
            torch.testing.assert_close(actual, model(*others), rtol=0, atol=0)


@st.composite
def shapes_and_dims(draw: Any, minimum: int = 1) -> tuple[list[int], int]:
    """Returns a shape and one of its dimensions, counted from the front or from the end."""
    shape = draw(st.lists(st.integers(1, 4), min_size=minimum, max_size=4))
    return shape, draw(st.integers(-len(shape), len(shape) - 1))


@st.composite
def factors(draw: Any, number: int) -> list[int]:
    """Returns numbers whose product is ``number``, ones among them."""
    parts: list[int] = []
    while number > 1:
        divisor = draw(st.sampled_from([d for d in range(2, number + 1) if number % d == 0]))
        parts.append(divisor)
        number //= divisor
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), 1)
    return parts


@tries(st.data(), shapes, runs())
def test_reshape(data: Any, shape: list[int], run: Any) -> None:
    """To any sizes with as many elements, one of them inferred, in place of the first or after it."""
    wanted = data.draw(factors(prod(shape[1:])))
    wanted.insert(data.draw(st.integers(0, len(wanted))), -1)
    agree(lambda x: x.reshape(wanted), [shape], run)
    agree(
        lambda x: x.reshape([x.shape[0] if size == -1 else size for size in wanted]), [shape], run
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_reshape_that_keeps_a_size_and_computes_another_takes_sizes_of_zero(version: str) -> None:
    """What is left of no elements cannot be inferred."""
    model = Function(lambda x: (x * 2).reshape(1, x.shape[0] * 4, x.shape[2]))
    sizes = torchtrt.Input(min_shape=(0, 4, 0), opt_shape=(3, 4, 5), max_shape=(6, 4, 10))
    with torchtrt.use_tensorrt(version):
        compiled = torchtrt.compile(model.eval(), [sizes], min_block_size=1)
        for shape in ((3, 4, 5), (3, 4, 0), (0, 4, 5), (6, 4, 1)):
            x = torch.rand(shape)
            torch.testing.assert_close(compiled(x), model(x))


@tries(st.data(), shapes, runs())
def test_permute(data: Any, shape: list[int], run: Any) -> None:
    """To any order of the dimensions."""
    order = data.draw(st.permutations(range(len(shape))))
    agree(lambda x: x.permute(order), [shape], run)


@tries(shapes_and_dims(), shapes_and_dims(), runs())
def test_transpose(one: Any, other: Any, run: Any) -> None:
    """Any two dimensions exchanged."""
    shape, first = one
    second = other[1] % len(shape)
    agree(lambda x: x.transpose(first, second), [shape], run)


@tries(
    shapes_and_dims(),
    st.none() | st.integers(-6, 6),
    st.none() | st.integers(-6, 6),
    st.integers(1, 3),
    runs(),
)
def test_slice(one: Any, start: int | None, end: int | None, step: int, run: Any) -> None:
    """From anywhere to anywhere in any step, by Python's rules."""
    shape, dim = one
    agree(lambda x: torch.ops.aten.slice.Tensor(x, dim, start, end, step), [shape], run)


@since("2.13", "accepts an index out of range in a dynamic dimension")
@tries(st.data(), shapes_and_dims(), runs())
def test_select(data: Any, one: Any, run: Any) -> None:
    """Any index, counted from the front or from the end."""
    shape, dim = one
    index = data.draw(st.integers(-shape[dim], shape[dim] - 1))
    agree(lambda x: x.select(dim, index), [shape], run)


@tries(shapes_and_dims(minimum=2), runs())
def test_unbind(one: Any, run: Any) -> None:
    """Every index of a dimension whose size is fixed."""
    shape, dim = one
    agree(lambda x: x.unbind(dim or 1), [shape], run)


@tries(shapes_and_dims(), runs())
def test_unsqueeze_and_squeeze(one: Any, run: Any) -> None:
    """A new dimension anywhere, and back."""
    shape, dim = one
    agree(lambda x: x.unsqueeze(dim), [shape], run)
    agree(lambda x: x.unsqueeze(dim).squeeze(dim) == x, [shape], run)


@tries(st.data(), shapes, runs())
def test_squeeze_all(data: Any, shape: list[int], run: Any) -> None:
    """Every dimension of size 1 goes, wherever it is."""
    positions = [index for index, size in enumerate(shape) if size == 1 and index > 0]
    named = data.draw(st.lists(st.sampled_from(positions), unique=True)) if positions else []
    agree(lambda x: x.squeeze(named), [shape], run)


@tries(st.data(), shapes, runs())
def test_expand(data: Any, shape: list[int], run: Any) -> None:
    """Dimensions of size 1 to any size, new dimensions in front, the others as they are."""
    ones = [size if data.draw(st.booleans()) else 1 for size in shape[1:]]
    wanted = [full if size == 1 else -1 for size, full in zip(ones, shape[1:], strict=True)]
    front = data.draw(st.lists(st.integers(1, 3), max_size=2))
    agree(lambda x: x.expand(*front, x.shape[0], *wanted), [[shape[0], *ones]], run)


@tries(st.data(), shapes, runs())
def test_repeat(data: Any, shape: list[int], run: Any) -> None:
    """Any number of copies along each dimension, and along new ones."""
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(shape), max_size=len(shape) + 1))
    agree(lambda x: x.repeat(counts), [shape], run)


@tries(st.data(), shapes_and_dims(), runs())
def test_cat(data: Any, one: Any, run: Any) -> None:
    """Tensors that differ in size along the dimension, one of them the first again."""
    shape, dim = one
    other = list(shape)
    if dim % len(shape) != 0 or not run[2]:
        other[dim] = data.draw(st.integers(1, 4))
    if dim % len(shape) == 0:
        agree(lambda x, y: torch.cat([x, y, x], dim), [shape, other], run)
    else:
        agree(lambda x: torch.cat([x, x.narrow(dim, 0, 1), x], dim), [shape], run)


@tries(shapes_and_dims(), st.integers(1, 3), runs())
def test_stack(one: Any, count: int, run: Any) -> None:
    """Equal tensors along a new dimension."""
    shape, dim = one
    agree(lambda x: torch.stack([x] * count, dim), [shape], run)


@tries(st.data(), shapes_and_dims(minimum=2), runs())
def test_split(data: Any, one: Any, run: Any) -> None:
    """Into pieces of one size, the last one smaller, and into pieces of given sizes."""
    shape, dim = one
    dim = dim if dim % len(shape) else 1
    size = data.draw(st.integers(1, shape[dim]))
    agree(lambda x: x.split(size, dim), [shape], run)
    agree(
        lambda x: x.split([size, shape[dim] - size] if size < shape[dim] else [size], dim),
        [shape],
        run,
    )


@tries(st.data(), shapes, runs())
def test_flip(data: Any, shape: list[int], run: Any) -> None:
    """Any dimensions reversed."""
    dims = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    agree(lambda x: x.flip(dims), [shape], run)


@tries(shapes_and_dims(), st.integers(-3, 3), runs())
def test_roll(one: Any, shift: int, run: Any) -> None:
    """Elements moved along a dimension by at most its size."""
    shape, dim = one
    positions = shift % shape[dim] if not run[2] or dim % len(shape) else shift and 1
    agree(lambda x: x.roll(positions, dim), [shape], run)


@tries(st.data(), shapes, runs())
def test_pad(data: Any, shape: list[int], run: Any) -> None:
    """Any number of elements before and after the last dimensions."""
    count = data.draw(st.integers(1, len(shape)))
    amounts = data.draw(st.lists(st.integers(0, 3), min_size=2 * count, max_size=2 * count))
    agree(lambda x: torch.nn.functional.pad(x, amounts, value=1), [shape], run)


@tries(shapes_and_dims(), shapes_and_dims(), runs())
def test_flatten_and_unflatten(one: Any, other: Any, run: Any) -> None:
    """Any dimensions that follow each other become one, and one becomes several."""
    shape = one[0]
    first, last = sorted((one[1] % len(shape), other[1] % len(shape)))
    agree(lambda x: x.flatten(first, last), [shape], run)
    agree(lambda x: x.unflatten(last, (1, -1)), [shape], run)
