"""The layers at the boundary of loops and conditionals: what a network definition adds."""

# ruff: noqa: ARG002, ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchtrt_reference.semantics.operation import (
    BOOLEANS,
    INTEGERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.tensor_facts import TensorFacts


class _OfALoop(Operation):
    """A layer at the boundary of a loop. It has no function of its own: the build makes one node of the whole loop."""

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """A boundary whose tensors change from iteration to iteration."""
        return False


class Recurrence(_OfALoop):
    """A value that a loop carries from one iteration to the next."""

    name = "recurrence"
    interface = "IRecurrenceLayer"
    maximum_inputs = 2

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The type and shape of the initial value; the next value is checked when the loop is built."""
        return (TensorFacts(call.facts(0).dtype, call.shape(0)),)


class TripLimit(_OfALoop):
    """How often a loop runs: a count from outside, or a condition from inside."""

    name = "trip_limit"
    interface = "ITripLimitLayer"
    defaults = frozen({"kind": "COUNT"})
    outputs = 0

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """COUNT takes a scalar integer, WHILE a scalar boolean."""
        allowed = INTEGERS if call["kind"] == "COUNT" else BOOLEANS
        call.scalar(0, allowed, f"the {call['kind']} trip limit")
        return ()


class Iterator(_OfALoop):
    """One slice of a tensor per iteration."""

    name = "iterator"
    interface = "IIteratorLayer"
    defaults = frozen({"axis": 0, "reverse": False})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The shape without the axis."""
        call.require(call.facts(0).rank >= 1, "a scalar cannot be iterated")
        axis = call.axis()
        return (TensorFacts(call.facts(0).dtype, call.shape()[:axis] + call.shape()[axis + 1 :]),)


class LoopOutput(_OfALoop):
    """An output of a loop: the last value of a recurrence, or the values of all iterations."""

    name = "loop_output"
    interface = "ILoopOutputLayer"
    defaults = frozen({"axis": 0, "kind": "LAST_VALUE"})
    maximum_inputs = 2

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """CONCATENATE and REVERSE add a dimension whose length is input 1."""
        fact, kind = call.facts(0), call["kind"]
        if kind == "LAST_VALUE":
            return (TensorFacts(fact.dtype, fact.shape),)
        length = call.scalar(1, INTEGERS, "the length of a loop output")
        axis = call.axis(rank=fact.rank + 1)
        return (
            TensorFacts(
                fact.dtype,
                (*fact.shape[:axis], -1 if length is None else int(length), *fact.shape[axis:]),
            ),
        )

    def values_needed(self, attributes: Mapping[str, Any]) -> frozenset[int]:
        """The length decides the shape."""
        return frozenset({1}) if attributes["kind"] != "LAST_VALUE" else frozenset()


class Condition(Operation):
    """The condition of a conditional."""

    name = "condition"
    interface = "IConditionLayer"
    outputs = 0

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A scalar boolean."""
        call.scalar(0, BOOLEANS, "the condition")
        return ()

    def bind(self, call: Call) -> Function:
        """Nothing: the outputs read the condition."""
        return lambda condition: ()


class ConditionalInput(Operation):
    """A tensor on its way into the branches of a conditional."""

    name = "conditional_input"
    interface = "IIfConditionalInputLayer"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The tensor itself."""
        return (TensorFacts(call.facts(0).dtype, call.shape(0)),)

    def bind(self, call: Call) -> Function:
        """The tensor itself."""
        return lambda x: x


class ConditionalOutput(Operation):
    """The result of one branch or the other. Inputs: the condition, the result if true, the result if false."""

    name = "conditional_output"
    interface = "IIfConditionalOutputLayer"
    defaults = frozen({"conditional": 0})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Branches of one type and rank, before TensorRT 10.11 of one shape."""
        call.scalar(0, BOOLEANS, "the condition")
        return (facts_of_either(call, call.facts(1), call.facts(2)),)

    def bind(self, call: Call) -> Function:
        """Both branches have been computed; one is chosen. The build makes better of it where it can."""
        return lambda condition, first, second: first if bool(condition) else second


def facts_of_either(call: Call, first: TensorFacts, second: TensorFacts) -> TensorFacts:
    """Returns what is known about the result of one branch or the other.

    Raises:
        RefusedError: The branches differ in type or rank, before TensorRT 10.11 in shape.
    """
    branches = Call({}, [first, second], call.rules, call.strong)
    dtype = branches.same_type(0, 1, what="the branches of a conditional")
    call.require(first.rank == second.rank, "the branches of a conditional must have the same rank")
    pairs = list(zip(first.shape, second.shape, strict=True))
    call.require(
        call.rules.if_branches_may_differ
        or all(-1 in pair or pair[0] == pair[1] for pair in pairs),
        f"the branches of a conditional must have the same shape, not {first.shape} and {second.shape}",
    )
    return TensorFacts(dtype, tuple(a if a == b else -1 for a, b in pairs))


OPERATIONS = (
    Recurrence(),
    TripLimit(),
    Iterator(),
    LoopOutput(),
    Condition(),
    ConditionalInput(),
    ConditionalOutput(),
)
