"""The listing of everything there is: provenance behind every op, in candidate order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import Node

from torchtrt.packs import ConverterPack, ConverterPriority, LoadedPack, PackInfo, PackSet, Problem
from torchtrt.packs.info import LOCAL_TIER
from torchtrt.registry import DYNAMO_CONVERTERS, ConverterRegistry
from torchtrt.registry.listing import list_everything
from torchtrt.registry.table import Table
from torchtrt.targets import qualified_name

gelu = torch.ops.aten.gelu.default
relu = torch.ops.aten.relu.default


def gelu_is_tanh(node: Node) -> bool:
    """Stands for a validator."""
    return True


gelu_is_tanh.dtypes = {torch.float32, torch.float16}  # type: ignore[attr-defined]


def converter(where: str) -> Callable[..., Any]:
    """Returns a converter that seems to be at ``module:function``."""

    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None: ...

    return at(where, convert)


def at(where: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that seems to be at ``module:function``."""
    function.__module__, function.__qualname__ = where.split(":")
    return function


def example() -> PackSet:
    """Returns packs of every kind: in use, disabled and not loaded."""
    core, vision = ConverterPack("aten_core", tensorrt=">=8.6"), ConverterPack("vision")
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
        converter("torchtrt_converters_vision.gelu:gelu_tanh"),
        capability_validator=gelu_is_tanh,
        priority=ConverterPriority.HIGH,
        tensorrt=">=10",
    )
    for pack, name in (
        (core, "torchtrt_converters_aten_core.decompositions:silu"),
        (vision, "torchtrt_converters_vision.silu:silu"),
    ):
        pack.decomposition("aten.silu.default")(at(name, lambda self: self))
    vision.lowering_pass("fold")(converter("torchtrt_converters_vision.passes:fold"))
    vision.add(
        "aten::nonzero",
        converter("torchtrt_converters_vision.nonzero:nonzero"),
        requires_output_allocator=True,
    )
    vision.add("vision::fold", converter("torchtrt_converters_vision.fold:fold"))
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

VERBOSE = """\
4 ops from 3 packs (2 not in use)

aten_core (torchtrt-converters-aten-core 0.1.0): in use, 2 converters, 1
    decomposition, TensorRT >=8.6
audio (torchtrt-converters-audio 2.0): disabled by TORCHTRT_PACKS_DISABLE
broken (torchtrt-converters-broken 1.2): not loaded: ImportError: libfoo.so.2
vision (torchtrt-converters-vision 0.3.0): in use, 3 converters (1 HIGH), 1
    decomposition, 1 pass
local (this program): in use, 1 converter

problem: Converter packs (torchtrt_converters_odd-1.0.dist-info, /site): the
    metadata of a pack cannot be read: UnicodeDecodeError. Uninstall the
    distribution and install it again.

not in this PyTorch, of vision: vision.fold.default

Converters, in the order in which they are tried

aten.gelu.default
  1. HIGH vision (torchtrt-converters-vision 0.3.0)
     torchtrt_converters_vision.gelu:gelu_tanh
     static shapes only, TensorRT >=10, dtypes float16 float32, checks
         gelu_is_tanh
  2. STANDARD aten_core (torchtrt-converters-aten-core 0.1.0)
     torchtrt_converters_aten_core.activation:gelu
     dynamic shapes

aten.nonzero.default
  1. STANDARD vision (torchtrt-converters-vision 0.3.0)
     torchtrt_converters_vision.nonzero:nonzero
     static shapes only, data-dependent output

aten.relu.default
  1. STANDARD aten_core (torchtrt-converters-aten-core 0.1.0)
     torchtrt_converters_aten_core.activation:relu
     dynamic shapes
  2. STANDARD local (this program)
     __main__:my_relu
     static shapes only, shadowed by 1.

Decompositions; the first of an op is used

aten.silu.default
  1. STANDARD aten_core (torchtrt-converters-aten-core 0.1.0)
     torchtrt_converters_aten_core.decompositions:silu
  2. STANDARD vision (torchtrt-converters-vision 0.3.0)
     torchtrt_converters_vision.silu:silu
     shadowed by 1.

Passes over the graph, in the order in which they run

fold of vision (torchtrt-converters-vision 0.3.0)
     torchtrt_converters_vision.passes:fold"""


GOLDEN = (
    VERBOSE[: VERBOSE.index("Converters, in")]
    + """\
Ops, and the packs that provide them, in the order in which they are tried

aten.gelu.default     vision HIGH, aten_core
aten.nonzero.default  vision
aten.relu.default     aten_core, local
aten.silu.default     aten_core decomposition, vision decomposition

Passes over the graph, in the order in which they run

fold  vision"""
)


