"""One case per line: an op, its arguments, and the check that its engine does what PyTorch does."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

import torchtrt
from torchtrt.errors import FullCompilationError
from torchtrt.recurrent_sizes import symbolic_sequence_lengths
from torchtrt.targets import parse_target, qualified_name
from torchtrt.tensorrt import is_real
from torchtrt.tensorrt.shims import reduces_integers_exactly

SIZES = {"b": (1, 3, 5), "s": (3, 5, 8)}
"""The minimum, usual and maximum size of the dimensions that vary."""


REAL: dict[str, Any] = {"disable_tf32": True, "tactic_sources": 0}
"""Settings for the real TensorRT: full precision, and no tactics of libraries that may be missing."""


@dataclass(frozen=True)
class T:
    """A tensor argument.

    Attributes:
        shape: Sizes, separated by spaces; ``b`` and ``s`` vary.
        dtype: The dtype.
        low: The minimum value.
        high: The maximum value; it does occur for integers.
        values: The values themselves, in place of random ones; the shape is then fixed.
    """

    shape: str = ""
    dtype: torch.dtype = torch.float32
    low: float = -3.0
    high: float = 3.0
    values: Any = None

    def make(self, point: int, seed: int) -> torch.Tensor:
        """Returns the tensor at the least (0), usual (1) or maximum (2) sizes."""
        if self.values is not None:
            return torch.tensor(self.values, dtype=self.dtype)
        sizes = [SIZES[part][point] if part in SIZES else int(part) for part in self.shape.split()]
        generator = torch.Generator().manual_seed(seed)
        if self.dtype is torch.bool:
            return torch.randint(0, 2, sizes, generator=generator).bool()
        if self.dtype.is_floating_point:
            uniform = torch.rand(sizes, generator=generator, dtype=torch.float32)
            return (self.low + (self.high - self.low) * uniform).to(self.dtype)
        return torch.randint(
            int(self.low), int(self.high) + 1, sizes, generator=generator, dtype=self.dtype
        )

    @property
    def dynamic(self) -> dict[int, Any]:
        """The dimensions that vary, as ``torch.export`` takes them."""
        parts = self.shape.split() if self.values is None else []
        return {index: _DIMS[part] for index, part in enumerate(parts) if part in SIZES}


_DIMS = {name: torch.export.Dim(name, min=low, max=high) for name, (low, _, high) in SIZES.items()}


@dataclass(frozen=True, eq=False)
class Case:
    """A call of an op that must be converted and agree with PyTorch.

    Attributes:
        ops: The ops that must be in engines.
        function: What is computed.
        args: Its arguments; every :class:`T` among them is an input of the model.
        kwargs: Its keyword arguments, likewise.
        tolerance: The largest relative and absolute difference.
        label: The test's name.
    """

    ops: tuple[str, ...]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-5
    label: str = ""

    @functools.cached_property
    def leaves(self) -> tuple[list[Any], Any]:
        """The arguments, flattened, and how they nest."""
        return pytree.tree_flatten(
            (self.args, self.kwargs), is_leaf=lambda leaf: isinstance(leaf, T)
        )

    def inputs(self, point: int) -> tuple[torch.Tensor, ...]:
        """Returns the model's inputs at the least, usual or maximum sizes."""
        specs = [leaf for leaf in self.leaves[0] if isinstance(leaf, T)]
        return tuple(spec.make(point, seed) for seed, spec in enumerate(specs))

    def model(self) -> torch.nn.Module:
        """Returns the call as a module whose inputs are the tensors."""
        return _Call(self)


class _Call(torch.nn.Module):
    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        (leaves, tree) = case.leaves
        self.filled, self.tree = leaves, tree

    def forward(self, *inputs: torch.Tensor) -> Any:
        rest = iter(inputs)
        leaves = [next(rest) if isinstance(leaf, T) else leaf for leaf in self.filled]
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        return self.case.function(*args, **kwargs)


