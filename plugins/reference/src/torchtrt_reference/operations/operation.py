"""The base of every layer's knowledge: what it accepts, what comes out, and how PyTorch computes it.

An :class:`Operation` serves four readers with one rule: the network definition (shapes with -1), the builder, the
runtime's shape inference and execution. It works on names, numbers and facts only, so that a plan can be
loaded in a process that never saw the network.
"""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from torchtrt_reference import dtypes
from torchtrt_reference.operations.tensor_facts import (
    TRACKED_VOLUME,
    RefusedError,
    TensorFacts,
    Value,
)
from torchtrt_reference.rules import Rules

Function = Callable[..., Any]
frozen = MappingProxyType  # class tables that nobody can change
REDUCED = frozenset({"HALF", "BF16"})
FLOATS = frozenset({"FLOAT", "HALF", "BF16"})
INTEGERS = frozenset({"INT32", "INT64"})
NUMBERS = FLOATS | INTEGERS
ANY = frozenset(dtypes.TORCH)


@dataclass(slots=True)
class Call:
    """One layer as an operation sees it.

    Attributes:
        attributes: The layer's attributes; enumeration members by name, dimensions as tuples.
        inputs: The facts of its inputs; None where an optional input is absent.
        rules: The rules of the TensorRT version.
        strong: Whether the network is strongly typed.
        output_types: The output types that were set on the layer or its tensors; None where unset.
    """

    attributes: Mapping[str, Any]
    inputs: Sequence[TensorFacts | None]
    rules: Rules
    strong: bool
    output_types: Sequence[str | None] = ()

    def __getitem__(self, attribute: str) -> Any:
        """The attribute of this name."""
        return self.attributes[attribute]

    def facts(self, index: int) -> TensorFacts:
        """Returns the facts of a mandatory input."""
        fact = self.optional(index)
        if fact is None:
            message = f"input {index} is missing"
            raise RefusedError(message)
        return fact

    def optional(self, index: int) -> TensorFacts | None:
        """Returns the facts of an input, None where it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """Returns the shape of a mandatory input."""
        return self.facts(index).shape

    def output_type(self, index: int = 0) -> str | None:
        """Returns the type that was set for an output, None if none was."""
        return self.output_types[index] if index < len(self.output_types) else None

    def accept(self, index: int, types: frozenset[str], what: str) -> str:
        """Returns the type of an input after checking that it is one of ``types``."""
        dtype = self.facts(index).dtype
        if dtype not in types:
            wanted = ", ".join(sorted(dtypes.SPELLING[name] for name in types))
            message = f"{what} must be of type {wanted}, not {dtypes.SPELLING[dtype]}"
            raise RefusedError(message)
        return dtype

    def same_type(self, *indices: int, what: str = "inputs") -> str:
        """Returns the common type of inputs: identical, or float32 and float16 in a weakly typed network."""
        types = [self.facts(index).dtype for index in indices]
        if len(set(types)) > 1 and (self.strong or not set(types) <= {"FLOAT", "HALF"}):
            shown = " and ".join(dtypes.SPELLING[name] for name in dict.fromkeys(types))
            rule = (
                "a strongly typed network casts nothing: add a cast"
                if self.strong
                else "only Float and Half mix in a weakly typed network"
            )
            message = f"{what} have incompatible types {shown}: {rule}"
            raise RefusedError(message)
        return self.declared(types[0])

    def declared(self, dtype: str) -> str:
        """Returns the type that a result computed from ``dtype`` has: weak typing declares floats as Float."""
        return dtype if self.strong or dtype not in FLOATS else "FLOAT"

    def admit_rank(self, index: int, ranks: range, rule: str) -> None:
        """Checks the rank of an input, if it is known.

        Raises:
            RefusedError: The rank is none of ``ranks``.
        """
        fact = self.optional(index)
        self.require(fact is None or fact.rank in ranks, rule)

    def require(self, condition: bool, rule: str) -> None:
        """Checks a rule.

        Raises:
            RefusedError: The condition is false.
        """
        if not condition:
            raise RefusedError(rule)

    def axis(self, name: str = "axis", rank: int | None = None, negative: bool = False) -> int:
        """Returns an axis attribute, checked against the rank of input 0 (or ``rank``)."""
        count = len(self.shape(0)) if rank is None else rank
        axis = int(self[name])
        low = -count if negative else 0
        self.require(low <= axis < count, f"{name} must be in [{low}, {count - 1}], not {axis}")
        return axis % count

    def axes_of_mask(self, name: str = "axes", index: int = 0) -> tuple[int, ...]:
        """Returns the axes of a bit mask: bit i stands for dimension i of the input."""
        mask, rank = int(self[name]), len(self.shape(index))
        self.require(mask > 0, f"{name} is a bit mask that must select at least one dimension")
        self.require(
            mask < 1 << rank, f"{name} mask {mask:#b} selects a dimension beyond rank {rank}"
        )
        return tuple(axis for axis in range(rank) if mask >> axis & 1)

    def elements(self, index: int, types: frozenset[str] = INTEGERS) -> list[int | None] | None:
        """Returns the elements of a shape-like input (see :meth:`TensorFacts.elements`), None if it is absent."""
        fact = self.optional(index)
        if fact is None:
            return None
        self.accept(index, types, f"input {index}")
        self.require(
            fact.rank == 1, f"input {index} must be one-dimensional, not of rank {fact.rank}"
        )
        self.require(fact.is_static, f"the length of input {index} must be a build-time constant")
        return fact.elements()

    def scalar(self, index: int, types: frozenset[str], what: str) -> Any:
        """Returns the value of a scalar input, None while it is unknown."""
        fact = self.facts(index)
        self.accept(index, types, what)
        self.require(fact.rank == 0, f"{what} must be a scalar (rank 0), not of rank {fact.rank}")
        return None if fact.constant is None else fact.constant.item()


class Operation:
    """What there is to know about one kind of layer. Subclasses are stateless; one instance each is registered.

    Attributes:
        name: The key in plans and in the table of operations.
        layer_type: The member of ``LayerType``; by default the name in capitals.
        methods: The ``add_*`` methods that make this layer, with the attributes each presets.
        renames: Argument names that differ from the attribute they set.
        defaults: The attributes and their defaults.
        aliases: Further property names for an attribute.
        value_inputs: Inputs whose value decides the output's shape, or the way it is computed.
        steering: Inputs that decide where elements go without deciding the shape (for partly known values).
        maximum_inputs: How far ``set_input`` may extend the inputs; None for not at all.
        outputs: The number of outputs.
        partial: How partly known values pass: ``"move"`` (elements are moved), ``"each"`` (element by element) or None.
        keeps_types: Whether inputs keep their declared types in a weakly typed network (casts and constants do).
        decides_output_type: Whether the operation itself obeys ``set_output_type``.
    """

    name: ClassVar[str]
    layer_type: ClassVar[str] = ""
    methods: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    renames: ClassVar[Mapping[str, str]] = {}
    defaults: ClassVar[Mapping[str, Any]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}
    value_inputs: ClassVar[frozenset[int]] = frozenset()
    steering: ClassVar[frozenset[int]] = frozenset()
    maximum_inputs: ClassVar[int | None] = None
    outputs: ClassVar[int] = 1
    partial: ClassVar[str | None] = None
    keeps_types: ClassVar[bool] = False
    decides_output_type: ClassVar[bool] = False

    def values_needed(self, attributes: Mapping[str, Any]) -> frozenset[int]:
        """Returns the inputs whose value must be known to infer shapes and to bind."""
        return self.value_inputs

    def output_count(self, attributes: Mapping[str, Any]) -> int:
        """Returns the number of outputs that a layer with these attributes has."""
        return self.outputs

    @property
    def title(self) -> str:
        """The layer's kind as TensorRT writes it in messages."""
        return type(self).__name__

    def is_pure(self, attributes: Mapping[str, Any]) -> bool:
        """Returns whether equal inputs give equal outputs, so that a constant result may replace the layer."""
        return True

    def admit(self, call: Call) -> None:
        """Checks what TensorRT checks when the layer is added: attributes, the number of inputs, a few ranks.

        What is known about an input is None where it cannot be inferred.

        Raises:
            RefusedError: ``add_*`` returns None.
        """

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Returns the facts of the outputs, without values unless only this operation knows them.

        Raises:
            RefusedError: A rule is broken.
        """
        raise NotImplementedError

    def infer_maximum(self, call: Call) -> tuple[TensorFacts, ...]:
        """Returns the facts of the outputs with the maximum of every dimension, where the data decides them."""
        return self.infer(call)

    def bind(self, call: Call) -> Function:
        """Returns the function that computes the outputs from input tensors; all facts in ``call`` are complete.

        The function takes a tensor for each input (None for an absent one) and returns a tensor, or a tuple of them.
        """
        raise NotImplementedError

    def write(self, layer: Any, attribute: str, value: Any) -> None:
        """Sets an attribute of a layer; subclasses add TensorRT's side effects.

        Raises:
            RefusedError: The value is none that TensorRT takes; the layer keeps the old one, and the error is logged.
        """
        layer._attributes[attribute] = value

    def read(self, layer: Any, attribute: str) -> Any:
        """Returns an attribute of a layer as the property shows it."""
        return layer._attributes[attribute]

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Returns the attributes that are weights: input index in the built graph, and (attribute, shape)."""
        return {}


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
    if (
        not facts
        or not operation.is_pure(call.attributes)
        or any(fact.value is not None for fact in facts)
    ):
        return None
    if not all(fact.is_static and fact.volume <= TRACKED_VOLUME for fact in facts):
        return None
    if all(fact is None or fact.value is None for fact in call.inputs):
        return None
    tracked = list(map(_tracked, call.inputs))
    call = Call(call.attributes, tracked, call.rules, call.strong, call.output_types)
    given = [fact for fact in call.inputs if fact is not None]
    if any(fact.value is None or not fact.is_static for fact in given):
        return None
    if all(fact.constant is not None for fact in given):
        return [Value(tensor) for tensor in run(operation, call, facts)]
    if operation.partial is None or len(facts) != 1:
        return None
    if any(
        call.inputs[index] is not None and call.facts(index).constant is None
        for index in operation.values_needed(call.attributes) | operation.steering
        if index < len(call.inputs)
    ):
        return None
    known = _known(operation, call, facts[0])
    if not bool(known.any()):
        return None
    return [Value(run(operation, call, facts)[0], None if bool(known.all()) else known)]


