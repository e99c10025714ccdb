"""ConverterRegistry: finds the converter for a node, with the reason for the choice."""

from __future__ import annotations

import functools
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NoReturn, TypeVar

from torch.fx import Node

from torchtrt.contract import (
    Converter,
    FailedCheckError,
    WrongAnswerError,
    check_names,
    to_rejection,
)
from torchtrt.errors import NoConverterError, UnknownTargetError
from torchtrt.packs import (
    CallingConvention,
    ConverterSupport,
    PackSet,
    Problem,
    current_packs,
    problems,
)
from torchtrt.packs.problem import describe
from torchtrt.packs.state import record
from torchtrt.registry.candidate import Candidate, DecompositionCandidate, Rejection, Resolution
from torchtrt.registry.dynamic_sizes import has_symbolic_dimensions
from torchtrt.registry.excluded_modules import excluding_module
from torchtrt.registry.listing import OpRow, list_everything, op_rows
from torchtrt.registry.order import Conflict, preferred_first
from torchtrt.registry.table import Decompositions, Table
from torchtrt.settings import CompilationSettings
from torchtrt.targets import Target, parse_target, qualified_name
from torchtrt.torch_internals import OpOverloadPacket

Default = TypeVar("Default")

_DEFAULT_SETTINGS = CompilationSettings()
_EXCLUDED = "torch_executed_ops keeps this op in PyTorch"
_ALLOCATES = "fallback_data_dependent_ops keeps ops in PyTorch whose results have a size that depends on data"
_DECOMPOSES = (
    "decomposes the op, and a STANDARD converter comes after first-party packs; HIGH comes before"
)
_STATIC_ONLY = "it does not support dynamic shapes, and the node has symbolic dimensions"


class _Lookup:
    """One question to the registry: a node, the settings, and the converters to choose from.

    Args:
        table: The converters in use.
        node: The node to convert.
        settings: The settings of the compilation.
        decomposition_failed: Whether converters behind the op's decomposition are tried.
    """

    def __init__(
        self, table: Table, node: Node, settings: CompilationSettings, decomposition_failed: bool
    ) -> None:
        self.table = table
        self.node = node
        self.settings = settings
        self.decomposition_failed = decomposition_failed
        self.unusable = table.unusable(settings.disabled_capabilities)

    @functools.cached_property
    def is_dynamic(self) -> bool:
        """True if the node has symbolic dimensions."""
        return has_symbolic_dimensions(self.node)

    def rejection(self, candidate: Candidate) -> Rejection | None:
        """Returns why a candidate does not convert the node, or ``None`` if it does."""
        if (unusable := self.unusable.get(candidate)) is not None:
            return unusable
        support, settings = candidate.support, self.settings
        if support.requires_output_allocator and settings.fallback_data_dependent_ops:
            advice = "Compile without fallback_data_dependent_ops."
            return Rejection(candidate, _ALLOCATES, "user-excluded", advice)
        takes_dynamic = support.supports_dynamic_shapes or settings.assume_dynamic_shape_support
        if not takes_dynamic and self.is_dynamic:
            return Rejection(candidate, _STATIC_ONLY, "dynamic-shapes")
        pack = None if self.decomposition_failed else self.table.shadowing_decomposition(candidate)
        if pack is not None and not self._prefers(candidate):
            return Rejection(candidate, f"{pack.name} {_DECOMPOSES}", "behind-decomposition")
        return None if candidate.validate is None else _validate(candidate, self.node, settings)

    def _prefers(self, candidate: Candidate) -> bool:
        preferences = self.settings.converter_preferences
        return preferences.get(candidate.target) == candidate.pack.name


