"""The merged table: for every op its candidates in order. Built once for each state of the packs, never changed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torchtrt.capability import Capability
from torchtrt.contract import CallingConvention, SchemaArguments
from torchtrt.errors import ConverterSignatureError
from torchtrt.packs import ConverterPriority, LoadedPack, PackInfo, PackSet, Problem
from torchtrt.packs.info import THIRD_PARTY_TIER
from torchtrt.packs.load import satisfies
from torchtrt.packs.registrations import Registration, target_or_name
from torchtrt.packs.state import record
from torchtrt.registry.candidate import Candidate, DecompositionCandidate, Rejection
from torchtrt.registry.order import Conflict, Entry, find_conflicts, in_order
from torchtrt.targets import Target, qualified_name
from torchtrt.tensorrt import lacking, version
from torchtrt.tensorrt.probes import disabled, disabling
from torchtrt.tensorrt.selection import current

Decompositions = Mapping[Target, tuple[Callable[..., Any], PackInfo]]


class Table:
    """Everything that a lookup needs, derived from the packs in use.

    Attributes:
        packs: The packs that the table was made from.
        candidates: For each op its candidates, in the order in which they are tried.
        pending: Names of ops that packs convert or decompose but that this PyTorch does not have (yet), each with the
            names of these packs.
    """

    def __init__(self, packs: PackSet) -> None:
        self.packs = packs
        registered: dict[Target, list[Candidate]] = {}
        for loaded in packs.loaded:
            for registration in loaded.pack.converters:
                target = target_or_name(registration.target)
                if isinstance(target, str):
                    continue
                candidate = _candidate(target, registration, loaded)
                if isinstance(candidate, Problem):
                    record(candidate)
                else:
                    registered.setdefault(target, []).append(candidate)
        self.pending = _missing_ops(packs)
        self._depends_on_tensorrt = any(
            candidate.tensorrt or candidate.support.requires
            for entries in registered.values()
            for candidate in entries
        )
        self.candidates: Mapping[Target, tuple[Candidate, ...]] = _in_order(registered, packs)
        self._unusable: dict[Any, Mapping[Candidate, Rejection]] = {}

    @functools.cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The ops that two third parties claim with HIGH, of converters and of decompositions."""
        preferred = self.packs.preferred
        return (
            *find_conflicts(self.candidates, preferred),
            *find_conflicts(self.decomposition_candidates, preferred),
        )

    @functools.cached_property
    def decomposition_candidates(self) -> Mapping[Target, tuple[DecompositionCandidate, ...]]:
        """For each op its decompositions in order; the first is used."""
        registered: dict[Target, list[DecompositionCandidate]] = {}
        for loaded in self.packs.loaded:
            for decomposition in loaded.pack.decompositions:
                target = target_or_name(decomposition.target)
                if not isinstance(target, str):
                    entry = DecompositionCandidate(
                        target, decomposition.function, decomposition.priority, loaded.info
                    )
                    registered.setdefault(target, []).append(entry)
        return _in_order(registered, self.packs)

    @functools.cached_property
    def decompositions(self) -> Decompositions:
        """For each op the decomposition that is used, and whose it is."""
        return MappingProxyType(
            {
                target: (first.function, first.pack)
                for target, (first, *_) in self.decomposition_candidates.items()
            }
        )

    @functools.cached_property
    def never_folded(self) -> frozenset[Target]:
        """The ops that are not computed while compiling."""
        registered = (target for loaded in self.packs.loaded for target in loaded.pack.never_folded)
        targets = map(target_or_name, registered)
        return frozenset(target for target in targets if not isinstance(target, str))

    def shadowing_decomposition(self, candidate: Candidate) -> PackInfo | None:
        """Returns the pack whose decomposition comes before a converter by the order law, or ``None``.

        A ``STANDARD`` converter of a third party, or of the program, only adds. It takes no op that a
        first-party pack serves, be it with a converter or with a decomposition.
        """
        if candidate.priority is ConverterPriority.HIGH or candidate.pack.tier < THIRD_PARTY_TIER:
            return None
        _, pack = self.decompositions.get(candidate.target, (None, None))
        if pack is None or pack.tier >= THIRD_PARTY_TIER:
            return None
        return None if candidate.pack.name in self.packs.preferred else pack

    def unusable(self, lacked: frozenset[Capability]) -> Mapping[Candidate, Rejection]:
        """Returns the candidates that do not work with the TensorRT in use, each with the reason.

        Args:
            lacked: Capabilities that the settings turn off.
        """
        if not self._depends_on_tensorrt:
            return {}
        in_use = current(), lacked | disabled()
        if (unusable := self._unusable.get(in_use)) is None:
            with disabling(lacked):
                entries = (candidate for group in self.candidates.values() for candidate in group)
                verdicts = ((candidate, _unlike_tensorrt(candidate)) for candidate in entries)
                unusable = {
                    candidate: reason for candidate, reason in verdicts if reason is not None
                }
            self._unusable[in_use] = unusable
        return unusable

    def is_pending(self, target: Target) -> bool:
        """Returns whether ``target`` is an op that was missing when the table was made."""
        return bool(self.pending) and qualified_name(target) in self.pending