def test_the_verbose_listing_names_distribution_and_version_behind_everything() -> None:
    """Converters, decompositions and passes in order, with ranges and what shadows each; why packs are not used."""
    assert list_everything(Table(example()), PROBLEMS, verbose=True) == VERBOSE


def test_the_listing_has_one_line_for_each_op() -> None:
    """Its packs in their order."""
    assert list_everything(Table(example()), PROBLEMS) == GOLDEN


def lines_of(packs: PackSet) -> dict[str, str]:
    """Returns for each op what its line says."""
    return {row.op: str(row) for row in ConverterRegistry(lambda: packs).list_ops()}


def test_preferences_are_marked_and_decide_the_order() -> None:
    """Those for all ops, and those for one op."""
    packs = dataclasses.replace(
        example(), preferred=("aten_core",), preferred_for=(("aten.relu", "local"),)
    )

    lines = lines_of(packs)

    assert lines["aten.gelu.default"] == "aten_core preferred, vision HIGH"
    assert lines["aten.relu.default"] == "local preferred, aten_core preferred"


def test_a_standard_converter_of_a_third_party_comes_behind_a_first_party_decomposition() -> None:
    """As lookup has it; a HIGH one comes before."""
    silu = "aten.silu.default"
    packs = example()
    vision, local = packs.loaded[1].pack, packs.loaded[2].pack
    local.add(silu, converter("__main__:my_silu"))
    vision.add(silu, converter("m:silu"), priority=ConverterPriority.HIGH)

    line = lines_of(packs)[silu]

    assert line == "vision HIGH, aten_core decomposition, vision decomposition, local"
    preferring = dataclasses.replace(packs, preferred_for=(("aten.silu", "local"),))
    assert lines_of(preferring)[silu].startswith("local preferred, vision HIGH, aten_core decomp")


def test_two_converters_of_one_pack_are_one_provider() -> None:
    """They convert different nodes of the op."""
    packs = example()
    packs.loaded[0].pack.add(relu, converter("torchtrt_converters_aten_core.activation:other"))

    assert lines_of(packs)["aten.relu.default"] == "aten_core, local"


def test_conflicts_are_part_of_the_listing() -> None:
    """Of converters and of decompositions alike."""
    loaded = []
    for name in ("vision", "zebra"):
        pack = ConverterPack(name)
        pack.add(gelu, converter("m:gelu"), priority=ConverterPriority.HIGH)
        pack.decomposition(relu, priority=ConverterPriority.HIGH)(lambda x: x)
        loaded.append(LoadedPack(PackInfo(name, f"torchtrt-converters-{name}", "1.0"), pack))

    text = ConverterRegistry(
        lambda: PackSet(loaded=tuple(loaded))
    ).display_all_available_converters()

    assert "aten.gelu.default  zebra HIGH, vision HIGH  (conflict)\n" in text
    assert (
        "aten.relu.default  zebra HIGH decomposition, vision HIGH decomposition  (conflict)\n"
        in text
    )
    flat = " ".join(text.split())
    for op, kind in (("gelu", "converter"), ("relu", "decomposition")):
        assert (
            f"conflict: aten.{op}.default is claimed with a HIGH {kind} by zebra and vision; zebra comes first."
            in flat
        )


def test_lines_of_details_fit_80_columns() -> None:
    """Except where a name is longer."""
    text = DYNAMO_CONVERTERS.display_all_available_converters(verbose=True)

    assert [] == [line for line in text.splitlines() if len(line) > 80 and " " in line.strip()]


def test_each_op_of_this_process_has_one_line() -> None:
    """Converted or decomposed; no line is broken."""
    ops = {row.op for row in DYNAMO_CONVERTERS.list_ops()}
    lines = DYNAMO_CONVERTERS.display_all_available_converters().splitlines()

    decomposed = map(qualified_name, DYNAMO_CONVERTERS.decomposition_candidates())
    assert ops == {*DYNAMO_CONVERTERS.get_converter_support_info(), *decomposed}
    assert sorted(ops) == sorted(
        line.split("  ")[0] for line in lines if line.split("  ")[0] in ops
    )


def test_the_registry_shows_its_own_listing() -> None:
    """With this process's problems."""
    packs = example()

    text = ConverterRegistry(lambda: packs).display_all_available_converters()

    assert text.startswith("4 ops from 3 packs (2 not in use)\n")
    assert text.endswith(GOLDEN[GOLDEN.index("aten.nonzero.default") :])


def test_a_registry_without_packs_says_so() -> None:
    """An empty listing is a listing."""
    assert (
        ConverterRegistry(PackSet)
        .display_all_available_converters()
        .startswith("0 ops from 0 packs")
    )