class ConverterRegistry:
    """The converters of all packs in use, looked up by node.

    Behind it is an ordered list of converter dictionaries, one per pack, merged into one table when something is looked
    up after the packs have changed. It keeps nothing of a compilation: settings are an argument of each lookup.

    Args:
        source: Returns the packs in use; the same object for as long as they are the same.
    """

    def __init__(self, source: Callable[[], PackSet]) -> None:
        self._source = source
        self._table: Table | None = None
        self._lock = threading.Lock()

    # Lookup

    def resolve(
        self,
        node: Node,
        settings: CompilationSettings | None = None,
        *,
        decomposition_failed: bool = False,
    ) -> Resolution:
        """Returns the converter for ``node`` and, for every candidate passed over, the reason.

        Args:
            node: A ``call_function`` node.
            settings: The settings of this compilation; the defaults if omitted.
            decomposition_failed: Whether the op's decomposition was tried and does not serve the node,
                so that converters behind it in the order are tried.
        """
        if settings is None:
            settings = _DEFAULT_SETTINGS
        target = node.target
        if isinstance(target, str):
            message = f"%{node.name} is a {node.op} node. Only call_function nodes have converters."
            raise TypeError(message)
        table, candidates = self._table_with(target)
        rejections: tuple[Rejection, ...] = ()
        if settings.torch_executed_ops and target in settings.torch_executed_ops:
            rejections = (Rejection(None, _EXCLUDED, "user-excluded"),)
            return Resolution(target, node.name, None, rejections, candidates)
        if settings.torch_executed_modules and (pattern := excluding_module(node, settings)):
            reason = f"torch_executed_modules={pattern!r} keeps the ops of this module in PyTorch"
            advice = "Take the module out of torch_executed_modules."
            rejections = (Rejection(None, reason, "user-excluded", advice),)
            return Resolution(target, node.name, None, rejections, candidates)
        if settings.converter_preferences and target in settings.converter_preferences:
            candidates, rejections = _prefer(candidates, settings.converter_preferences[target])
        lookup = _Lookup(table, node, settings, decomposition_failed)
        for candidate in candidates:
            if (rejection := lookup.rejection(candidate)) is None:
                return Resolution(target, node.name, candidate, rejections, candidates)
            rejections += (rejection,)
        return Resolution(target, node.name, None, rejections, candidates, self._unloaded())

    def __getitem__(self, node: Node) -> tuple[Converter, CallingConvention, Mapping[str, bool]]:
        """Returns the converter for ``node``, how to call it, and its flags.

        Raises:
            NoConverterError: There is none. It is a ``KeyError``, and its text carries every reason.
        """
        return self._entry(self.resolve(_as_node(node)))

    def get(
        self,
        node: Node,
        default: Default | None = None,
        settings: CompilationSettings | None = None,
    ) -> tuple[Converter, CallingConvention, Mapping[str, bool]] | Default | None:
        """Returns what ``registry[node]`` returns, or ``default`` if no converter accepts the node."""
        if _as_node(node).op != "call_function":
            return default
        resolution = self.resolve(node, settings)
        return self._entry(resolution) if resolution else default

    def __contains__(self, key: object) -> bool:
        """Returns whether a converter accepts a node or, for an op, whether there is any converter for it."""
        if isinstance(key, Node):
            return key.op == "call_function" and bool(self.resolve(key))
        try:
            return (callable(key) or isinstance(key, str)) and bool(self.candidates(key))
        except UnknownTargetError:
            return False

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise TypeError(
            "The registry cannot be assigned to. Register with @dynamo_tensorrt_converter(op), or from a "
            "converter pack."
        )

    # What there is

    @property
    def registries(self) -> Mapping[str, Mapping[Target, tuple[Candidate, ...]]]:
        """For each pack, in pack order, its converters by op."""
        merged: dict[str, dict[Target, tuple[Candidate, ...]]] = {
            loaded.info.name: {} for loaded in self._current_table().packs.loaded
        }
        for target, candidates in self._current_table().candidates.items():
            for candidate in candidates:
                own = merged[candidate.pack.name]
                own[target] = (*own.get(target, ()), candidate)
        return MappingProxyType({name: MappingProxyType(own) for name, own in merged.items()})

    def candidates(self, target: Target | str) -> tuple[Candidate, ...]:
        """Returns the converters for an op, in any spelling, in the order in which they are tried.

        A packet stands for its only overload.

        Raises:
            AmbiguousTargetError: The packet has several overloads.
            UnknownTargetError: There is no such op.
        """
        self._current_table()  # the packs may import the library that has the op
        if isinstance(target, (str, OpOverloadPacket)):
            target = parse_target(target)
        return self._table_with(target)[1]

    def unique_targets(self) -> frozenset[Target]:
        """Returns every op that has a converter."""
        return frozenset(self._current_table().candidates)

    def missing_targets(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the names of ops that packs convert but that this PyTorch does not have, with the packs' names."""
        return self._current_table().pending

    def get_all_converters_with_target(
        self, target: Target, return_registry_info: bool = False
    ) -> list[ConverterSupport] | tuple[list[ConverterSupport], dict[str, int]]:
        """Returns the converters for an op in order and, if asked, how many each pack has."""
        candidates = self.candidates(target)
        converters = [candidate.support for candidate in candidates]
        return (converters, _count_by_pack(candidates)) if return_registry_info else converters

    def get_converter_support_info(self) -> dict[str, dict[str, int]]:
        """Returns for each op, by qualified name, how many converters each pack has for it."""
        table = self._current_table()
        named = {
            qualified_name(target): candidates for target, candidates in table.candidates.items()
        }
        return {name: _count_by_pack(named[name]) for name in sorted(named)}

    def list_ops(self) -> tuple[OpRow, ...]:
        """Returns for each op, by name, the packs that provide it, in the order in which they are tried."""
        return op_rows(self._current_table())

    def display_all_available_converters(self, verbose: bool = False) -> str:
        """Returns a listing of all packs, and of each op on one line with the packs that provide it, in their order.

        Args:
            verbose: Whether to list each converter and decomposition by itself, with its distribution, function, dtypes
                and checks. ``torchtrt converters OP`` shows the same for one op.
        """
        return list_everything(self._current_table(), problems(), verbose)

    def is_folding_disabled(self, target: Target) -> bool:
        """Returns whether a pack keeps an op in the network even where all that it reads is constant."""
        return target in self._table_with(target)[0].never_folded

    def conflicts(self) -> tuple[Conflict, ...]:
        """Returns the ops that two third parties claim with a HIGH converter, or decomposition, with no preference."""
        return self._current_table().conflicts

    def decomposition_candidates(self) -> Mapping[Target, tuple[DecompositionCandidate, ...]]:
        """Returns for each op its decompositions in order. The first is used."""
        return self._current_table().decomposition_candidates

    def decompositions(self) -> Decompositions:
        """Returns for each op the decomposition in use, and the pack that it comes from.

        The order law holds here too: the first pack in pack order has the op, and ``HIGH`` overrides it.
        """
        return self._current_table().decompositions

    # Inside

    def _current_table(self, rebuild: bool = False) -> Table:
        packs = self._source()
        table = self._table
        if table is None or table.packs is not packs or rebuild:
            with self._lock:
                table = self._table
                if table is None or table.packs is not packs or rebuild:
                    table = self._table = Table(packs)
        return table

    def _table_with(self, target: Target) -> tuple[Table, tuple[Candidate, ...]]:
        """Returns the table and an op's candidates, looked for again where the op may be newer than the table."""
        table = self._current_table()
        candidates = table.candidates.get(target, ())
        if not candidates and table.is_pending(target):
            table = self._current_table(rebuild=True)
            candidates = table.candidates.get(target, ())
        return table, candidates

    def _unloaded(self) -> tuple[Problem, ...]:
        noted = problems()
        if not noted:
            return noted
        in_use = {loaded.info.name for loaded in self._source().loaded}
        return tuple(problem for problem in noted if problem.pack not in in_use)

    def _entry(
        self, resolution: Resolution
    ) -> tuple[Converter, CallingConvention, Mapping[str, bool]]:
        """Returns the converter that a lookup chose, how to call it, and its flags.

        Raises:
            NoConverterError: The lookup chose none.
        """
        if (chosen := resolution.chosen) is None:
            name = qualified_name(resolution.target)
            message = f"{resolution.explain()}\nRun `torchtrt explain {name}` for all that is known about this op."
            raise NoConverterError(message)
        flags = {
            "supports_dynamic_shapes": chosen.support.supports_dynamic_shapes,
            "requires_output_allocator": chosen.support.requires_output_allocator,
        }
        return chosen.converter, chosen.calling_convention, flags


DYNAMO_CONVERTERS = ConverterRegistry(current_packs)
"""The converters of this process."""


def _as_node(node: object) -> Node:
    if not isinstance(node, Node):
        raise TypeError(
            f"The registry is looked up by graph node, not by {node!r}. "
            "Use candidates(op) for everything there is for an op."
        )
    return node


def _count_by_pack(candidates: Iterable[Candidate]) -> dict[str, int]:
    in_order = sorted(candidates, key=lambda candidate: candidate.pack.order)
    return dict(Counter(candidate.pack.name for candidate in in_order))


def _validate(candidate: Candidate, node: Node, settings: CompilationSettings) -> Rejection | None:
    """Returns why the candidate's validator rejects the node, or ``None`` if it accepts."""
    assert candidate.validate is not None
    try:
        answer = candidate.validate(node, settings)
    except KeyboardInterrupt:
        raise
    except WrongAnswerError as error:
        return _failed_answer(candidate, f"its validator returned {error}")
    except BaseException as error:  # SystemExit too: whatever a validator raises stops only itself
        return _failed_validator(candidate, error)
    if answer is None or answer is True:
        return None
    try:
        rejection = to_rejection(answer)
    except TypeError as error:
        return _failed_answer(candidate, f"its validator {candidate.checks} returned {error}")
    assert rejection is not None
    asked = getattr(candidate.validate, "answering", None) or candidate.validate
    reason = rejection.reason or f"its validator {', '.join(check_names(asked))} returned False"
    return Rejection(candidate, reason, advice=rejection.advice)


def _failed_validator(candidate: Candidate, error: BaseException) -> Rejection:
    """Returns the rejection for a validator, or one of its checks, that raised an exception."""
    check, cause = candidate.checks, error
    if isinstance(error, FailedCheckError) and error.__cause__ is not None:
        check, cause = error.check, error.__cause__
    what = f"its validator {check} raised {describe(cause, candidate.qualified_function)}"
    text = "".join(traceback.format_exception(cause))
    return _failed_answer(candidate, what, "validator-failed", text)


def _failed_answer(
    candidate: Candidate, reason: str, code: str = "bad-validator", text: str | None = None
) -> Rejection:
    """Returns the rejection for a validator that gave no answer, and records it as a problem of the pack."""
    hint = f"It counts as a rejection of {qualified_name(candidate.target)}. Report it to {candidate.pack.origin}."
    record(Problem(reason, hint, code, traceback=text).about(candidate.pack))
    return Rejection(candidate, reason, "validator-failed", traceback=text)


def _prefer(
    candidates: tuple[Candidate, ...], pack_name: str
) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
    """Returns the candidates with those of one pack first, or unchanged and the reason where the pack has none."""
    if all(candidate.pack.name != pack_name for candidate in candidates):
        reason = (
            f"converter_preferences asks for pack {pack_name!r}, which has no converter for this op"
        )
        return candidates, (Rejection(None, reason, "no-such-preference"),)
    return preferred_first(candidates, pack_name), ()
