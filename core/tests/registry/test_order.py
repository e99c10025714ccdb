"""The order law, as properties over any packs that register anything."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtrt.packs import ConverterPack, ConverterPriority
from torchtrt.registry import ConverterRegistry
from torchtrt.settings import CompilationSettings

OPS = (torch.ops.aten.relu.default, torch.ops.aten.gelu.default, torch.ops.aten.tanh.default)
FIRST_PARTY = ("aten_core", "aten_experimental", "quantization")
THIRD_PARTY = ("abacus", "vision", "zebra")
STANDARD, HIGH = ConverterPriority.STANDARD, ConverterPriority.HIGH


@dataclass(frozen=True)
class Registered:
    """One converter of a pack: for which op, with which priority."""

    op: Any
    priority: ConverterPriority


registered = st.builds(Registered, st.sampled_from(OPS), st.sampled_from(ConverterPriority))
contents = st.dictionaries(
    st.sampled_from((*FIRST_PARTY, *THIRD_PARTY, "local")),
    st.lists(registered, max_size=5),
    max_size=7,
)
Contents = dict[str, list[Registered]]


def build(name: str, entries: Sequence[Registered]) -> ConverterPack:
    """Returns a pack whose converters record their pack and their place in it."""
    pack = ConverterPack(name)
    for index, entry in enumerate(entries):

        def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None: ...

        convert.__module__, convert.__qualname__ = name, str(index)
        pack.add(entry.op, convert, priority=entry.priority)
    return pack


def order(registry: ConverterRegistry, op: Any) -> list[str]:
    """Returns the candidates for an op as ``pack:place`` in the order in which they are tried."""
    return [candidate.qualified_function for candidate in registry.candidates(op)]


def packs_in_order(everything: Contents) -> list[str]:
    """Returns pack names in pack order."""
    tiers = {"aten_core": 0, "aten_experimental": 1, "quantization": 2, "local": 4}
    return sorted(everything, key=lambda name: (tiers.get(name, 3), name))


@pytest.fixture(scope="module")
def registry_for(registry_of: Callable[..., ConverterRegistry]) -> Callable[..., ConverterRegistry]:
    """Makes a registry from a description of packs."""

    def make(everything: Contents, preferred: Sequence[str] = ()) -> ConverterRegistry:
        packs = [build(name, entries) for name, entries in everything.items()]
        return registry_of(*packs, preferred=preferred)

    return make


@given(everything=contents)
def test_the_candidates_are_one_list_with_standard_at_the_back_and_high_at_the_front(
    registry_for: Callable[..., ConverterRegistry], everything: Contents
) -> None:
    """The law itself, as the list that it describes."""
    registry = registry_for(everything)

    for op in OPS:
        expected: list[str] = []
        for name in packs_in_order(everything):
            for index, entry in enumerate(everything[name]):
                if entry.op is op:
                    position = 0 if entry.priority is HIGH else len(expected)
                    expected.insert(position, f"{name}:{index}")
        assert order(registry, op) == expected


@given(everything=contents)
def test_a_high_converter_of_any_pack_beats_every_standard_one_of_any_pack(
    registry_for: Callable[..., ConverterRegistry], everything: Contents
) -> None:
    """Priority crosses packs."""
    for candidates in map(registry_for(everything).candidates, OPS):
        priorities = [candidate.priority for candidate in candidates]
        assert priorities == sorted(priorities, key=(HIGH, STANDARD).index)


@given(everything=contents, op=st.sampled_from(OPS), pack=st.sampled_from(THIRD_PARTY))
def test_a_third_partys_high_overrides_first_party_converters(
    registry_for: Callable[..., ConverterRegistry], everything: Contents, op: Any, pack: str
) -> None:
    """Whatever the first-party packs register, and at whatever priority."""
    mine = [entry for entry in everything.get(pack, []) if entry.op is not op]
    registry = registry_for({**everything, pack: [*mine, Registered(op, HIGH)]})

    asked_first = registry.candidates(op)[0].pack.name
    assert asked_first not in FIRST_PARTY


@given(everything=contents, pack=st.sampled_from(THIRD_PARTY), ops=st.lists(st.sampled_from(OPS)))
def test_installing_a_pack_of_standard_converters_never_changes_an_existing_choice(
    registry_for: Callable[..., ConverterRegistry], everything: Contents, pack: str, ops: list[Any]
) -> None:
    """It can only add converters for ops that neither a first-party pack nor any pack's HIGH converts.

    Between the standard converters of third parties, and of the program, the order of packs decides.
    """
    before = registry_for({name: entries for name, entries in everything.items() if name != pack})
    after = registry_for({**everything, pack: [Registered(op, STANDARD) for op in ops]})

    for op in OPS:
        existing = order(before, op)
        assert [entry for entry in order(after, op) if not entry.startswith(f"{pack}:")] == existing
        settled = [
            candidate.qualified_function
            for candidate in before.candidates(op)
            if candidate.priority is HIGH or candidate.pack.name in FIRST_PARTY
        ]
        assert order(after, op)[: len(settled)] == settled


@given(everything=contents, seed=st.integers(0, 100))
def test_the_order_of_discovery_changes_nothing(
    registry_for: Callable[..., ConverterRegistry], everything: Contents, seed: int
) -> None:
    """The same packs, found in any order, give the same candidates and the same listing."""
    shuffled = list(everything.items())
    random.Random(seed).shuffle(shuffled)
    first, second = registry_for(everything), registry_for(dict(shuffled))

    assert [order(first, op) for op in OPS] == [order(second, op) for op in OPS]
    assert first.display_all_available_converters() == second.display_all_available_converters()


@given(
    everything=contents,
    preferred=st.lists(st.sampled_from((*FIRST_PARTY, *THIRD_PARTY)), unique=True),
)
def test_preferred_packs_come_first_in_their_order_and_the_law_holds_inside(
    registry_for: Callable[..., ConverterRegistry], everything: Contents, preferred: list[str]
) -> None:
    """Preference outranks the law and changes nothing else."""
    lawful, asked = registry_for(everything), registry_for(everything, preferred)

    def rank(entry: str) -> int:
        pack = entry.partition(":")[0]
        return preferred.index(pack) if pack in preferred else len(preferred)

    for op in OPS:
        assert order(asked, op) == sorted(order(lawful, op), key=rank)


@given(everything=contents)
def test_two_third_parties_with_high_for_one_op_are_a_conflict(
    registry_for: Callable[..., ConverterRegistry], everything: Contents
) -> None:
    """It is recorded for exactly those ops, with the winner first."""
    registry = registry_for(everything)

    rivals = {
        op: {name for name in THIRD_PARTY if Registered(op, HIGH) in everything.get(name, [])}
        for op in OPS
    }
    expected = {op: names for op, names in rivals.items() if len(names) > 1}
    chosen = {
        conflict.target: {candidate.pack.name for candidate in conflict.candidates}
        for conflict in registry.conflicts()
    }
    assert chosen == expected


def test_a_preference_settles_a_conflict(registry_for: Callable[..., ConverterRegistry]) -> None:
    """With a preference, there is nothing to report."""
    everything = {name: [Registered(OPS[0], HIGH)] for name in ("vision", "zebra")}

    assert len(registry_for(everything).conflicts()) == 1
    assert registry_for(everything, ["vision"]).conflicts() == ()


def test_the_last_high_by_name_wins_between_third_parties(
    registry_for: Callable[..., ConverterRegistry],
) -> None:
    """The law's order where no preference is set."""
    everything = {name: [Registered(OPS[0], HIGH)] for name in ("zebra", "abacus", "vision")}

    assert order(registry_for(everything), OPS[0]) == ["zebra:0", "vision:0", "abacus:0"]


