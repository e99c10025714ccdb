"""CompilationSettings: what it accepts, and its errors otherwise."""

import copy
import dataclasses
import operator
import pickle
import re
from pathlib import Path

import pytest
import torch

from torchtrt import peer_settings
from torchtrt.errors import SettingsError, UnknownTargetError
from torchtrt.settings import CompilationSettings, check_setting_names

ADD = torch.ops.aten.add


@pytest.mark.parametrize(
    "spelling",
    [ADD, ADD.Tensor, "aten.add", "aten::add.Tensor", "torch.ops.aten.add.Tensor"],
    ids=str,
)
def test_ops_are_taken_in_any_spelling(spelling):
    """An overload, a packet and every textual form name the same op."""
    settings = CompilationSettings(torch_executed_ops={spelling})

    assert ADD.Tensor in settings.torch_executed_ops


def test_a_packet_stands_for_all_of_its_overloads():
    """Naming the packet keeps every overload in PyTorch."""
    settings = CompilationSettings(torch_executed_ops={"aten.add"})

    assert {ADD.Tensor, ADD.Scalar} <= settings.torch_executed_ops


def test_one_name_needs_no_collection():
    """A lone string is one op, not its letters."""
    assert {ADD.Tensor} == CompilationSettings(
        torch_executed_ops="aten.add.Tensor"
    ).torch_executed_ops


@pytest.mark.parametrize("op", [ADD.Tensor, ADD], ids=str)
def test_one_op_needs_no_collection(op):
    """A lone overload or packet is that op, not what iterating over it gives."""
    assert ADD.Tensor in CompilationSettings(torch_executed_ops=op).torch_executed_ops


def test_an_unknown_op_is_an_error_that_names_the_closest():
    """A misspelt op is not silently ignored."""
    with pytest.raises(UnknownTargetError, match="aten"):
        CompilationSettings(torch_executed_ops={"aten.ad"})


def test_an_unknown_setting_is_an_error_that_names_the_closest():
    """A misspelt setting is not silently ignored."""
    with pytest.raises(SettingsError, match="Did you mean 'min_block_size'"):
        CompilationSettings.from_keywords(min_blocksize=1)


@pytest.mark.parametrize("name", sorted(peer_settings.ADVICE))
def test_a_setting_of_torch_tensorrt_is_answered_with_ours(name):
    """In place of the name that happens to look like it."""
    with pytest.raises(SettingsError) as caught:
        CompilationSettings.from_keywords(**{name: True})

    advice = peer_settings.ADVICE[name]
    assert str(caught.value) == (
        f"torchtrt has no setting named {name!r}. It is a setting of Torch-TensorRT. {advice}"
    )
    assert {*re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", advice)} <= {
        *(setting.name for setting in dataclasses.fields(CompilationSettings)),
        "record_compilation",
    }


def test_the_migration_page_has_each_setting_of_torch_tensorrt():
    """In one table: those of another name, with what the error says, and those of the same."""
    page = (Path(__file__).parents[2] / "docs/from-torch-tensorrt.md").read_text(encoding="utf-8")
    section = page[page.index("## Settings") : page.index("## Adopt a module")]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    named = {name: text for cell, text in rows for name in re.findall(r"`(\w+)`", cell)}
    settings = {setting.name for setting in dataclasses.fields(CompilationSettings)}

    assert {*peer_settings.ADVICE} == {*named} - settings - {"enabled_precisions"}
    assert {"the same"} == {named[name] for name in named if name in settings}
    for name, advice in peer_settings.ADVICE.items():
        for ours in settings:
            assert (re.search(rf"\b{ours}\b", advice) is None) == (
                re.search(rf"`{ours}\b", named[name]) is None
            ), (name, ours)


def test_an_unknown_name_may_be_meant_for_an_argument_of_the_function():
    """An argument of the function is closer than a setting."""

    def compiling(model, *, max_length, **settings):
        check_setting_names(settings, compiling)

    with pytest.raises(
        SettingsError, match=r"no setting named 'max_lenght'\. Did you mean 'max_length'"
    ):
        compiling(None, max_length=2, max_lenght=3)
    with pytest.raises(SettingsError, match="Did you mean 'min_block_size'"):
        compiling(None, max_length=2, min_blocksize=1)
    compiling(None, max_length=2, min_block_size=1, enabled_precisions={torch.float16})


