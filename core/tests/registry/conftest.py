"""Registries over packs made in memory, and graph nodes to look up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from torchtrt.packs import ConverterPack, LoadedPack, PackInfo, PackSet, local_pack, use_packs
from torchtrt.packs.info import FIRST_TIERS, LOCAL, LOCAL_TIER, PACKS, THIRD_PARTY_TIER
from torchtrt.registry import ConverterRegistry


def tier_of(name: str) -> int:
    """Returns the tier that a pack of this name has once it is installed, with ``quantization`` first-party."""
    return 2 if name == "quantization" else FIRST_TIERS.get(name, THIRD_PARTY_TIER)


def load(pack: ConverterPack, version: str = "1.0") -> LoadedPack:
    """Returns a pack as if it had been installed."""
    if pack.name == LOCAL:
        return LoadedPack(PackInfo(LOCAL, tier=LOCAL_TIER), pack)
    distribution = PACKS.distribution_name(pack.name)
    info = PackInfo(pack.name, distribution, version, "/site", tier_of(pack.name))
    return LoadedPack(info, pack)


def build_registry(*packs: ConverterPack, preferred: Sequence[str] = ()) -> ConverterRegistry:
    """Returns a registry over packs, whatever order they are given in."""
    loaded = sorted(map(load, packs), key=lambda entry: entry.info.order)
    registered = tuple(entry.info for entry in loaded if entry.info.name != LOCAL)
    result = PackSet(installed=registered, loaded=tuple(loaded), preferred=tuple(preferred))
    return ConverterRegistry(lambda: result)


@pytest.fixture(scope="session")
def registry_of() -> Callable[..., ConverterRegistry]:
    """Makes a registry over packs, whatever order they are given in."""
    return build_registry


@pytest.fixture
def call() -> Callable[..., Node]:
    """Makes a node that calls an op on the arguments, or on one placeholder of a fixed shape."""
    graph = Graph()

    def make(target: Any, *args: Any, value: Any = None, **kwargs: Any) -> Node:
        node = graph.call_function(target, args or (placeholder(),), kwargs)
        node.meta["val"] = value
        return node

    def placeholder(value: Any = None) -> Node:
        node = graph.placeholder("x")
        node.meta["val"] = torch.empty(2, 3, device="meta") if value is None else value
        return node

    make.placeholder = placeholder  # type: ignore[attr-defined]
    return make


@pytest.fixture(autouse=True)
def local() -> Iterator[ConverterPack]:
    """The program's own pack, emptied again afterwards.

    Each test starts without the problems that others recorded: registries over made packs report them too.
    """
    with use_packs(problems=[]):
        yield local_pack
