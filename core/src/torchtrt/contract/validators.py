"""Validators: checks whether a converter can handle a node, and their reasons."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from torchtrt.contract.functions import qualified_function, takes_exactly
from torchtrt.errors import ConverterSignatureError, kind_of

Validator = Callable[..., Any]
"""A function ``(node, settings)`` or ``(node)`` that checks whether a converter can handle one node."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A validator's "no" with its reason. It is false, so it can be returned in place of ``False``.

    Attributes:
        reason: Why the converter cannot handle the node, as a user should read it.
        advice: What that user can do so that it can; shown beside the reason.
    """

    reason: str
    advice: str = ""

    def __bool__(self) -> bool:
        return False


def accept_every_node(node: Node, settings: Any) -> bool:  # noqa: ARG001
    """Returns true: the validator of a converter that can handle every node of its op."""
    return True


def to_rejection(answer: object) -> Reject | None:
    """Returns what a validator's answer means: a rejection, or ``None`` where it accepts.

    ``True`` and ``None`` accept; ``False``, a ``Reject`` and a string, which is the reason, reject.

    Raises:
        TypeError: The answer is something else.
    """
    if answer is True or answer is None:
        return None
    if isinstance(answer, Reject):
        if not isinstance(answer.reason, str) or not isinstance(answer.advice, str):
            raise TypeError(f"{answer!r:.200}, whose reason and advice are not both strings")
        return answer
    if isinstance(answer, str) and answer:
        return Reject(answer)
    if answer is False:
        return Reject("")
    kind = "an empty string" if answer == "" else kind_of(answer)
    message = f"{kind} where True, False, None, Reject(...) or a reason is meant"
    raise TypeError(message)


class WrongAnswerError(TypeError):
    """A check of a validator returned neither a reason nor ``None``."""


class FailedCheckError(Exception):
    """A check of a validator raised the exception that is the cause.

    Args:
        check: The name of the check.
        error: The exception.
    """

    def __init__(self, check: str, error: BaseException) -> None:
        super().__init__(f"{check} raised {type(error).__name__}: {error}")
        self.check = check


class RejectIf:
    """A validator made of small checks: it rejects a node if one of them returns a reason.

    Args:
        *checks: Functions ``(node)`` or ``(node, settings)`` that return a reason, or ``None``.
            Their names are shown in listings.
        validator: One more, which may also answer with a bool: whether it accepts the node.

    Attributes:
        checks: All of them, the validator included.
        answering: The validator, if there is one.
    """

    def __init__(self, *checks: Validator, validator: Validator | None = None) -> None:
        self.checks = checks if validator is None else (validator, *checks)
        self.answering = validator
        self._calls = tuple((check, _takes_settings(check)) for check in self.checks)

    def __call__(self, node: Node, settings: Any) -> Any:
        """Returns the first rejection, or ``None``."""
        for check, takes_settings in self._calls:
            try:
                answer = check(node, settings) if takes_settings else check(node)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit too
                raise FailedCheckError(check_names(check)[0], error) from error
            if answer is None:
                continue
            if check is self.answering:
                if answer is not True:
                    return answer
            elif isinstance(answer, Reject) or (isinstance(answer, str) and answer):
                return answer
            else:
                name = check_names(check)[0]
                raise WrongAnswerError(f"{answer!r:.200} of {name}: a reason or None is meant")
        return None


def check_names(validator: Validator) -> tuple[str, ...]:
    """Returns the names of a validator's checks, as listings show them."""
    if isinstance(validator, RejectIf):
        return tuple(name for check in validator.checks for name in check_names(check))
    return (re.split("[:.]", qualified_function(validator))[-1].strip("_<>"),)


def declared_dtypes(validator: Validator) -> tuple[str, ...]:
    """Returns the names of the dtypes that the checks with an attribute ``dtypes`` let pass; none without such."""
    checks = validator.checks if isinstance(validator, RejectIf) else (validator,)
    declared = [frozenset(check.dtypes) for check in checks if hasattr(check, "dtypes")]
    names = {str(dtype) for dtype in frozenset.intersection(*declared)} if declared else set()
    return tuple(sorted(name.removeprefix("torch.") for name in names))


def with_settings(validator: Validator) -> Validator:
    """Returns a validator as ``(node, settings)``.

    Raises:
        ConverterSignatureError: It can be called with neither one nor two arguments.
    """
    if _takes_settings(validator):
        return validator
    return functools.wraps(validator)(lambda node, settings: validator(node))  # noqa: ARG005


def _takes_settings(validator: Validator) -> bool:
    """Returns whether a validator takes the settings beside the node.

    Raises:
        ConverterSignatureError: It takes neither one nor two arguments.
    """
    if isinstance(validator, RejectIf) or takes_exactly(2, validator):
        return True
    if takes_exactly(1, validator):
        return False
    try:
        signature = inspect.signature(validator)
    except (TypeError, ValueError) as error:
        raise ConverterSignatureError(_validator_message(validator)) from error
    for argument_count in (2, 1):
        try:
            signature.bind(*range(argument_count))
        except TypeError:
            continue
        return argument_count == 2
    raise ConverterSignatureError(_validator_message(validator))


def _validator_message(validator: Validator) -> str:
    return (
        f"The validator {qualified_function(validator)} cannot be called with (node, settings) nor with (node). "
        "Write `def validator(node, settings)`."
    )
