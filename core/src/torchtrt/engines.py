"""What ``torchtrt-engines`` brings, found through the group ``torchtrt.engines``: engines beyond their process."""

from __future__ import annotations

import functools
import os
from importlib.metadata import entry_points
from typing import Any

import torch

from torchtrt.errors import MissingPieceError
from torchtrt.settings import SWITCHES

CACHE_VARIABLE = "TORCHTRT_CACHE"
FUNCTIONS = ("load", "profile", "refit_module_weights", "save", "weight_streaming")


@functools.cache
def engines() -> Any:
    """Returns the package ``torchtrt_engines``; a :class:`MissingPieceError` says how to install it."""
    if not (found := tuple(entry_points(group="torchtrt.engines"))):
        raise MissingPieceError(
            "Saving, loading, caching and refitting engines is in a distribution of its own, which is not installed: "
            "`pip install torchtrt-engines`."
        )
    return found[0].load()


def engine_cache(setting: bool | str | os.PathLike[str] | None) -> Any:
    """Returns the cache that a compilation with this setting uses, or None."""
    named = os.environ.get(CACHE_VARIABLE, "")
    where = SWITCHES.get(named.lower(), named) if setting is None else setting
    return engines().open_cache(where) if where else None


def __getattr__(name: str) -> Any:
    """Returns a function of the distribution, or one that says what to install."""
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(engines(), name)
    except MissingPieceError:
        return lambda *_, **__: engines()


_LIBRARY: Any = torch.library.Library("torchtrt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "execute_engine(Tensor[] inputs, Tensor plan, str description) -> Tensor[]",
    tags=torch.Tag.pt2_compliant_tag,
)
_LIBRARY.impl(
    "execute_engine", lambda *args: engines().execute_engine(*args), "CompositeExplicitAutograd"
)
_NAME = "torchtrt::execute_engine"
torch.library.register_fake(_NAME, lambda *args: engines().engine_outputs(*args), lib=_LIBRARY)
torch.library.register_autograd(_NAME, lambda *_: engines().no_gradients(), lib=_LIBRARY)
