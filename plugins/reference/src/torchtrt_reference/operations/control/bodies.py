"""Loops and conditionals with the graphs inside them: what a build makes of the layers at their boundary."""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.operations.control.boundaries import facts_of_either
from torchtrt_reference.semantics.operation import (
    BOOLEANS,
    INTEGERS,
    Call,
    Function,
    Operation,
    frozen,
)
from torchtrt_reference.semantics.subgraph import Subgraph
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

Tensor = torch.Tensor


class ConditionalWithBranches(Operation):
    """A conditional, made of its outputs and what only they need by the build.

    Attributes of a node: ``then`` and ``else``, graphs with the same inputs and equally many outputs. Inputs: the
    condition, then what the branches read.
    """

    name = "conditional"
    defaults = frozen({})
    keeps_types = True

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """A conditional is not folded: its branches might be random."""
        return False

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The facts of the chosen branch where the choice is known, and otherwise what both have in common."""
        choice = call.scalar(0, BOOLEANS, "the condition")
        input_facts = _read_by_branches(call)
        if choice is not None:
            return tuple(call["then" if choice else "else"].infer(input_facts))
        pairs = zip(call["then"].infer(input_facts), call["else"].infer(input_facts), strict=True)
        return tuple(facts_of_either(call, first, second) for first, second in pairs)

    def bind(self, call: Call) -> Function:
        """The function of the chosen branch; the other one is not run."""
        input_facts = _read_by_branches(call)
        targets = [dtypes.TORCH[fact.dtype] for fact in self.infer(call)]
        functions: dict[tuple[str, torch.device], Callable[..., list[Tensor]]] = {}

        def run(condition: Tensor, *tensors: Tensor) -> Any:
            name = "then" if bool(condition) else "else"
            key = (name, condition.device)
            if key not in functions:
                functions[key] = call[name].bind(input_facts, condition.device)
            results = functions[key](tensors)
            typed = tuple(result.to(t) for result, t in zip(results, targets, strict=True))
            return typed if len(typed) > 1 else typed[0]

        return run


def _read_by_branches(call: Call) -> list[TensorFacts]:
    return [call.facts(index) for index in range(1, len(call.inputs))]


class LoopWithBody(Operation):
    """A loop, made of its boundary and inner layers by the build.

    The attributes of a node are ``body`` (a graph), ``counted``, ``conditional`` and ``recurrences`` (their number).
    ``iterators`` hold the axis and direction of each, and ``outputs`` the kind, axis and recurrence index. The inputs
    are the lengths of the stacked outputs, the count, the initial values, the iterated tensors, and then the tensors
    that the body reads from outside.
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

    def _read_by_body(self, call: Call) -> list[TensorFacts]:
        """The facts of the body's inputs: a recurrence has no value, and an iterator is one slice."""
        _, initial, iterated = self._parts(call)
        input_facts = []
        for index in range(initial, len(call.inputs)):
            fact = call.facts(index)
            position = index - iterated
            if 0 <= position < len(call["iterators"]):
                axis = call["iterators"][position][0]
                fact = TensorFacts(fact.dtype, fact.shape[:axis] + fact.shape[axis + 1 :])
            elif position < 0:
                fact = TensorFacts(fact.dtype, fact.shape)
            input_facts.append(fact)
        return input_facts

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """The body's facts; a recurrence keeps its type and shape."""
        _, initial, _ = self._parts(call)
        ends = call["body"].infer(self._read_by_body(call))
        for index in range(call["recurrences"]):
            start, end = call.facts(initial + index), ends[index]
            call.require(
                _is_kept(start, end),
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
            size = -1 if length is None else int(length)
            result.append(TensorFacts(fact.dtype, (*fact.shape[:axis], size, *fact.shape[axis:])))
        return tuple(result)

    def bind(self, call: Call) -> Function:
        """The body's function, run until the count or the condition ends it."""
        body: Subgraph = call["body"]
        input_facts, (count_at, initial, iterated) = self._read_by_body(call), self._parts(call)
        results = self.infer(call)
        functions: dict[torch.device, Callable[[Sequence[Tensor]], list[Tensor]]] = {}

        def run(*tensors: Tensor) -> Any:
            device = tensors[-1].device
            if device not in functions:
                functions[device] = body.bind(input_facts, device)
            function = functions[device]
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
                ends = function([*state, *slices, *outer])
                if call["conditional"] and not bool(ends[call["recurrences"]]):
                    break
                state = ends[: call["recurrences"]]
                history.append(ends[call["recurrences"] + int(call["conditional"]) :])
                step += 1
            return _collect(call, state, history, results)

        return run


def _is_kept(start: TensorFacts, end: TensorFacts) -> bool:
    """Whether the next value of a recurrence has the type and shape of the initial one, as far as is known."""
    return (
        start.dtype == end.dtype
        and start.rank == end.rank
        and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(start.shape, end.shape, strict=True)
        )
    )


def _position(limit: int | None, step: int, reverse: bool, length: int) -> int:
    position = (limit or length) - 1 - step if reverse else step
    if not 0 <= position < length:
        message = f"iteration {step} reads beyond the {length} slices of an iterator"
        raise RefusedError(message)
    return position


def _collect(
    call: Call, state: list[Tensor], history: list[list[Tensor]], results: tuple[TensorFacts, ...]
) -> Any:
    """Returns the outputs of a loop: last values, and values of all iterations joined."""
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


OPERATIONS = (ConditionalWithBranches(), LoopWithBody())
