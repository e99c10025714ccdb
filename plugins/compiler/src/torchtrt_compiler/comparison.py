"""Compares a compiled model with eager PyTorch: the largest difference of each output, and where it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Graph

from torchtrt.errors import VerificationError
from torchtrt.tensorrt.selection import device_objection, use_module
from torchtrt.torch_internals import pytree
from torchtrt_compiler.inputs import CallInputs
from torchtrt_compiler.trial_calls import (
    Clock,
    example_leaves,
    given_leaves,
    is_plain,
    unchanged,
    with_given,
)
from torchtrt_runtime.checks.numbers import as_numbers
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.reports.rows import VerifiedOutput
from torchtrt_runtime.weights.forms import is_same
from torchtrt_runtime.weights.graph_attributes import written_attributes

_BOUNDS = ("min", "opt", "max")
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-4, torch.float32: 1e-4}
"""The relative tolerance of results that were computed in a dtype, and the absolute one of results around 1."""

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of the inputs of a call."""


@dataclass(frozen=True)
class Difference:
    """Where an output differs the most from eager PyTorch or, if any element is not accepted, exceeds it the most.

    Attributes:
        output: The output's place among the results, ``"output 0"``.
        sizes: The shapes of the inputs.
        largest: The absolute difference there; infinite where shapes or dtypes differ, or one is NaN.
        tolerance: The difference that is accepted there.
        indices: The element, by its index in each dimension; None where shapes or dtypes differ, or there are none.
        expected: The element in eager PyTorch, as text; the dtype and the shape if there is no such element.
        actual: The same of the compiled model.
    """

    output: str
    sizes: Shapes
    largest: float
    tolerance: float
    indices: tuple[int, ...] | None = None
    expected: str = ""
    actual: str = ""

    @property
    def agrees(self) -> bool:
        """True if the difference is accepted; NaN is not."""
        return self.largest <= self.tolerance

    def on(self, tensorrt: str) -> VerifiedOutput:
        """Returns the difference as a row of a report, with the TensorRT that computed the output."""
        return VerifiedOutput(tensorrt, self.output, self.sizes, self.largest, self.tolerance)


def compare_with_eager(
    compiled: CompiledModule,
    model: torch.nn.Module | ExportedProgram,
    inputs: CallInputs,
) -> list[Difference]:
    """Returns the differences of each output, for inputs of the limits of each range of sizes.

    Args:
        compiled: The compiled model.
        model: The model in eager PyTorch.
        inputs: Inputs to use where they have these sizes; random numbers or ones otherwise.
    """
    all_differences: list[Difference] = []
    for shapes, leaves in inputs_at_limits(compiled, inputs):
        all_differences += differences(compiled, model, leaves, shapes)
    return all_differences


def running_objection(compiled: CompiledModule) -> str:
    """Returns why the engines of a model cannot run on this machine; ``""`` if they can."""
    device = Clock.of(example_leaves(compiled)).device
    for engine in compiled.graph_module.modules():
        if isinstance(engine, EngineModule):
            with use_module(engine.tensorrt_module):
                if objection := device_objection(device, engine.compute_capabilities):
                    return objection
    return ""


def inputs_at_limits(
    compiled: CompiledModule, inputs: CallInputs
) -> Iterator[tuple[Shapes, list[Any]]]:
    """Yields flattened inputs with their shapes: the given ones, and generated ones at the limits of each range."""
    seen: set[Shapes] = set()
    for leaves in _inputs(compiled, inputs):
        shapes = tuple(tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor))
        if shapes not in seen:
            seen.add(shapes)
            yield shapes, leaves


def _inputs(compiled: CompiledModule, inputs: CallInputs) -> Iterator[list[Any]]:
    """Yields flattened inputs. Several may have the same shapes."""
    leaves = given_leaves(compiled, inputs)
    for profile in compiled.checks.profiles:
        for bound in _BOUNDS:
            sizes = {symbol: getattr(limits, bound) for symbol, limits in profile.items()}
            yield with_given(example_leaves(compiled, sizes), leaves)
    if leaves and all(map(is_plain, leaves)) and compiled.checks.profiles[0]:
        yield [leaf.detach().clone() for leaf in leaves]


