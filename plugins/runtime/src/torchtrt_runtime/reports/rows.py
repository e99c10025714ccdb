"""The rows of a compilation's report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ConvertedOps:
    """How many nodes of one op one pack's converter handles.

    Attributes:
        op: The op's qualified name.
        pack: The pack's name and version.
        converter: The converter, as ``module:function``.
        count: How many nodes.
        dtypes: How many of them have a first result of each dtype, the most frequent first.
    """

    op: str
    pack: str
    converter: str
    count: int
    dtypes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockReport:
    """One block: one engine.

    Attributes:
        name: The block's name in the compiled module.
        nodes: How many calls it holds.
        layers: How many TensorRT layers they became; 0 in a dry run.
        plan_bytes: The size of its engine; 0 in a dry run.
        cached: Whether its engine was taken from the cache.
        calls: How often a call of the model runs its engine: once for each of the blocks that are equal.
    """

    name: str
    nodes: int
    layers: int = 0
    plan_bytes: int = 0
    cached: bool = False
    calls: int = 1


@dataclass(frozen=True)
class LayerUse:
    """How a compilation uses a layer that only some versions of TensorRT have.

    Attributes:
        capability: The name of the ``Capability``: ``"ATTENTION"``.
        layer: The layer in words: ``"the layer IAttention"``.
        nodes: The nodes in engines that become the layer.
        model_lines: The lines of the model that they come from, each once.
        missed: Why other nodes do not become the layer, each reason with the names of these nodes.
    """

    capability: str
    layer: str
    nodes: tuple[str, ...] = ()
    model_lines: tuple[str, ...] = ()
    missed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


OTHER_PROGRAM = (
    "For the other sizes, compile the model a second time, for them alone or for one of them, or make its code "
    "independent of the size."
)
"""The advice for sizes for which a model's code takes another branch."""
OTHER_EXPORT = "For the other sizes, export the model with a wider range, or for them alone."
"""The advice for sizes that an exported program does not take."""


def shortened(condition: str) -> str:
    """Returns the two ends of a condition on sizes: conditions of shifted windows have thousands of characters."""
    return condition if len(condition) <= 100 else f"{condition[:60]} ... {condition[-35:]}"


def _span(sizes: tuple[int, int]) -> str:
    low, high = sizes
    return str(low) if low == high else f"{low} to {high}"


def dimension_text(name: str, dim: int | None) -> str:
    """Returns a dimension of an input, or an input that is a number, as messages name it."""
    return f"input {name!r}" if dim is None else f"dimension {dim} of input {name!r}"


@dataclass(frozen=True)
class NarrowedSize:
    """A dynamic size whose values are fewer than were asked for, because the model's code excludes some.

    Attributes:
        input: The input's name.
        dim: The dimension; ``None`` for an input that is a number.
        asked: The smallest and the largest size that were asked for.
        compiled: The smallest and the largest that the engines take.
        model_line: The line of the model that decides it, where PyTorch has it.
        condition: The condition that the remaining sizes satisfy, as the model's code could write it. It is empty if
            the two limits decide. It may be on several sizes, and is then true for some of their combinations.
        is_of_program: Whether the program that was given to ``torchtrt.compile`` has these limits.
        is_refused: Whether the model itself refuses the sizes beyond these limits.
        depends_on: The dimension of another input whose range allows no others: ``"dimension 0 of input 'y'"``.
    """

    input: str
    dim: int | None
    asked: tuple[int, int]
    compiled: tuple[int, int]
    model_line: str = ""
    condition: str = ""
    is_of_program: bool = False
    is_refused: bool = False
    depends_on: str = ""

    def __str__(self) -> str:
        where = f", where {shortened(self.condition)}" if self.condition else ""
        compiled = _span(self.compiled)
        advice = "" if self.condition else f"Declare {compiled} to accept that. "
        return (
            f"You asked for {_span(self.asked)} in {dimension_text(self.input, self.dim)}, {self.reason}. "
            f"Compiled for {compiled}{where}: calls with other sizes are refused. {advice}{self.advice}"
        )

    @property
    def advice(self) -> str:
        """The way to the other sizes."""
        if self.depends_on:
            return f"For the other sizes, ask for more in {self.depends_on} as well."
        if self.is_refused:
            return "The other sizes fail in PyTorch, too."
        return OTHER_EXPORT if self.is_of_program else OTHER_PROGRAM

    @property
    def reason(self) -> str:
        """Why there are fewer sizes, as the end of a sentence."""
        line = f" because of {self.model_line}" if self.model_line else ""
        if self.depends_on:
            return f"but the size depends on {self.depends_on}, where you asked for other sizes"
        if self.is_refused:
            return f"but the model itself refuses some of these sizes{line}"
        if self.is_of_program:
            return f"but the program takes {_span(self.compiled)}{line}"
        return f"but PyTorch exports the model differently for some of these sizes{line}"


@dataclass(frozen=True)
class VerifiedOutput:
    """The largest difference between one output on the reference TensorRT and in eager PyTorch.

    Attributes:
        tensorrt: The reference that ran the network.
        output: The output's place among the results, ``"output 0"``.
        sizes: The shapes of the inputs.
        difference: The largest absolute difference.
        tolerance: The largest absolute difference that is accepted for the element where it occurs.
    """

    tensorrt: str
    output: str
    sizes: tuple[tuple[int, ...], ...]
    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """True if the difference is accepted; NaN is not."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        shapes = ", ".join(" x ".join(map(str, shape)) or "a number" for shape in self.sizes)
        return (
            f"{self.output} differs from eager PyTorch by {self.difference:.3g} on {self.tensorrt} for inputs of "
            f"{shapes}; the tolerance is {self.tolerance:.3g}"
        )
