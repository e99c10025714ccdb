"""The base of every layer's knowledge: what it accepts, what comes out, and how PyTorch computes it.

An ``Operation`` serves four readers with one rule: the network definition (shapes with -1), the builder, the
runtime's shape inference and execution. It works on names, numbers and facts only, so that a plan can be
loaded in a process that never saw the network.
"""

# ruff: noqa: ARG002 - operations and their functions have a fixed signature, needed or not
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from torchtrt_reference import dtypes
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.tensor_facts import (
    RefusedError,
    TensorFacts,
)

Function = Callable[..., Any]
frozen = MappingProxyType  # class tables that cannot be changed
REDUCED = frozenset({"HALF", "BF16"})
FLOATS = frozenset({"FLOAT", "HALF", "BF16"})
INTEGERS = frozenset({"INT32", "INT64"})
NUMBERS = FLOATS | INTEGERS
BOOLEANS = frozenset({"BOOL"})
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
            RefusedError: The rank is not in ``ranks``.
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
        """Returns the elements of a shape-like input (see ``TensorFacts.elements``), None if it is absent."""
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
    """The rules of one kind of layer. Subclasses are stateless; one instance each is registered.

    Attributes:
        name: The key in plans and in the table of operations.
        layer_type: The member of ``LayerType``; by default the name in capitals.
        methods: The ``add_*`` methods that make this layer, with the attributes each presets.
        renames: Argument names that differ from the attribute they set.
        defaults: The attributes and their defaults.
        aliases: Further property names for an attribute.
        weights_roles: The attributes that are weights, and the role by which each is refitted; None for no role.
        property_types: The types of attributes where the interface description leaves the property's type open.
        interface: The class of its layer, where no method of the network returns one.
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
    weights_roles: ClassVar[Mapping[str, str | None]] = {}
    property_types: ClassVar[Mapping[str, str]] = {}
    interface: ClassVar[str] = ""
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

        The facts about an input are None if they cannot be inferred.

        Raises:
            RefusedError: ``add_*`` returns None.
        """

    def infer(self, call: Call) -> tuple[TensorFacts, ...]:
        """Returns the facts of the outputs, without values unless only this operation determines them.

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
            RefusedError: TensorRT does not take the value; the layer keeps the old one, and the error is logged.
        """
        layer._attributes[attribute] = value

    def read(self, layer: Any, attribute: str) -> Any:
        """Returns an attribute of a layer as the property shows it."""
        return layer._attributes[attribute]

    def weights(self, attributes: Mapping[str, Any]) -> Mapping[int, tuple[str, tuple[int, ...]]]:
        """Returns the attributes that are weights: input index in the built graph, and (attribute, shape)."""
        return {}


def complete(shape: Sequence[int | None]) -> tuple[int, ...]:
    """Returns a shape with -1 for every unknown dimension."""
    return tuple(-1 if dimension is None else dimension for dimension in shape)
