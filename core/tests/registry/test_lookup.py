"""Lookup: which converter a node gets, and every reason why not."""

from __future__ import annotations

import builtins
import operator
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node, symbolic_trace

from core.tests.registry.converters import Call, RegistryOf, convert, pack, relu
from torchtrt.errors import NoConverterError, PackWarning, UnknownTargetError
from torchtrt.packs import CallingConvention, ConverterPack, ConverterPriority, Reject, problems
from torchtrt.registry import DYNAMO_CONVERTERS, get_graph_converter_support
from torchtrt.settings import CompilationSettings

gelu = torch.ops.aten.gelu.default
add = torch.ops.aten.add.Tensor


def convert_for_network(net: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter of the older convention."""


def test_a_node_gets_the_converter_its_convention_and_its_flags(
    registry_of: RegistryOf, call: Call
) -> None:
    """The familiar three."""
    registry = registry_of(pack(supports_dynamic_shapes=True, requires_output_allocator=True))

    assert registry[call(relu)] == (
        convert,
        CallingConvention.CTX,
        {"supports_dynamic_shapes": True, "requires_output_allocator": True},
    )


def test_a_converter_of_the_older_convention_says_so(registry_of: RegistryOf, call: Call) -> None:
    """The interpreter passes the network instead of the context."""
    registry = registry_of(pack(implementation=convert_for_network))

    assert registry[call(relu)][1] is CallingConvention.LEGACY


def test_a_node_without_a_converter_is_a_key_error_that_carries_every_reason(
    registry_of: RegistryOf, call: Call
) -> None:
    """And refers to the page about it."""
    registry = registry_of(
        pack("vision", capability_validator=lambda node: Reject("only 2-D kernels")),
        pack("zebra", capability_validator=lambda node: False),
    )

    with pytest.raises(KeyError) as caught:
        registry[call(relu)]

    assert isinstance(caught.value, NoConverterError)
    headline, vision, zebra, hint = str(caught.value).splitlines()
    assert headline == "No converter accepted aten.relu.default (node %relu_default)."
    assert vision == "  vision  rejected: only 2-D kernels"
    assert zebra.startswith("  zebra   rejected: its validator ")
    assert zebra.endswith("lambda returned False")
    assert hint == "Run `torchtrt explain aten.relu.default` for all that is known about this op."


@pytest.mark.parametrize("answer", [Reject(5), Reject("no", ["do"])], ids=["reason", "advice"])  # type: ignore[arg-type]
def test_a_rejection_in_other_than_words_is_a_fault_of_the_pack(
    registry_of: RegistryOf, call: Call, answer: Reject
) -> None:
    """Reported as one, and nothing that a compilation would fail for."""
    registry = registry_of(pack("vision", capability_validator=lambda node: answer))

    with pytest.warns(PackWarning, match="not both strings"):
        (rejection,) = registry.resolve(call(relu)).rejections

    assert "not both strings" in rejection.reason
    assert isinstance(rejection.advice, str)


def test_get_returns_a_default_instead_of_raising(registry_of: RegistryOf, call: Call) -> None:
    """As a mapping's get does."""
    registry = registry_of(pack())

    assert registry.get(call(gelu)) is None
    assert registry.get(call(gelu), "nothing") == "nothing"
    assert registry.get(call(relu), "nothing")[0] is convert  # type: ignore[index]


def test_asking_for_a_node_validates_and_asking_for_an_op_does_not(
    registry_of: RegistryOf, call: Call
) -> None:
    """An op is there when any pack has a converter for it."""
    registry = registry_of(pack(capability_validator=lambda node: False))

    assert relu in registry
    assert call(relu) not in registry
    assert gelu not in registry


def test_a_node_that_calls_nothing_is_not_in_the_registry(registry_of: RegistryOf) -> None:
    """Placeholders and attributes have no converters."""
    placeholder = Graph().placeholder("x")

    assert placeholder not in registry_of(pack())
    with pytest.raises(TypeError, match="%x is a placeholder node"):
        registry_of(pack()).resolve(placeholder)


def test_looking_up_by_op_is_an_error_that_names_the_alternative(registry_of: RegistryOf) -> None:
    """Only a node has what validators look at."""
    with pytest.raises(TypeError, match=r"Use candidates\(op\)"):
        registry_of(pack())[relu]  # type: ignore[index]


def test_assignment_is_refused(registry_of: RegistryOf) -> None:
    """Registration has one group."""
    with pytest.raises(TypeError, match="dynamo_tensorrt_converter"):
        registry_of(pack())[relu] = convert


def test_the_candidates_are_tried_in_order_until_one_accepts(
    registry_of: RegistryOf, call: Call
) -> None:
    """The one after the chosen is not tried."""
    asked = []

    def validator(answer: bool, name: str) -> Callable[[Node], bool]:
        def ask(node: Node) -> bool:
            asked.append(name)
            return answer

        return ask

    registry = registry_of(
        pack("aten_core", capability_validator=validator(False, "aten_core")),
        pack("vision", capability_validator=validator(True, "vision")),
        pack("zebra", capability_validator=validator(True, "zebra")),
    )

    resolution = registry.resolve(call(relu))

    assert asked == ["aten_core", "vision"]
    assert resolution
    assert resolution.chosen is not None
    assert resolution.chosen.pack.name == "vision"
    assert [rejection.candidate.pack.name for rejection in resolution.rejections] == ["aten_core"]
    assert [candidate.pack.name for candidate in resolution.not_tried] == ["zebra"]


def test_an_explanation_has_a_line_for_every_candidate(registry_of: RegistryOf, call: Call) -> None:
    """The converter, what rejected the node, and what was not tried."""
    registry = registry_of(
        pack("aten_core", capability_validator=lambda node: Reject("only 2-D")),
        pack("vision"),
        pack("zebra"),
    )

    function = f"{convert.__module__}:convert"
    assert registry.resolve(call(relu)).explain() == (
        "aten.relu.default (node %relu_default) is converted by vision (torchtrt-converters-vision 1.0): "
        f"{function}.\n"
        "  aten_core  rejected: only 2-D\n"
        f"  zebra      not tried: {function} comes later"
    )


def test_a_validator_that_raises_is_a_rejection_with_a_traceback(
    registry_of: RegistryOf, call: Call, local: ConverterPack
) -> None:
    """The next candidate is tried; the problem is recorded and shown once."""

    def broken(node: Node) -> bool:
        raise ZeroDivisionError("oops")

    registry = registry_of(pack("aten_core", capability_validator=broken), pack("vision"))

    with pytest.warns(PackWarning, match="raised ZeroDivisionError: oops") as shown:
        first, second = registry.resolve(call(relu)), registry.resolve(call(relu))

    assert len(shown) == 1
    assert first.chosen is second.chosen is not None
    (rejection,) = first.rejections
    assert "ZeroDivisionError: oops (" in rejection.reason
    assert Path(__file__).name in rejection.reason
    assert "line" in (rejection.traceback or "")
    assert ["validator-failed"] == [problem.code for problem in problems()]


@pytest.mark.parametrize(
    "spelling",
    [
        add,
        torch.ops.aten.add,
        "aten.add",
        "aten.add.Tensor",
        "aten::add.Tensor",
        "torch.ops.aten.add.Tensor",
    ],
)
def test_a_disallowed_target_has_no_converter_in_any_spelling(
    registry_of: RegistryOf, call: Call, spelling: Any
) -> None:
    """torch_executed_ops keeps an op in PyTorch, even with converters for it."""
    registry = registry_of(pack(target=add))
    settings = CompilationSettings(torch_executed_ops=frozenset({spelling}))

    resolution = registry.resolve(call(add), settings)

    assert registry.resolve(call(add))
    assert not resolution
    assert "torch_executed_ops keeps this op in PyTorch" in resolution.explain()
    assert registry.get(call(add), settings=settings) is None


def test_a_disallowed_target_that_does_not_exist_is_an_error() -> None:
    """A misspelt op would silently be converted."""
    with pytest.raises(UnknownTargetError, match=r"Did you mean 'aten\.relu'"):
        CompilationSettings(torch_executed_ops=frozenset({"aten.relo"}))


def test_the_settings_reach_the_validator(registry_of: RegistryOf, call: Call) -> None:
    """They travel as an argument."""
    seen = []
    registry = registry_of(
        pack(capability_validator=lambda node, settings: seen.append(settings) or True)
    )
    settings = CompilationSettings(min_block_size=7)

    registry.resolve(call(relu), settings)
    registry.resolve(call(relu))

    assert seen == [settings, CompilationSettings()]


def test_two_threads_with_different_settings_do_not_meet(
    registry_of: RegistryOf, call: Call
) -> None:
    """The registry keeps nothing of a compilation."""
    registry = registry_of(pack())
    node = call(relu)
    outcomes: dict[bool, set[bool]] = {True: set(), False: set()}
    start = threading.Barrier(2)

    def look_up(allowed: bool) -> None:
        ops = frozenset() if allowed else frozenset({relu})
        settings = CompilationSettings(torch_executed_ops=ops)
        start.wait()
        for _ in range(2000):
            outcomes[allowed].add(bool(registry.resolve(node, settings)))

    threads = [threading.Thread(target=look_up, args=(allowed,)) for allowed in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes == {True: {True}, False: {False}}


def test_a_preference_for_one_op_outranks_the_law_in_one_compilation(
    registry_of: RegistryOf, call: Call
) -> None:
    """Other ops and other compilations keep their order."""
    high = {"priority": ConverterPriority.HIGH}
    vision = pack("vision", **high)
    vision.add(gelu, convert, **high)
    core = pack("aten_core")
    core.add(gelu, convert)
    registry = registry_of(core, vision)
    settings = CompilationSettings(converter_preferences={"aten.relu": "aten_core"})

    def chosen(op: Any, settings: CompilationSettings | None = None) -> str:
        resolution = registry.resolve(call(op), settings)
        assert resolution.chosen is not None
        return resolution.chosen.pack.name

    assert chosen(relu, settings) == "aten_core"
    assert chosen(gelu, settings) == chosen(relu) == "vision"


def test_a_preferred_pack_that_declines_yields_to_the_law(
    registry_of: RegistryOf, call: Call
) -> None:
    """A preference is an order, not a demand."""
    declining = pack("vision", capability_validator=lambda node: False)
    settings = CompilationSettings(converter_preferences={relu: "vision"})

    resolution = registry_of(pack("aten_core"), declining).resolve(call(relu), settings)

    assert resolution.chosen is not None
    assert resolution.chosen.pack.name == "aten_core"


def test_a_preference_for_a_pack_without_a_converter_is_explained(
    registry_of: RegistryOf, call: Call
) -> None:
    """It would otherwise look as if it had been followed."""
    settings = CompilationSettings(converter_preferences={relu: "visoin"})

    resolution = registry_of(pack("aten_core")).resolve(call(relu), settings)

    assert resolution
    assert "converter_preferences asks for pack 'visoin'" in resolution.explain()


def test_a_pack_keeps_ops_in_the_network(registry_of: RegistryOf) -> None:
    """Named by the op, or by a name that its library adds later."""
    keeping = ConverterPack("keeping")
    keeping.disable_constant_folding(relu, "torchtrt_lookup_test::kept")
    registry = registry_of(keeping)
    assert registry.is_folding_disabled(relu)
    assert not registry.is_folding_disabled(torch.ops.aten.sigmoid.default)

    with torch.library._scoped_library("torchtrt_lookup_test", "DEF") as library:
        library.define("kept(Tensor x) -> Tensor")

        assert registry.is_folding_disabled(torch.ops.torchtrt_lookup_test.kept.default)


def test_the_registry_says_what_there_is(registry_of: RegistryOf) -> None:
    """Targets, converters and counts by pack."""
    vision = pack("vision", target=operator.getitem)
    vision.add(relu, convert)
    vision.add(relu, convert_for_network, priority=ConverterPriority.HIGH)
    registry = registry_of(pack("aten_core"), vision)

    assert registry.unique_targets() == {relu, operator.getitem}
    assert list(registry.registries) == ["aten_core", "vision"]
    assert set(registry.registries["aten_core"]) == {relu}
    assert registry.get_converter_support_info() == {
        "aten.relu.default": {"aten_core": 1, "vision": 2},
        "operator.getitem": {"vision": 1},
    }
    converters = registry.get_all_converters_with_target(relu)
    functions = [support.converter_implementation for support in converters]
    assert functions == [convert_for_network, convert, convert]
    assert registry.get_all_converters_with_target(relu, return_registry_info=True) == (
        converters,
        {"aten_core": 1, "vision": 2},
    )


def test_a_table_is_merged_once_for_each_state_of_the_packs(
    registry_of: RegistryOf, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup is a dictionary hit and validators; nothing is merged again."""
    from torchtrt.registry import registry as module

    made = []

    class Counted(module.Table):
        def __init__(self, packs: Any) -> None:
            made.append(packs)
            super().__init__(packs)

    monkeypatch.setattr(module, "Table", Counted)
    registry = registry_of(pack())

    for op in (relu, gelu, add):
        registry.resolve(call(op))

    assert len(made) == 1


def test_a_graphs_support_counts_its_calls(local: ConverterPack) -> None:
    """Supported and total; ops that are to stay in PyTorch count as unsupported."""
    local.add(operator.add, convert)
    local.add(operator.mul, convert)
    module = symbolic_trace(lambda x: builtins.abs((x + 1) * 2))

    assert get_graph_converter_support(module) == (2, 3)
    assert get_graph_converter_support(module, torch_executed_ops={"operator.add"}) == (1, 3)
    assert operator.add in DYNAMO_CONVERTERS


def _small(node: Node) -> None: ...


@pytest.mark.parametrize(
    ("check", "code"),
    [(lambda node: 1 / 0, "validator-failed"), (lambda node: 5, "bad-validator")],
    ids=["raises", "answers"],
)
def test_a_check_that_fails_is_named_without_those_beside_it(
    registry_of: RegistryOf, call: Call, check: Any, code: str
) -> None:
    """The author sees which one to repair, and the problem has the code of its kind."""
    registry = registry_of(pack("vision", reject_if=[_small, check]))

    with pytest.warns(PackWarning, match=r"its validator (lambda raised|returned 5 of lambda)"):
        assert registry.resolve(call(relu)).chosen is None
    assert [code] == [problem.code for problem in problems()]


def test_a_validator_that_answers_no_is_named_without_the_checks_beside_it(
    registry_of: RegistryOf, call: Call
) -> None:
    """They may be another's: a ``CheckedPack`` adds its own."""
    registry = registry_of(
        pack("vision", capability_validator=lambda node: False, reject_if=_small)
    )

    (rejection,) = registry.resolve(call(relu)).rejections

    assert rejection.reason == "its validator lambda returned False"