def case(
    op: str | Sequence[str],
    *args: Any,
    function: Callable[..., Any] | None = None,
    tolerance: float = 1e-5,
    label: str = "",
    **kwargs: Any,
) -> Case:
    """Returns a case: strings among the arguments are shapes of float32 tensors.

    Args:
        op: The op that is called; or the ops that must be in the engine, with ``function`` saying what is computed.
        *args: The arguments.
        function: What is computed, if it is not the op itself.
        tolerance: The largest difference.
        label: What tells the case from others of the op.
        **kwargs: The keyword arguments.
    """
    ops = (op,) if isinstance(op, str) else tuple(op)
    if function is None:
        function = parse_target(op)
    return Case(
        ops,
        function,
        _shapes(args),
        _shapes(kwargs),
        tolerance,
        "-".join((*ops[:1], *filter(None, (label,)))),
    )


def decomposed(op: str, *args: Any, label: str = "", **kwargs: Any) -> Case:
    """Returns a case of an op that does not appear in the engine itself."""
    label = f"{op}-{label}" if label else op
    return case((), *args, function=parse_target(op), label=label, **kwargs)


def _shapes(values: Any) -> Any:
    return pytree.tree_map(
        lambda leaf: T(leaf) if isinstance(leaf, str) and _is_shape(leaf) else leaf,
        values,
        is_leaf=lambda leaf: isinstance(leaf, T),
    )


def _is_shape(text: str) -> bool:
    return all(part in SIZES or part.isdecimal() for part in text.split())


@functools.lru_cache(maxsize=64)
def _export(case: Case) -> torch.export.ExportedProgram:
    inputs = case.inputs(1)
    specs = [leaf for leaf in case.leaves[0] if isinstance(leaf, T)]
    shapes = {"inputs": tuple(spec.dynamic or None for spec in specs)}
    with torch.no_grad(), symbolic_sequence_lengths(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(case.model(), inputs, dynamic_shapes=shapes, strict=False)


def _numbers(exported: torch.export.ExportedProgram) -> set[str]:
    """Returns the ops that make numbers: an engine repeats those that it needs."""
    return {
        qualified_name(node.target)
        for node in exported.graph.nodes
        if node.op == "call_function" and not isinstance(node.meta["val"], torch.Tensor)
    }


def run(compiled: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Returns what a compiled model makes of tensors, on the CPU, wherever the TensorRT in use computes."""
    device = torch.device("cuda" if is_real() else "cpu")
    with torch.no_grad():
        result = compiled(*(x.to(device) for x in inputs))
    return pytree.tree_map(torch.Tensor.cpu, result)


def check(case: Case) -> None:
    """Compiles a case with everything in engines, and compares it with PyTorch at all its sizes."""
    real = REAL if is_real() else {}
    compiled = torchtrt.compile(_export(case), require_full_compilation=True, **real)
    converted = {row.op for row in compiled.report.converted} | _numbers(_export(case))
    if "aten.reshape.default" in converted:  # which is what lowering makes of views
        converted |= {"aten.view.default", "aten._unsafe_view.default"}
    assert set(case.ops) <= converted, f"converted {sorted(converted)}"
    specs = [leaf for leaf in case.leaves[0] if isinstance(leaf, T)]
    model = case.model()
    for point in (0, 1, 2) if any(spec.dynamic for spec in specs) else (1,):
        inputs = case.inputs(point)
        actual = run(compiled, *inputs)
        with torch.no_grad():
            expected = model(*inputs)
        torch.testing.assert_close(
            actual, expected, rtol=case.tolerance, atol=case.tolerance, equal_nan=True
        )


def check_where_exact(case: Case) -> None:
    """As :func:`check`; or the op is rejected because this TensorRT's integers are not exact, or it lacks the dtype."""
    try:
        check(case)
    except FullCompilationError as error:
        lacks = "loses bits beyond 2^24" in str(error) or "has no bfloat16" in str(error)
        if reduces_integers_exactly() or not lacks:
            raise
