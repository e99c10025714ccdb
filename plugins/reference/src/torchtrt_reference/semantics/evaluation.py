"""Evaluates operations: the facts of their outputs, their values, and a function that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.semantics.operation import (
    FLOATS,
    INTEGERS,
    REDUCED,
    Call,
    Function,
    Operation,
)
from torchtrt_reference.semantics.tensor_facts import (
    TRACKED_VOLUME,
    RefusedError,
    TensorFacts,
    Value,
)


def infer(operation: Operation, call: Call) -> tuple[TensorFacts, ...]:
    """Returns the facts of an operation's outputs, with values where they can be tracked, and with set types.

    Raises:
        RefusedError: A rule is broken.
    """
    facts = operation.infer(call)
    if not operation.decides_output_type:
        facts = tuple(_retyped(fact, call.output_type(index)) for index, fact in enumerate(facts))
    values = _values(operation, call, facts)
    if values is None:
        return facts
    return tuple(
        TensorFacts(fact.dtype, fact.shape, value)
        for fact, value in zip(facts, values, strict=True)
    )


def _retyped(fact: TensorFacts, wanted: str | None) -> TensorFacts:
    if wanted is None or wanted == fact.dtype:
        return fact
    if {wanted, fact.dtype} <= {"FLOAT", "HALF"} or {wanted, fact.dtype} <= FLOATS:
        return TensorFacts(wanted, fact.shape)
    message = (
        f"an output of type {dtypes.SPELLING[wanted]} cannot be produced from incompatible type "
        f"{dtypes.SPELLING[fact.dtype]}: add a cast"
    )
    raise RefusedError(message)


def _values(operation: Operation, call: Call, facts: tuple[TensorFacts, ...]) -> list[Value] | None:
    """The values of the outputs as far as they are known, None where nothing is."""
    if not _is_trackable(operation, call, facts):
        return None
    call = replace(call, inputs=list(map(_tracked, call.inputs)))
    inputs = [fact for fact in call.inputs if fact is not None]
    if any(fact.value is None or not fact.is_static for fact in inputs):
        return None
    if all(fact.constant is not None for fact in inputs):
        return [Value(tensor) for tensor in run(operation, call, facts)]
    return _partial_value(operation, call, facts)


def _is_trackable(operation: Operation, call: Call, facts: tuple[TensorFacts, ...]) -> bool:
    """Whether values are worth following: small outputs without a value, of a pure operation that reads one."""
    return (
        bool(facts)
        and operation.is_pure(call.attributes)
        and all(
            fact.value is None and fact.is_static and fact.volume <= TRACKED_VOLUME
            for fact in facts
        )
        and any(fact is not None and fact.value is not None for fact in call.inputs)
    )


def _partial_value(
    operation: Operation, call: Call, facts: tuple[TensorFacts, ...]
) -> list[Value] | None:
    """The value of the output of an operation some of whose inputs' elements are unknown, None if all of it is."""
    if operation.partial is None or len(facts) != 1:
        return None
    decisive = map(call.optional, _decisive_inputs(operation, call))
    if any(fact is not None and fact.constant is None for fact in decisive):
        return None
    mask = _known_mask(operation, call, facts[0])
    if not bool(mask.any()):
        return None
    return [Value(run(operation, call, facts)[0], None if bool(mask.all()) else mask)]


def _decisive_inputs(operation: Operation, call: Call) -> frozenset[int]:
    """The inputs that decide the output's shape, or where elements go."""
    return operation.values_needed(call.attributes) | operation.steering


def _tracked(fact: TensorFacts | None) -> TensorFacts | None:
    """Returns the facts of a small integer tensor with its elements, unknown ones in their places."""
    if fact is None or fact.value is not None or fact.dtype not in INTEGERS:
        return fact
    if not fact.is_static or fact.volume > TRACKED_VOLUME:
        return fact
    anything = torch.ones(fact.shape, dtype=dtypes.TORCH[fact.dtype])
    return TensorFacts(
        fact.dtype, fact.shape, Value(anything, torch.zeros(fact.shape, dtype=torch.bool))
    )


def _known_mask(operation: Operation, call: Call, fact: TensorFacts) -> torch.Tensor:
    """Which elements of the output are known: moved along with the data, or known where every operand is."""
    masks: list[torch.Tensor | None] = []
    steering = _decisive_inputs(operation, call)
    for index, operand in enumerate(call.inputs):
        assert operand is None or operand.value is not None
        if operand is None or operand.value is None:
            masks.append(None)
        elif index in steering:
            masks.append(operand.value.data)
        elif operand.value.mask is None:
            masks.append(torch.ones(operand.shape, dtype=torch.bool))
        else:
            masks.append(operand.value.mask)
    if operation.partial == "move":
        as_masks = [
            fact if index in steering or fact is None else TensorFacts("BOOL", fact.shape)
            for index, fact in enumerate(call.inputs)
        ]
        moved = operation.bind(Call(call.attributes, as_masks, call.rules, True))(*masks)
        return torch.as_tensor(moved).bool()
    result = torch.ones(fact.shape, dtype=torch.bool)
    for mask in masks:
        if mask is not None:
            result = result & mask
    return result


def run(operation: Operation, call: Call, facts: Sequence[TensorFacts]) -> tuple[torch.Tensor, ...]:
    """Returns the outputs computed from the inputs' values; unknown elements count as whatever they hold."""
    tensors = [
        None if fact is None or fact.value is None else fact.value.data for fact in call.inputs
    ]
    return as_tuple(bind(operation, call, facts)(*tensors))


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    """Returns the outputs of a bound function as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def bind(operation: Operation, call: Call, facts: Sequence[TensorFacts]) -> Function:
    """Returns the operation's function with weak typing's conversions around it.

    Declared types are what a weakly typed network guarantees, so operands are converted to float32 where float16 and
    float32 mix, and results are converted to the declared type.
    """
    if call.strong or operation.keeps_types:
        return operation.bind(call)
    operands = [
        TensorFacts("FLOAT", fact.shape, fact.value)
        if fact is not None and fact.dtype in REDUCED
        else fact
        for fact in call.inputs
    ]
    narrow = [
        index
        for index, fact in enumerate(call.inputs)
        if fact is not None and fact.dtype in REDUCED
    ]
    inner = operation.bind(replace(call, inputs=operands))
    targets = [dtypes.TORCH[fact.dtype] if fact.dtype in REDUCED else None for fact in facts]
    if not narrow and not any(targets):
        return inner

    def converted(*tensors: Any) -> Any:
        widened = list(tensors)
        for index in narrow:
            widened[index] = widened[index].float()
        results = as_tuple(inner(*widened))
        typed = tuple(
            result if target is None else result.to(target)
            for result, target in zip(results, targets, strict=True)
        )
        return typed if len(typed) > 1 else typed[0]

    return converted