def _unlike_tensorrt(candidate: Candidate) -> Rejection | None:
    """Returns why a candidate does not work with the TensorRT in use, or ``None`` if it does."""
    in_use = version()
    if not satisfies(in_use, candidate.tensorrt):
        who = "this converter" if candidate.support.tensorrt else candidate.pack.name
        reason = f"{who} works with TensorRT {candidate.tensorrt}, and {in_use} is in use"
        return Rejection(candidate, reason, "tensorrt-version")
    if reason := lacking("this converter", *candidate.support.requires):
        return Rejection(candidate, reason, "tensorrt-capability")
    return None


def _missing_ops(packs: PackSet) -> Mapping[str, tuple[str, ...]]:
    """Returns the names of ops that packs convert, decompose or keep, and that no library has added, with the packs."""
    missing: dict[str, tuple[str, ...]] = {}
    for loaded in packs.loaded:
        pack = loaded.pack
        converted = (registration.target for registration in pack.converters)
        decomposed = (decomposition.target for decomposition in pack.decompositions)
        for target in map(target_or_name, (*converted, *decomposed, *pack.never_folded)):
            if isinstance(target, str) and pack.name not in missing.get(target, ()):
                missing[target] = (*missing.get(target, ()), pack.name)
    return MappingProxyType(missing)


def ops_by_pack(missing: Mapping[str, Sequence[str]]) -> Mapping[str, list[str]]:
    """Returns for each pack the missing ops that it names, from the packs of each op."""
    ops: dict[str, list[str]] = {}
    for op, packs in missing.items():
        for pack in packs:
            ops.setdefault(pack, []).append(op)
    return ops


def _in_order(
    registered: Mapping[Target, list[Entry]], packs: PackSet
) -> Mapping[Target, tuple[Entry, ...]]:
    merged = {target: in_order(registered[target], packs.preferred) for target in registered}
    return MappingProxyType(merged)


def _candidate(
    target: Target, registration: Registration, loaded: LoadedPack
) -> Candidate | Problem:
    """Returns a registration as a candidate, or what is wrong with it, if its op came later than it did."""
    support, arguments = registration.support, registration.arguments
    if registration.convention is CallingConvention.SCHEMA and arguments is None:
        try:
            arguments = SchemaArguments(support.converter_implementation, target)
        except ConverterSignatureError as error:
            return Problem(str(error), "It is not used.", "bad-signature").about(loaded.info)
    return Candidate(
        target,
        support,
        registration.priority,
        registration.convention,
        loaded.info,
        registration.validate,
        arguments,
        ",".join(filter(None, (loaded.pack.tensorrt, support.tensorrt))),
    )
