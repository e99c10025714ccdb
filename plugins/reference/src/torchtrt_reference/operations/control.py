"""Loops and conditionals: the layers at their boundary, and the loop that a build makes of them."""

# ruff: noqa: ARG002, ARG005 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.operations.operation import INTEGERS, Call, Function, Operation, frozen
from torchtrt_reference.operations.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor
_BOOL = frozenset({"BOOL"})


class _OfALoop(Operation):
    """A layer at the boundary of a loop. It has no function of its own: the build makes one node of the whole loop."""

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """What crosses the boundary changes from iteration to iteration."""
        return False


class Recurrence(_OfALoop):
    """A value that a loop carries from one iteration to the next."""

    name = "recurrence"
    maximum_inputs = 2

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The type and shape of the initial value; the next value is checked when the loop is built."""
        return (TensorFacts(call.facts(0).dtype, call.shape(0)),)


class TripLimit(_OfALoop):
    """How often a loop runs: a count from outside, or a condition from inside."""

    name = "trip_limit"
    defaults = frozen({"kind": "COUNT"})
    outputs = 0

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """COUNT takes a scalar integer, WHILE a scalar boolean."""
        allowed = INTEGERS if call["kind"] == "COUNT" else _BOOL
        call.scalar(0, allowed, f"the {call['kind']} trip limit")
        return ()


class Iterator(_OfALoop):
    """One slice of a tensor per iteration."""

    name = "iterator"
    defaults = frozen({"axis": 0, "reverse": False})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The shape without the axis."""
        call.require(call.facts(0).rank >= 1, "a scalar cannot be iterated")
        axis = call.axis()
        return (TensorFacts(call.facts(0).dtype, call.shape()[:axis] + call.shape()[axis + 1 :]),)


class LoopOutput(_OfALoop):
    """What leaves a loop: the last value of a recurrence, or the values of all iterations."""

    name = "loop_output"
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
    """What a conditional depends on."""

    name = "condition"
    outputs = 0

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """A scalar boolean."""
        call.scalar(0, _BOOL, "the condition")
        return ()

    def bind(self, call: Call) -> Function:
        """Nothing: the outputs read the condition."""
        return lambda condition: ()


class ConditionalInput(Operation):
    """A tensor on its way into the branches of a conditional."""

    name = "conditional_input"

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The tensor itself."""
        return (TensorFacts(call.facts(0).dtype, call.shape(0)),)

    def bind(self, call: Call) -> Function:
        """The tensor itself."""
        return lambda x: x


class ConditionalOutput(Operation):
    """The result of one branch or the other. Inputs: the condition, the result if true, the result if false."""

    name = "conditional_output"
    defaults = frozen({"conditional": 0})

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Branches of one type and rank, before TensorRT 10.11 of one shape."""
        call.scalar(0, _BOOL, "the condition")
        return (_of_either(call, call.facts(1), call.facts(2)),)

    def bind(self, call: Call) -> Function:
        """Both branches have been computed; one is chosen. The build makes better of it where it can."""
        return lambda condition, first, second: first if bool(condition) else second


def _of_either(call: Call, first: TensorFacts, second: TensorFacts) -> TensorFacts:
    """What is known about the result of one branch or the other."""
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


