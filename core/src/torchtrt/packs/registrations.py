"""Registrations as a pack keeps them: converters, decompositions and passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchtrt.capability import Capability
from torchtrt.contract import (
    CallingConvention,
    Converter,
    ConverterPriority,
    ConverterSupport,
    RejectIf,
    SchemaArguments,
    Validator,
    accept_every_node,
    calling_convention,
    with_settings,
)
from torchtrt.errors import PackError, UnknownTargetError
from torchtrt.targets import Target, canonical_spelling, parse_target


@dataclass(frozen=True, slots=True)
class Registration:
    """One converter as its pack registered it.

    Attributes:
        target: The op, or its qualified name while this PyTorch has no such op (its library may be imported later).
        support: The converter and what it can handle.
        priority: Whether it goes to the front or to the back of the op's candidates.
        convention: How it is called; ``None`` while it is a string that has not been imported.
        validate: The validator as ``(node, settings)``, or ``None`` if every node will do.
        arguments: How a ``SCHEMA`` converter's arguments are bound; ``None`` for others, and while the
            op or the function is a name.
    """

    target: Target | str
    support: ConverterSupport
    priority: ConverterPriority
    convention: CallingConvention | None
    validate: Validator | None
    arguments: SchemaArguments | None


class Named(NamedTuple):
    """A pack's arguments for registering a converter. Nothing is looked up while op and function are only named."""

    target: Target | str
    implementation: Converter | str
    validator: Validator | None
    priority: ConverterPriority
    flags: tuple[bool, bool, bool, str, tuple[Capability, ...]]

    def registration(self) -> Registration:
        """Looks up the op and the function, and returns the converter as it is registered."""
        op, implementation = target_or_name(self.target), self.implementation
        convention = arguments = None
        if not isinstance(implementation, str):
            convention = calling_convention(implementation)
            if convention is CallingConvention.SCHEMA and not isinstance(op, str):
                arguments = SchemaArguments(implementation, op)
        support = ConverterSupport(implementation, self.validator or accept_every_node, *self.flags)
        validate = None if self.validator is None else with_settings(self.validator)
        return Registration(op, support, self.priority, convention, validate, arguments)


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A function of an op's own signature that computes it by other ops."""

    target: Target | str
    function: Callable[..., Any]
    priority: ConverterPriority


@dataclass(frozen=True, slots=True)
class LoweringPass:
    """A function that rewrites a graph before partitioning."""

    name: str
    function: Callable[..., Any]


def target_or_name(target: Target | str) -> Target | str:
    """Returns an op, or its one spelling while this PyTorch has no such op."""
    try:
        return parse_target(target)
    except UnknownTargetError:
        return canonical_spelling(str(target))


def checks_of(reject_if: Any, pack: str) -> tuple[Validator, ...]:
    """Returns the checks of a registration.

    Raises:
        PackError: They are no functions.
    """
    checks = (reject_if,) if callable(reject_if) else reject_if
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise PackError(
            f"Pack {pack!r}: reject_if={reject_if!r} is no function, and no sequence of functions, that return a "
            "reason or None."
        )
    return tuple(checks)


def joined_checks(
    validator: Validator | None, reject_if: Validator | Sequence[Validator], pack: str
) -> Validator | None:
    """Returns one validator of a validator and checks, or ``None`` where there is nothing to check."""
    checks = checks_of(reject_if, pack)
    if not checks:
        return None if validator is accept_every_node else validator
    return RejectIf(*checks, validator=validator)
