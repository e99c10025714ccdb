"""Registrations as a pack keeps them: converters, decompositions and passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torchtrt.contract import (
    CallingConvention,
    ConverterPriority,
    ConverterSupport,
    RejectIf,
    SchemaArguments,
    Validator,
    accept_every_node,
    calling_convention,
    with_settings,
)
from torchtrt.errors import InvalidTargetError, PackError, UnknownTargetError
from torchtrt.targets import Target, canonical_spelling, parse_target


@dataclass(frozen=True, slots=True)
class Registration:
    """One converter as its pack registered it.

    Attributes:
        target: The op, or its qualified name while this PyTorch has no such op (its library may be imported later).
        support: The converter and what it can handle.
        priority: Whether it goes to the front or to the back of the op's candidates.
        convention: How it is called.
        validate: The validator as ``(node, settings)``, or ``None`` if every node will do.
        arguments: How a ``SCHEMA`` converter's arguments are bound; ``None`` for others, and while the op is a name.
    """

    target: Target | str
    support: ConverterSupport
    priority: ConverterPriority
    convention: CallingConvention
    validate: Validator | None
    arguments: SchemaArguments | None


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A function of an op's own signature that computes it by other ops."""

    target: Target | str
    function: Callable[..., Any]
    priority: ConverterPriority


@dataclass(frozen=True, slots=True)
class LoweringPass:
    """A function that rewrites a graph before partitioning.

    Attributes:
        name: What reports call it.
        function: The function.
        ops: The ops that it converts, for the catalogue of packs.
        last: Whether it runs behind the passes of all packs.
    """

    name: str
    function: Callable[..., Any]
    ops: tuple[Target | str, ...] = ()
    last: bool = False


def register(
    target: Target | str, support: ConverterSupport, priority: ConverterPriority
) -> Registration:
    """Looks up an op, checks the converter's signature against it, and returns the registration.

    Raises:
        AmbiguousTargetError: The target is a packet of several overloads.
        ConverterSignatureError: The signature is not that of a converter or validator of the op.
    """
    op, implementation = target_or_name(target), support.converter_implementation
    convention, arguments = calling_convention(implementation), None
    if convention is CallingConvention.SCHEMA and not isinstance(op, str):
        arguments = SchemaArguments(implementation, op)
    validator = support.capability_validator
    validate = None if validator is accept_every_node else with_settings(validator)
    return Registration(op, support, priority, convention, validate, arguments)


def target_or_name(target: Target | str) -> Target | str:
    """Returns an op, or its one spelling while this PyTorch has no such op."""
    try:
        return parse_target(target)
    except UnknownTargetError:
        return spelling_of_unknown(str(target))


def spelling_of_unknown(name: str) -> str:
    """Returns the one spelling of an op that a library may add.

    Raises:
        InvalidTargetError: No op has such a name: it has no namespace.
    """
    spelling = canonical_spelling(name)
    if not all(spelling.split(".")[:2]) or "." not in spelling:
        message = f"{name!r} names no op: a name has a namespace, as in 'aten.add.Tensor' or 'vision::snake'."
        raise InvalidTargetError(message)
    return spelling


def checks_of(reject_if: Any, pack: str) -> tuple[Validator, ...]:
    """Returns the checks of a registration.

    Raises:
        PackError: They are no functions.
    """
    checks = tuple(reject_if) if isinstance(reject_if, (list, tuple)) else (reject_if,)
    for check in checks:
        if not callable(check):
            raise PackError(
                f"Pack {pack!r}: reject_if has {check!r}, which is no function. Write one function or a list of "
                "functions that return a reason or None."
            )
    return checks


def joined_checks(validator: Validator | None, checks: Sequence[Validator]) -> Validator:
    """Returns one validator of a validator and checks; ``accept_every_node`` where there is nothing to check."""
    if not checks:
        return accept_every_node if validator is None else validator
    return RejectIf(*checks, validator=validator)