@pytest.mark.parametrize(
    "keywords",
    [
        {"min_block_size": 0},
        {"min_block_size": True},
        {"min_block_size": "3"},
        {"workspace_size": -1},
        {"optimization_level": 6},
        {"optimization_level": ""},
        {"tactic_sources": "all"},
        {"require_full_compilation": "no"},
        {"truncate_double": 1},
        {"immutable_weights": None},
        {"progress": "yes"},
        {"tactic_sources": 2**31},
        {"workspace_size": 2**63},
        *({"engine_cache": word} for word in ("true", "False", "yes", "NO", "on", "off", "0", "1")),
        {"engine_cache": "a\0b"},
        *({name: ""} for name in ("engine_cache", "timing_cache", "runtime_cache")),
        {"runtime_cache": Path("a\0b")},
        {"torch_executed_ops": None},
        {"converter_preferences": ["aten.relu"]},
        {"converter_preferences": {"aten.relu": 3}},
    ],
    ids=str,
)
def test_an_unusable_value_is_an_error_that_lists_the_usable_ones(keywords):
    """Values out of range are refused when the settings are made."""
    with pytest.raises(SettingsError, match="it must be"):
        CompilationSettings(**keywords)


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("dryrun", 1, "True or False"),
        ("progress", 1, "True, False or None"),
        ("inductor", "best", "True, False or 'max-autotune'"),
        ("cuda_graphs", "max-autotune", "True, False, 'overwrite' or 'runtime'"),
        ("max_aux_streams", -1, "0 to 2**31 - 1, or None"),
        ("torch_executed_modules", 5, "a collection of regular expressions"),
        (
            "target_compute_capabilities",
            8.6,
            "'8.6', a collection of such texts, 'all', 'current' or None",
        ),
        ("torch_executed_ops", 3, "an op, or a collection of ops"),
        ("autocast_excluded_nodes", ["("], "a collection of regular expressions"),
    ],
)
def test_the_error_for_an_unusable_value_has_the_words_of_its_setting(setting, value, wanted):
    """Each setting has its own check, and every check its own words."""
    with pytest.raises(SettingsError) as caught:
        CompilationSettings(**{setting: value})

    assert str(caught.value) == (
        f"The setting {setting}={value!r} is not usable: it must be {wanted}."
    )


def test_an_op_cannot_be_both_enabled_and_disabled_for_decomposition():
    """The two sets of decompositions are disjoint."""
    with pytest.raises(SettingsError, match="both name"):
        CompilationSettings(
            torch_enabled_decompositions={"aten.gelu.default"},
            torch_disabled_decompositions={"aten.gelu"},
        )


@pytest.mark.parametrize("spelling", [operator.getitem, "_operator.getitem"], ids=str)
def test_taking_a_result_is_no_op_to_keep_in_pytorch(spelling):
    """It runs where the op runs whose result it takes."""
    with pytest.raises(SettingsError, match="Name the op that has the results"):
        CompilationSettings(torch_executed_ops={spelling, "aten.topk"})


def test_preferences_are_by_op():
    """A preference for a packet holds for its overloads."""
    settings = CompilationSettings(converter_preferences={"aten.gelu": "mine"})

    assert settings.converter_preferences[torch.ops.aten.gelu.default] == "mine"


def test_settings_do_not_change():
    """Settings are shared between threads, so they cannot be changed."""
    with pytest.raises(AttributeError):
        CompilationSettings().min_block_size = 3


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
        lambda settings: pickle.loads(pickle.dumps(settings)),
    ],
    ids=["copy", "deepcopy", "replace", "pickle"],
)
def test_a_copy_of_settings_is_equal_and_hashes_the_same(copied):
    """Settings can be a key, and can be sent to another process."""
    settings = CompilationSettings(
        torch_executed_ops={ADD, "operator.mul", torch.ops.higher_order.cond, "torch.sym_max"},
        converter_preferences={"aten.gelu": "mine", operator.add: "local"},
        torch_disabled_decompositions="aten.silu",
        min_block_size=2,
    )

    assert settings == copied(settings)
    assert hash(settings) == hash(copied(settings))
    assert {settings} != {CompilationSettings()}


@pytest.mark.parametrize("value", [5, torch.int8, {torch.float16, torch.bfloat16}, [[]], "half"])
def test_precisions_of_the_peer_that_are_none_are_refused(value: object) -> None:
    """Whatever they are."""
    with pytest.raises(SettingsError, match=r"enabled_precisions=.* is not usable"):
        CompilationSettings.from_keywords(enabled_precisions=value)