class Conditional(Operation):
    """A whole conditional, made of its outputs and what only they need by the build.

    Attributes of a node: ``then`` and ``else``, graphs with the same inputs and equally many outputs. Inputs: the
    condition, then what the branches read.
    """

    name = "conditional"
    defaults = frozen({})
    keeps_types = True

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """A conditional is not folded: its branches might be random."""
        return False

    def _branch(self, call: Call, name: str) -> tuple[TensorFacts, ...]:
        from torchtrt_reference.running.executable import (
            infer_graph,  # an executable may contain conditionals
        )

        facts = infer_graph(call[name], _given(call, name), call.rules)
        return tuple(facts[port.slot] for port in call[name].outputs)

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The facts of the chosen branch where the choice is known, and otherwise what both have in common."""
        choice = call.scalar(0, _BOOL, "the condition")
        if choice is not None:
            return self._branch(call, "then" if choice else "else")
        pairs = zip(self._branch(call, "then"), self._branch(call, "else"), strict=True)
        return tuple(_of_either(call, first, second) for first, second in pairs)

    def bind(self, call: Call) -> Function:
        """The executable of the chosen branch; the other one is not run."""
        from torchtrt_reference.running.executable import (
            bind_graph,  # an executable may contain conditionals
        )

        targets = [dtypes.TORCH[fact.dtype] for fact in self.infer(call)]
        executables: dict[tuple[str, torch.device], Any] = {}

        def run(condition: Tensor, *tensors: Tensor) -> Any:
            name = "then" if bool(condition) else "else"
            key = (name, condition.device)
            if key not in executables:
                executables[key] = bind_graph(
                    call[name], _given(call, name), call.rules, {}, condition.device
                )
            slots = [port.slot for port in call[name].inputs]
            results = executables[key].run(
                dict(zip(slots, tensors, strict=True)), [port.slot for port in call[name].outputs]
            )
            typed = tuple(result.to(t) for result, t in zip(results, targets, strict=True))
            return typed if len(typed) > 1 else typed[0]

        return run


def _given(call: Call, name: str) -> dict[int, TensorFacts]:
    """The facts of a branch's inputs."""
    slots = (port.slot for port in call[name].inputs)
    return {slot: call.facts(index) for index, slot in enumerate(slots, start=1)}


