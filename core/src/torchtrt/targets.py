"""Names of ops: what a converter is registered for, in one spelling and in all that users write.

A **target** is the function that a graph node calls. It is an ``OpOverload`` (``torch.ops.aten.relu.default``), a
higher-order operator, or a Python function on sizes such as ``operator.getitem`` and ``math.ceil``.
"""

from __future__ import annotations

import builtins
import difflib
import functools
import math
import operator
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, TypeGuard

import torch

from torchtrt.errors import (
    AmbiguousTargetError,
    InvalidTargetError,
    UnknownTargetError,
    did_you_mean,
)
from torchtrt.torch_internals import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    registered_ops,
)

Target = Callable[..., Any]
"""An op that a graph node calls: an ``OpOverload`` or another callable."""

_PYTHON_MODULES = {"operator": operator, "math": math, "builtins": builtins, "torch": torch}
_MODULES_OF_FUNCTIONS = ("fft", "linalg", "nn.functional", "special")
"""The modules of ``torch`` with functions that call ops."""


def qualified_name(target: Target | str) -> str:
    """Returns the one spelling of an op's name.

    ``"aten.add.Tensor"``, ``"torchvision.nms.default"``, ``"operator.getitem"``, ``"math.ceil"``,
    ``"higher_order.cond"``. A name, such as the target of an fx node that is no call, stays as it is.
    """
    if isinstance(target, (OpOverload, str)):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"{target.namespace}.{target.name()}"
    module = getattr(target, "__module__", None) or "builtins"
    name = getattr(target, "__qualname__", None) or type(target).__qualname__
    name = name.removeprefix("_VariableFunctionsClass.")  # of functions such as torch.relu
    return f"{module.removeprefix('_')}.{name}"


def parse_targets(spec: Target | str) -> frozenset[Target]:
    """Returns the ops that ``spec`` stands for.

    Args:
        spec: An op, a packet or a name. A packet, and ``"aten.add"``, stand for all overloads. Other names are
            ``"aten::add.Tensor"``, ``"torch.ops.aten.add.Tensor"``, ``"operator.getitem"`` and ``"math.ceil"``.

    Raises:
        UnknownTargetError: There is no such op; the message names the closest one.
        InvalidTargetError: ``spec`` is neither a function nor a string.
    """
    op = _op_or_packet(spec)
    if isinstance(op, OpOverloadPacket):
        return frozenset(getattr(op, overload) for overload in _overloads(op))
    if not _is_function(op):
        raise InvalidTargetError(
            f"{spec!r} names no op: give an op, an op packet or a name such as 'aten.add.Tensor'."
        )
    return frozenset((op,))


def parse_target(spec: Target | str) -> Target:
    """Returns the one op that a converter registered for ``spec`` converts.

    Args:
        spec: As for ``parse_targets``. A packet stands for its ``default`` overload if it has
            no other (``out`` aside).

    Raises:
        AmbiguousTargetError: The packet has several overloads; the message names them.
        UnknownTargetError: There is no such op; the message names the closest one.
        InvalidTargetError: ``spec`` is neither a function nor a string.
    """
    op = _op_or_packet(spec)
    if isinstance(op, OpOverloadPacket):
        return _only_overload(op)
    (target,) = parse_targets(op)
    return target


def canonical_spelling(name: str) -> str:
    """Returns ``name`` in the spelling of ``qualified_name``, whether or not there is such an op.

    ``"torchvision::nms"`` and ``"torch.ops.torchvision.nms"`` become ``"torchvision.nms.default"``.
    """
    path = name.strip().removeprefix("torch.ops.").replace("::", ".", 1)
    if path.removeprefix("_").split(".")[0] in _PYTHON_MODULES:
        return path.removeprefix("_")
    return f"{path}.default" if path.count(".") == 1 else path


def _op_or_packet(spec: Target | str) -> Any:
    """Returns the op or the packet that users write in any spelling; anything that is neither as it is."""
    return _find(spec) if isinstance(spec, str) else _as_node_has_it(spec)


def _overloads(packet: OpOverloadPacket) -> list[str]:
    return packet.overloads()  # type: ignore[no-any-return]


def _only_overload(packet: OpOverloadPacket) -> OpOverload:
    overloads = _overloads(packet)
    if not set(overloads) <= {"default", "out"} or "default" not in overloads:
        packet_name = packet._qualified_op_name.replace("::", ".")
        names = ", ".join(f"{packet_name}.{overload}" for overload in sorted(overloads))
        message = f"{packet_name} has several overloads. Write the one that is meant: {names}."
        raise AmbiguousTargetError(message)
    return packet.default