def differences(
    compiled: CompiledModule,
    model: torch.nn.Module | ExportedProgram,
    leaves: Sequence[Any],
    shapes: Shapes,
) -> Iterator[Difference]:
    """Yields the difference of each output for some flattened inputs.

    Tensors that the model writes to, in eager PyTorch and compiled, hold their old values afterwards.

    Raises:
        VerificationError: Eager PyTorch does not run the model here.
    """
    eager = model.module() if isinstance(model, ExportedProgram) else model
    with unchanged(compiled.graph_module, leaves) as restore:
        try:
            with _same_buffers(eager, compiled.graph_module.graph):
                expected = _called(eager, compiled, leaves)
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            raise VerificationError(
                "Nothing can be compared, because eager PyTorch does not run the model for inputs of the shapes "
                f"{shapes}: {type(error).__name__}: {first}. Verify it in another dtype, with "
                "other sizes, or elsewhere."
            ) from error
        restore()
        actual = _called(compiled, compiled, leaves)
    rate = _TOLERANCES.get(compiled.settings.autocast or torch.float32, 0.0)
    for number, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(theirs, torch.Tensor):
            worst = largest_difference(mine, theirs, rate)
            texts = _element(theirs, worst.indices), _element(mine, worst.indices)
            yield Difference(f"output {number}", shapes, *worst, *texts)


def _called(model: Any, interface: CompiledModule, leaves: Sequence[Any]) -> list[Any]:
    """Returns a model's flattened results for copies of inputs."""
    copies = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    copies = as_numbers(copies, interface.checks.numbers)
    args, kwargs = pytree.tree_unflatten(copies, interface.input_tree)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        results = pytree.tree_leaves(model(*args, **kwargs))
    return [result.clone() if isinstance(result, torch.Tensor) else result for result in results]


class Worst(NamedTuple):
    """The element that differs the most or, where any exceeds its tolerance, the one that exceeds it the most.

    Attributes:
        difference: Its absolute difference.
        tolerance: The difference that is accepted there.
        indices: Its index in each dimension; None where the tensors have other shapes or dtypes, or no elements.
    """

    difference: float
    tolerance: float
    indices: tuple[int, ...] | None


@contextmanager
def _same_buffers(model: torch.nn.Module, graph: Graph) -> Iterator[None]:
    """Gives buffers their old values after a ``with`` block, if a call of the compiled graph writes to some."""
    buffers = model.buffers() if written_attributes(graph) else ()
    held = [(buffer, buffer.clone()) for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in held:
                # A write that changes nothing would count as a change.
                if not is_same(buffer, value):
                    buffer.copy_(value)


def largest_difference(mine: torch.Tensor, theirs: torch.Tensor, rate: float) -> Worst:
    """Returns where a tensor differs the most from what it should be.

    Equal infinities, and NaN in both, do not differ. NaN in one of them, and another shape, differ infinitely.

    Args:
        mine: The tensor.
        theirs: What it should be.
        rate: The relative tolerance, of floating-point numbers.
    """
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return Worst(float("inf"), 0.0, None)
    if not theirs.numel():
        return Worst(0.0, 0.0, None)
    is_number = theirs.dtype.is_floating_point or theirs.dtype.is_complex
    rate = max(rate, _TOLERANCES.get(theirs.dtype, 1e-4)) if is_number else 0.0
    wide = torch.complex128 if theirs.dtype.is_complex else torch.float64
    left, right = mine.to(wide), theirs.to(wide)
    same = (left == right) | (left.isnan() & right.isnan())
    difference = (left - right).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    tolerance = rate * (1 + right.abs().nan_to_num(nan=0.0, posinf=0.0))
    excess = difference - tolerance
    worst = (excess if excess.max() > 0 else difference).argmax()
    indices = tuple(int(index) for index in torch.unravel_index(worst, theirs.shape))
    return Worst(float(difference[indices]), float(tolerance[indices]), indices)


def _element(tensor: torch.Tensor, indices: tuple[int, ...] | None) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}" if indices is None else str(tensor[indices].item())
