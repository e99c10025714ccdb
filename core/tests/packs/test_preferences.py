"""A preference for one op, by the settings of a compilation or by the environment, holds or is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchtrt.errors import PackWarning, SettingsError
from torchtrt.packs import ConverterPack, LoadedPack, PackInfo, PackSet, state, use_packs
from torchtrt.packs.preferences import settings_from

RELU = torch.ops.aten.relu.default
Install = Callable[..., None]


def convert(ctx: Any, self: Any) -> Any:
    """A converter of any op of one tensor."""
    return self


@pytest.fixture
def install() -> Iterator[Install]:
    """Puts the packs ``one`` and ``other`` into use, which convert ReLU, and what the environment prefers."""

    def use(*preferred_for: tuple[str, str], strict: bool = False) -> None:
        loaded = []
        for name in ("one", "other"):
            pack = ConverterPack(name)
            pack.add(RELU, convert)
            pack.add(f"acme::{name}", convert)
            loaded.append(LoadedPack(PackInfo(name), pack))
        infos = (*(entry.info for entry in loaded), PackInfo("broken"))
        packs = PackSet(infos, tuple(loaded), strict=strict, preferred_for=preferred_for)
        stack.enter_context(use_packs(packs, problems=[]))

    with contextlib.ExitStack() as stack:
        yield use


@pytest.mark.parametrize(
    ("preferences", "message"),
    [
        (
            {"aten.gelu": "one"},
            r"'one' has no converter for aten.gelu\..*`torchtrt converters aten",
        ),
        ({torch.ops.aten.gelu.default: "one"}, r"'one' has no converter for aten.gelu.default"),
        ({"aten.relu": "broken"}, r"'broken' is not in use.*`torchtrt packs`"),
        ({"aten.relu": "oen"}, r"'oen', which is not installed. Did you mean 'one'"),
    ],
)
def test_a_setting_that_prefers_in_vain_is_an_error(
    install: Install, preferences: dict[Any, str], message: str
) -> None:
    """A user counts on it."""
    install()

    with pytest.raises(SettingsError, match=message):
        settings_from({"converter_preferences": preferences})


def test_a_packet_stands_for_the_overloads_that_the_pack_converts(install: Install) -> None:
    """ReLU has an overload that writes to its result, which has no converter."""
    install()

    settings = settings_from({"converter_preferences": {"aten.relu": "Other"}})

    assert settings.converter_preferences[RELU] == "other"


def test_the_environment_prefers_where_the_settings_do_not(install: Install) -> None:
    """What a program sets itself is nearer."""
    install(("aten::relu", "other"))

    assert settings_from({}).converter_preferences[RELU] == "other"
    settings = settings_from({"converter_preferences": {RELU: "one"}})
    assert settings.converter_preferences[RELU] == "one"


@pytest.mark.parametrize(
    ("op", "message"),
    [("aten.gelu", "has no converter for aten.gelu"), ("aten.rleu", "Did you mean 'aten.relu'")],
)
def test_an_environment_that_prefers_in_vain_is_a_warning_and_where_strict_an_error(
    install: Install, op: str, message: str
) -> None:
    """It is set for many programs, of which some have no such op."""
    install((op, "one"))

    with pytest.warns(PackWarning, match=f"TORCHTRT_PACKS_PREFER: .*{message}"):
        settings = settings_from({})

    assert not settings.converter_preferences
    install((op, "one"), strict=True)
    with pytest.raises(state.PackError, match=message):
        settings_from({})