def _tracked(fact: TensorFacts | None) -> TensorFacts | None:
    """A small integer tensor of which nothing is known still takes its place beside known ones."""
    if fact is None or fact.value is not None or fact.dtype not in INTEGERS:
        return fact
    if not fact.is_static or fact.volume > TRACKED_VOLUME:
        return fact
    anything = torch.ones(fact.shape, dtype=dtypes.TORCH[fact.dtype])
    return TensorFacts(
        fact.dtype, fact.shape, Value(anything, torch.zeros(fact.shape, dtype=torch.bool))
    )


def _known(operation: Operation, call: Call, fact: TensorFacts) -> torch.Tensor:
    """Which elements of the output are known: moved along with the data, or known where every operand is."""
    masks: list[torch.Tensor | None] = []
    steering = operation.values_needed(call.attributes) | operation.steering
    for index, given in enumerate(call.inputs):
        assert given is None or given.value is not None
        if given is None or given.value is None:
            masks.append(None)
        elif index in steering:
            masks.append(given.value.data)
        elif given.value.known is None:
            masks.append(torch.ones(given.shape, dtype=torch.bool))
        else:
            masks.append(given.value.known)
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

    Declared types are what a weakly typed network promises, so operands are converted to float32 where float16 and
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
    inner = operation.bind(
        Call(call.attributes, operands, call.rules, call.strong, call.output_types)
    )
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


def complete(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Returns a shape with -1 for every unknown dimension."""
    return tuple(-1 if dimension is None else dimension for dimension in shape)
