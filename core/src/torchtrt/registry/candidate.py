"""Candidates for a node, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from torchtrt.contract import (
    Converter,
    SchemaArguments,
    Validator,
    check_names,
    declared_dtypes,
    qualified_function,
)
from torchtrt.packs import CallingConvention, ConverterPriority, ConverterSupport, PackInfo, Problem
from torchtrt.targets import Target, qualified_name


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A converter considered for a node.

    Attributes:
        target: The op that it converts.
        support: The converter and what it can handle.
        priority: Whether it went to the front or to the back of the op's candidates.
        calling_convention: How it is called.
        pack: Whose it is.
        validate: Its validator as ``(node, settings)``, or ``None`` if every node will do.
        arguments: How its arguments are bound, if it is of the ``SCHEMA`` convention.
        tensorrt: The TensorRT versions that its pack and itself work with; all if empty.
    """

    target: Target
    support: ConverterSupport
    priority: ConverterPriority
    calling_convention: CallingConvention
    pack: PackInfo
    validate: Validator | None = field(default=None, repr=False)
    arguments: SchemaArguments | None = field(default=None, repr=False)
    tensorrt: str = ""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The names of the dtypes that its checks accept; none where no check restricts them."""
        return declared_dtypes(self.support.capability_validator)

    @property
    def checks(self) -> str:
        """The names of its validator's checks."""
        return ", ".join(check_names(self.support.capability_validator))

    @property
    def converter(self) -> Converter:
        """The converter function."""
        return self.support.converter_implementation

    @property
    def qualified_function(self) -> str:
        """Where its function is: ``"module:function"``."""
        return qualified_function(self.converter)


@dataclass(frozen=True, slots=True, eq=False)
class DecompositionCandidate:
    """A decomposition of an op; the first by the order law is the op's.

    Attributes:
        target: The op.
        function: What computes it by other ops.
        priority: Whether it went to the front or to the back of the op's decompositions.
        pack: Whose it is.
    """

    target: Target
    function: Callable[..., Any]
    priority: ConverterPriority
    pack: PackInfo

    @property
    def qualified_function(self) -> str:
        """Where its function is: ``"module:function"``."""
        return qualified_function(self.function)


RejectionCode = Literal[
    "declined", "validator-failed", "tensorrt-version", "tensorrt-capability",
    "dynamic-shapes", "behind-decomposition", "no-such-preference", "user-excluded", "dtype", "no-converter",
    "not-loaded",
    "decomposition", "block-too-small", "no-input", "unbounded-size", "number", "unbuilt", "failed",
    "write", "view", "divided",
]  # fmt: skip
"""The kind of a reason; ``docs/registry.md`` explains each."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a candidate was passed over, or a node stays in PyTorch.

    Attributes:
        candidate: The candidate, or ``None`` when the reason is about the node as a whole.
        reason: Why, in words.
        code: What kind of reason it is.
        advice: What can be done about it, from the pack.
        traceback: Where it failed, if it failed rather than rejected the node.
    """

    candidate: Candidate | None
    reason: str
    code: RejectionCode = "declined"
    advice: str = ""
    traceback: str | None = None


# Not frozen: one is made per node, and a frozen dataclass takes three times as long to make.
@dataclass(slots=True)
class Resolution:
    """The outcome of a lookup. It is true when there is a converter.

    Attributes:
        target: The op that was looked up.
        node_name: The node's name in its graph.
        chosen: The candidate that converts the node, if any.
        rejections: Why each candidate before it was passed over.
        candidates: All candidates for the op, in the order in which they are tried.
        problems: When nothing was chosen: the problems of packs that might have had a converter.
    """

    target: Target
    node_name: str
    chosen: Candidate | None
    rejections: tuple[Rejection, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    problems: tuple[Problem, ...] = ()

    def __bool__(self) -> bool:
        return self.chosen is not None

    @property
    def not_tried(self) -> tuple[Candidate, ...]:
        """The candidates that come after the chosen one."""
        if self.chosen is None:
            return ()
        asked = sum(rejection.candidate is not None for rejection in self.rejections)
        return self.candidates[asked + 1 :]

    @property
    def reasons(self) -> tuple[Rejection, ...]:
        """Why nothing was chosen: each candidate passed over, or that there is none, and packs that are not loaded."""
        none = Rejection(None, "no pack has a converter for it", "no-converter")
        unloaded = (Rejection(None, problem.what, "not-loaded") for problem in self.problems)
        return (*(self.rejections or (none,)), *unloaded)

    def explain(self) -> str:
        """Returns the outcome in words: a headline, and a line for every candidate passed over or pack not loaded."""
        return "\n".join((self._headline(), *(f"  {line}" for line in self.details())))

    def details(self) -> list[str]:
        """Returns a line for every candidate passed over, not tried, or whose pack is not loaded."""
        lines = list(self._lines())
        width = max((len(label) for label, _ in lines), default=0)
        return [f"{label:<{width}}  {text}" if label else text for label, text in lines]

    def _headline(self) -> str:
        subject = f"{qualified_name(self.target)} (node %{self.node_name})"
        if self.chosen is not None:
            pack = self.chosen.pack
            return f"{subject} is converted by {pack.name} ({pack.origin}): {self.chosen.qualified_function}."
        if any(rejection.candidate is not None for rejection in self.rejections):
            return f"No converter accepted {subject}."
        if self.rejections:
            return f"{subject} is not converted."
        return f"No pack has a converter for {subject}."

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Yields for each candidate, and each pack that is not loaded, its name and what became of it."""
        for rejection in self.rejections:
            if rejection.candidate is None:
                yield "", rejection.reason
            else:
                yield rejection.candidate.pack.name, f"rejected: {rejection.reason}"
        for candidate in self.not_tried:
            yield candidate.pack.name, f"not tried: {candidate.qualified_function} comes later"
        for problem in self.problems:
            label = problem.pack or problem.distribution
            yield label, f"not loaded: {problem.what}" if label else problem.what
