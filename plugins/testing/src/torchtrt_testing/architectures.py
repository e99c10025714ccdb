"""Architectures: small models with random weights that must become engines alone, with inputs and dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import torchtrt
from torchtrt.torch_internals import pytree
from torchtrt_compiler.exporting.export import export
from torchtrt_testing.checking import chosen_settings, run_compiled

Inputs = Callable[[int, int], tuple[Tensor, ...]]
Axes = tuple[dict[int, str], ...]

BATCH: Axes = ({0: "batch"},)
SEQUENCE: Axes = ({0: "batch", 1: "length"},)
BATCHES = (1, 2, 4)
"""The minimum, usual and maximum batch."""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""The largest difference for weights of a dtype, relative to the largest value."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """A model and its inputs.

    Attributes:
        name: The architecture's name.
        build: Makes the model.
        inputs: Makes its inputs for a batch and a length.
        axes: For each input, the names of its dynamic dimensions, by number: ``batch`` or ``length``.
        lengths: The minimum, usual and maximum length.
        call: Calls the model with the inputs.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    axes: Axes
    lengths: tuple[int, int, int] = (1, 1, 1)
    call: Callable[..., Any] = nn.Module.__call__

    def model(self) -> nn.Module:
        """Returns the model in eval mode, with the same random weights every time."""
        torch.manual_seed(0)
        return Call(self.build(), self.call).eval()

    def example(self, batch: int = BATCHES[1], length: int | None = None) -> tuple[Tensor, ...]:
        """Returns inputs of these sizes, the usual ones by default, the same every time."""
        torch.manual_seed(1)
        return self.inputs(batch, self.lengths[1] if length is None else length)

    def dynamic_shapes(self) -> dict[str, tuple[dict[int, Any], ...]]:
        """Returns the dynamic dimensions, as ``torch.export`` takes them."""
        ranges = {"batch": BATCHES, "length": self.lengths}
        used = {name for axes in self.axes for name in axes.values()}
        dims = {
            name: torch.export.Dim(name, min=ranges[name][0], max=ranges[name][-1])
            for name in sorted(used)
        }
        return {
            "inputs": tuple({dim: dims[name] for dim, name in axes.items()} for axes in self.axes)
        }

    def sizes(self) -> list[tuple[int, int]]:
        """Returns the (batch, length) pairs to check: the minimum, the usual, the maximum."""
        return list(zip(BATCHES, self.lengths, strict=True))

    def export(self, dtype: torch.dtype, varying: bool) -> ExportedProgram:
        """Returns the architecture with weights and inputs of a dtype as an exported program."""
        example = in_dtype(self.example(), dtype)
        dynamic = self.dynamic_shapes() if varying else None
        return export(self.model().to(dtype), example, {}, dynamic)

    def compile(self, exported: ExportedProgram, settings: Mapping[str, Any]) -> Any:
        """Returns a program of ``export`` as a compiled model, with nothing in PyTorch."""
        chosen = chosen_settings(settings)
        return torchtrt.compile(exported, require_full_compilation=True, **chosen)

    def compare(self, compiled: Callable[..., Any], dtype: torch.dtype, varying: bool) -> None:
        """Compares every output with eager PyTorch on the CPU, for each of the sizes if they vary.

        Raises:
            AssertionError: An output differs by more than the tolerance of the dtype.
        """
        model = self.model().to(dtype)
        for batch, length in self.sizes() if varying else self.sizes()[1:2]:
            inputs = in_dtype(self.example(batch, length), dtype)
            with torch.no_grad():
                expected = model(*inputs)
            assert_outputs_close(run_compiled(compiled, *inputs), expected, TOLERANCES[dtype])


class Call(nn.Module):
    """A model with tensors in and out, whatever its own signature is."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs: Tensor) -> Any:
        """Calls the model."""
        return self.call(self.model, *inputs)


def in_dtype(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Returns tensors, those of floating-point numbers in another dtype."""
    return tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors)


def assert_outputs_close(actual: Any, expected: Any, tolerance: float) -> None:
    """Checks every output; the tolerance is relative to the output's largest value."""
    actual, expected = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert [output.shape for output in expected] == [output.shape for output in actual]
    for result, eager in zip(actual, expected, strict=True):
        scale = eager.abs().max().item()
        torch.testing.assert_close(result, eager, rtol=0, atol=tolerance * scale)


def images(size: int) -> Inputs:
    """Returns what makes square images with three channels."""
    return lambda batch, _: (torch.randn(batch, 3, size, size),)


def tokens(count: int) -> Inputs:
    """Returns what makes sequences of tokens of a vocabulary."""
    return lambda batch, length: (torch.randint(1, count, (batch, length)),)


def signals(batch: int, length: int) -> tuple[Tensor]:
    """Returns sequences of numbers."""
    return (torch.randn(batch, length),)