def test_decompositions_follow_the_same_law(registry_of: Callable[..., ConverterRegistry]) -> None:
    """The first pack in pack order has the op; HIGH overrides it."""

    def ours(x: torch.Tensor) -> torch.Tensor:
        return x

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return x

    core, vision = ConverterPack("aten_core"), ConverterPack("vision")
    core.decomposition("aten.silu")(ours)
    core.decomposition("aten.mish")(ours)
    vision.decomposition("aten.silu")(theirs)
    vision.decomposition("aten.mish", priority=HIGH)(theirs)

    registered = registry_of(vision, core).decompositions()

    assert {str(op): (function, info.name) for op, (function, info) in registered.items()} == {
        "aten.silu.default": (ours, "aten_core"),
        "aten.mish.default": (theirs, "vision"),
    }


def test_a_standard_converter_takes_no_op_that_a_first_party_pack_decomposes(
    registry_of: Callable[..., ConverterRegistry],
) -> None:
    """It is tried where the decomposition does not serve; HIGH and a preference come before it."""

    def convert(ctx: Any, self: Any) -> None: ...

    core, vision, bold = ConverterPack("aten_core"), ConverterPack("vision"), ConverterPack("bold")
    core.decomposition(torch.ops.aten.erfinv.default)(torch.erfinv)
    vision.add(torch.ops.aten.erfinv.default, convert)
    bold.add(torch.ops.aten.erfinv.default, convert, priority=ConverterPriority.HIGH)
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.erfinv.default, (graph.placeholder("x"),))
    preference = CompilationSettings(converter_preferences={"aten.erfinv": "vision"})

    alone = registry_of(core, vision)

    assert "aten_core decomposes the op" in alone.resolve(node).explain()
    assert alone.resolve(node, decomposition_failed=True)
    assert alone.resolve(node, preference)
    assert registry_of(core, vision, preferred=["vision"]).resolve(node)
    assert registry_of(core, vision, bold).resolve(node).chosen.pack.name == "bold"  # type: ignore[union-attr]


def test_a_conflict_of_converters_names_the_setting_for_one_op(
    registry_of: Callable[..., ConverterRegistry],
) -> None:
    """Preferring a pack for all ops may be more than the user needs."""
    packs = [ConverterPack(name) for name in ("vision", "zebra")]
    for pack in packs:
        pack.add("aten.silu.default", lambda ctx, self: self, priority=HIGH)

    (conflict,) = registry_of(*packs).conflicts()

    assert "Set TORCHTRT_PACKS_PREFER, or converter_preferences in one comp" in str(conflict)


def test_decompositions_conflict_as_converters_do(
    registry_of: Callable[..., ConverterRegistry],
) -> None:
    """Two third parties with HIGH for one op; a STANDARD one or a preference is none."""
    packs = []
    for name, priority in (("vision", HIGH), ("zebra", HIGH), ("abacus", STANDARD)):
        pack = ConverterPack(name)
        pack.decomposition("aten.silu.default", priority=priority)(lambda x: x)
        packs.append(pack)

    (conflict,) = registry_of(*packs).conflicts()

    assert ("decomposition", ["zebra", "vision"]) == (
        conflict.kind,
        [candidate.pack.name for candidate in conflict.candidates],
    )
    assert "TORCHTRT_PACKS_PREFER" in str(conflict)
    assert "converter_preferences" not in str(conflict)
    assert () == registry_of(*packs, preferred=["vision"]).conflicts()
    assert () == registry_of(packs[0], packs[2]).conflicts()
    (order,) = registry_of(*packs).decomposition_candidates().values()
    assert ["zebra", "vision", "abacus"] == [entry.pack.name for entry in order]
