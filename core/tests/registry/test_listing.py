"""The listing of everything there is: provenance behind every op, in candidate order."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from torchtrt.packs import ConverterPack, ConverterPriority, LoadedPack, PackInfo, PackSet, Problem
from torchtrt.packs.info import LOCAL_TIER
from torchtrt.registry import ConverterRegistry
from torchtrt.registry.listing import list_converters

gelu = torch.ops.aten.gelu.default
relu = torch.ops.aten.relu.default


def gelu_is_tanh(node: Node) -> bool:
    """Stands for a validator."""
    return True


def converter(where: str) -> Callable[..., Any]:
    """Returns a converter that seems to be at ``module:function``."""

    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None: ...

    convert.__module__, convert.__qualname__ = where.split(":")
    return convert


def example() -> PackSet:
    """Returns packs of every kind: in use, disabled and not loaded."""
    core, vision = ConverterPack("aten_core"), ConverterPack("vision")
    local = ConverterPack("local")
    core.add(
        gelu,
        converter("torchtrt_converters_aten_core.activation:gelu"),
        supports_dynamic_shapes=True,
    )
    core.add(
        relu,
        converter("torchtrt_converters_aten_core.activation:relu"),
        supports_dynamic_shapes=True,
    )
    vision.add(
        gelu,
        "torchtrt_converters_vision.gelu:gelu_tanh",
        capability_validator=gelu_is_tanh,
        priority=ConverterPriority.HIGH,
    )
    vision.add(
        "aten::nonzero",
        converter("torchtrt_converters_vision.nonzero:nonzero"),
        requires_output_allocator=True,
    )
    vision.add("vision::fold", "torchtrt_converters_vision.fold:fold")
    local.add(relu, converter("__main__:my_relu"))
    infos = [
        PackInfo("aten_core", "torchtrt-converters-aten-core", "0.1.0", "/site", 0),
        PackInfo("audio", "torchtrt-converters-audio", "2.0", "/site"),
        PackInfo("broken", "torchtrt-converters-broken", "1.2", "/site"),
        PackInfo("vision", "torchtrt-converters-vision", "0.3.0", "/site"),
    ]
    loaded = (
        LoadedPack(infos[0], core),
        LoadedPack(infos[3], vision),
        LoadedPack(PackInfo("local", tier=LOCAL_TIER), local),
    )
    disabled = MappingProxyType({"audio": "disabled by TORCHTRT_PACKS_DISABLE"})
    return PackSet(tuple(infos), loaded, disabled)


PROBLEMS = (
    Problem("ImportError: libfoo.so.2", "Repair it.", "import-failed", "broken"),
    Problem(
        "the metadata of a pack cannot be read: UnicodeDecodeError",
        "Uninstall the distribution and install it again.",
        "bad-metadata",
        distribution="torchtrt_converters_odd-1.0.dist-info",
        location="/site",
    ),
)

GOLDEN = """\
3 ops from 3 packs (2 not in use)

pack       from                                 ops  high  status
aten_core  torchtrt-converters-aten-core 0.1.0    2     0  in use
audio      torchtrt-converters-audio 2.0          -     -  disabled by TORCHTRT_PACKS_DISABLE
broken     torchtrt-converters-broken 1.2         -     -  not loaded: ImportError: libfoo.so.2
vision     torchtrt-converters-vision 0.3.0       3     1  in use
local      this program                           1     0  in use

problem: Converter packs (torchtrt_converters_odd-1.0.dist-info, /site): the metadata of a pack cannot be read: \
UnicodeDecodeError. Uninstall the distribution and install it again.

not in this PyTorch: vision.fold.default

aten.gelu.default
  1.  HIGH      vision     torchtrt-converters-vision 0.3.0     torchtrt_converters_vision.gelu:gelu_tanh\
      static shapes only, checks gelu_is_tanh
  2.  STANDARD  aten_core  torchtrt-converters-aten-core 0.1.0  torchtrt_converters_aten_core.activation:gelu\
  dynamic shapes

aten.nonzero.default
  1.  STANDARD  vision  torchtrt-converters-vision 0.3.0  torchtrt_converters_vision.nonzero:nonzero\
  static shapes only, data-dependent output

aten.relu.default
  1.  STANDARD  aten_core  torchtrt-converters-aten-core 0.1.0  torchtrt_converters_aten_core.activation:relu\
  dynamic shapes
  2.  STANDARD  local      this program                         __main__:my_relu\
                               static shapes only, shadowed by 1."""


def test_the_listing_names_pack_distribution_and_version_behind_every_op() -> None:
    """In candidate order, with priority, shapes, validator and what shadows it; what is not in use has its reason."""
    packs = example()
    registry = ConverterRegistry(lambda: packs)
    candidates = {target: registry.candidates(target) for target in registry.unique_targets()}

    assert list_converters(packs, candidates, registry.missing_targets(), PROBLEMS) == GOLDEN


def test_the_registry_shows_its_own_listing() -> None:
    """With this process's problems."""
    packs = example()

    text = ConverterRegistry(lambda: packs).display_all_available_converters()

    assert text.startswith("3 ops from 3 packs (2 not in use)\n")
    assert text.endswith(GOLDEN[GOLDEN.index("aten.nonzero.default") :])


def test_a_registry_without_packs_says_so() -> None:
    """An empty listing is a listing."""
    assert (
        ConverterRegistry(PackSet)
        .display_all_available_converters()
        .startswith("0 ops from 0 packs")
    )