class Loop(Operation):
    """A whole loop, made of its boundary and inner layers by the build.

    Attributes of a node: ``body`` (a graph), ``counted``, ``conditional``, ``recurrences`` (how many), ``iterators``
    (axis and direction of each) and ``outputs`` (kind, axis, recurrence index). Inputs, in this order: the lengths of
    the stacked outputs, the count, the initial values, the iterated tensors, and what the body reads from outside.
    The body takes recurrences, slices, and the rest; it gives the next values, the condition, and the stacked values.
    """

    name = "loop"
    defaults = frozen({})

    def values_needed(self, attributes: Mapping[str, Any]) -> frozenset[int]:
        """The lengths, which come first."""
        return frozenset(range(sum(kind != "LAST_VALUE" for kind, _, _ in attributes["outputs"])))

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """A loop is not folded: its body might be random."""
        return False

    def _parts(self, call: Call) -> tuple[int, int, int]:
        """Where the count, the initial values and the iterated tensors start."""
        count = len(self.values_needed(call.attributes))
        initial = count + int(call["counted"])
        return count, initial, initial + call["recurrences"]

    def _body_facts(self, call: Call) -> dict[int, TensorFacts]:
        _, initial, iterated = self._parts(call)
        given = []
        for index in range(initial, len(call.inputs)):
            fact = call.facts(index)
            position = index - iterated
            if 0 <= position < len(call["iterators"]):
                axis = call["iterators"][position][0]
                fact = TensorFacts(fact.dtype, fact.shape[:axis] + fact.shape[axis + 1 :])
            elif position < 0:
                fact = TensorFacts(fact.dtype, fact.shape)
            given.append(fact)
        return {port.slot: fact for port, fact in zip(call["body"].inputs, given, strict=True)}

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The body's facts; a recurrence keeps its type and shape."""
        from torchtrt_reference.running.executable import (
            infer_graph,
        )  # an executable may contain loops

        body, (_, initial, _) = call["body"], self._parts(call)
        facts = infer_graph(body, self._body_facts(call), call.rules)
        ends = [facts[port.slot] for port in body.outputs]
        for index in range(call["recurrences"]):
            start, end = call.facts(initial + index), ends[index]
            same = (
                start.dtype == end.dtype
                and len(start.shape) == len(end.shape)
                and all(
                    -1 in pair or pair[0] == pair[1]
                    for pair in zip(start.shape, end.shape, strict=True)
                )
            )
            call.require(
                same,
                f"a recurrence must keep type and shape: {start.dtype} {start.shape} became {end.dtype} {end.shape}",
            )
        stacked = iter(ends[call["recurrences"] + int(call["conditional"]) :])
        result, lengths = [], 0
        for kind, axis, recurrence in call["outputs"]:
            if kind == "LAST_VALUE":
                start = call.facts(initial + recurrence)
                result.append(TensorFacts(start.dtype, start.shape))
                continue
            length = call.scalar(lengths, INTEGERS, "the length of a loop output")
            lengths += 1
            fact = next(stacked)
            result.append(
                TensorFacts(
                    fact.dtype,
                    (*fact.shape[:axis], -1 if length is None else int(length), *fact.shape[axis:]),
                )
            )
        return tuple(result)

    def bind(self, call: Call) -> Function:
        """The body's executable, run until the count or the condition ends it."""
        from torchtrt_reference.running.executable import (
            bind_graph,
            move_constants,
        )  # an executable may contain loops

        body, facts, (count_at, initial, iterated) = (
            call["body"],
            self._body_facts(call),
            self._parts(call),
        )
        results = self.infer(call)
        executables: dict[torch.device, Any] = {}

        def run(*tensors: Tensor) -> Any:
            device = tensors[-1].device
            if device not in executables:
                executables[device] = bind_graph(
                    body, facts, call.rules, move_constants(body, device), device
                )
            executable = executables[device]
            limit = int(tensors[count_at]) if call["counted"] else None
            state = list(tensors[initial:iterated])
            scanned = tensors[iterated : iterated + len(call["iterators"])]
            outer = tensors[iterated + len(call["iterators"]) :]
            history: list[list[Tensor]] = []
            step = 0
            while limit is None or step < limit:
                slices = [
                    tensor.select(axis, _position(limit, step, reverse, tensor.shape[axis]))
                    for tensor, (axis, reverse) in zip(scanned, call["iterators"], strict=True)
                ]
                given = dict(
                    zip((port.slot for port in body.inputs), [*state, *slices, *outer], strict=True)
                )
                ends = executable.run(given, [port.slot for port in body.outputs])
                if call["conditional"] and not bool(ends[call["recurrences"]]):
                    break
                state = ends[: call["recurrences"]]
                history.append(ends[call["recurrences"] + int(call["conditional"]) :])
                step += 1
            return _collect(call, state, history, results)

        return run


def _position(limit: int | None, step: int, reverse: bool, length: int) -> int:
    position = (limit or length) - 1 - step if reverse else step
    if not 0 <= position < length:
        message = f"iteration {step} reads beyond the {length} slices of an iterator"
        raise RefusedError(message)
    return position


def _collect(
    call: Call, state: list[Tensor], history: list[list[Tensor]], results: tuple[TensorFacts, ...]
) -> Any:
    outputs, stacked = [], 0
    for (kind, axis, recurrence), fact in zip(call["outputs"], results, strict=True):
        if kind == "LAST_VALUE":
            outputs.append(state[recurrence])
            continue
        pieces = [values[stacked] for values in history][: fact.shape[axis]]
        stacked += 1
        if kind == "REVERSE":
            pieces.reverse()
        # Where the loop ended early, TensorRT leaves the rest undefined; here it is 0.
        sample = state[0] if state else torch.empty(0)
        shape = tuple(fact.shape)
        whole = torch.zeros(
            shape, dtype=pieces[0].dtype if pieces else sample.dtype, device=sample.device
        )
        if pieces:
            whole.narrow(axis, 0, len(pieces)).copy_(torch.stack(pieces, axis))
        outputs.append(whole)
    return tuple(outputs) if len(outputs) != 1 else outputs[0]


OPERATIONS = (
    Recurrence(),
    TripLimit(),
    Iterator(),
    LoopOutput(),
    Condition(),
    ConditionalInput(),
    ConditionalOutput(),
    Conditional(),
    Loop(),
)