def _find(name: str) -> Target | OpOverloadPacket:
    path = name.strip().removeprefix("torch.ops.").replace("::", ".", 1)
    module = _PYTHON_MODULES.get(path.removeprefix("_").split(".")[0])
    op = _find_function(module, path) if module else _find_operator(path)
    if op is None:
        raise UnknownTargetError(functools.partial(_unknown, name, path))
    return op


def _find_function(module: ModuleType, path: str) -> Target | None:
    function = getattr(module, path.partition(".")[2], None)
    return _as_node_has_it(function) if _is_function(function) else None


def _as_node_has_it(function: Any) -> Any:
    """Returns the higher-order op for what users call in its place, as ``torch.cond``; anything else as it is."""
    module = str(getattr(function, "__module__", ""))
    if module == "torch" or module.startswith("torch._higher_order_ops."):
        return getattr(torch.ops.higher_order, getattr(function, "__name__", ""), function)
    return function


def _is_function(value: Any) -> TypeGuard[Target]:
    # A class, as torch.Tensor or builtins.ValueError, is callable too but is never what a graph node calls.
    return callable(value) and not isinstance(value, type)


def _find_operator(path: str) -> Target | OpOverloadPacket | None:
    """Returns the op or packet at a path below ``torch.ops``, or None."""
    namespace_name, _, rest = path.partition(".")
    packet_name, _, overload_name = rest.partition(".")
    try:
        op = getattr(getattr(torch.ops, namespace_name), packet_name)
        if overload_name:
            op = getattr(op, overload_name)
    except AttributeError:
        return None
    # Namespaces and packets have attributes of their own, such as ``name``.
    is_operator = isinstance(op, (OpOverload, OpOverloadPacket, HigherOrderOperator))
    return op if is_operator else None


def _unknown(name: str, path: str) -> str:
    """Returns the message about a name that no op has: the closest op, or what to import."""
    message = f"There is no op {name!r} in PyTorch {torch.__version__}."
    otherwise = "If a library adds it, import that library first; the command torchtrt does so with --import LIBRARY."
    for full in (f"aten.{path}", f"higher_order.{path}"):
        if path and _find_operator(full):
            return f"{message} Did you mean {full!r}?"
    if (op := op_of_function(path)) is not None:
        return f"{message} Did you mean {op!r}, which the function calls?"
    namespace, dot, _ = path.partition(".")
    if dot and not difflib.get_close_matches(namespace, _namespaces()):
        return f"{message} No library that is imported has ops of {namespace!r}. {otherwise}"
    return f"{message} {did_you_mean(path, _known_names(path), otherwise)}"


def op_of_function(path: str) -> str | None:
    """Returns the op of a function such as ``torch.linalg.svd`` or ``torch.nn.functional.gelu``, or None."""
    module, _, name = path.removeprefix("torch.").rpartition(".")
    if module.startswith("_C."):  # as functions of torch.nn.functional that are no Python code
        module = ""
    if not path.startswith("torch.") or module not in ("", *_MODULES_OF_FUNCTIONS):
        return None
    names = (f"aten.{module}_{name}", f"aten.{name}") if module else (f"aten.{name}",)
    return next((name for name in names if _find_operator(name)), None)


def _namespaces() -> set[str]:
    """Returns what the names of ops begin with: libraries, and Python's modules whose functions are ops."""
    registered = registered_ops()
    return {*_PYTHON_MODULES, "higher_order", *(name.partition("::")[0] for name in registered)}


def _known_names(path: str) -> Iterable[str]:
    """Yields the names that a misspelt ``path`` is compared with, in as much detail as it has itself."""
    if (module := _PYTHON_MODULES.get(path.split(".")[0])) is not None:
        return [
            f"{module.__name__.removeprefix('_')}.{name}"
            for name in dir(module)
            if not name.startswith("__") and _is_function(getattr(module, name))
        ]
    return _operator_names(with_overload=path.count(".") > 1)


@functools.lru_cache(maxsize=2)
def _operator_names(*, with_overload: bool) -> tuple[str, ...]:
    names = (name.replace("::", ".", 1) for name in registered_ops())
    if with_overload:
        return tuple(sorted(n if n.count(".") > 1 else f"{n}.default" for n in names))
    return tuple(sorted({".".join(name.split(".")[:2]) for name in names}))
