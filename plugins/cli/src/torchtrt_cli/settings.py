"""``--set NAME=VALUE``: the settings of a compilation as text."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torchtrt.errors import AmbiguousTargetError, SettingsError, UnknownTargetError
from torchtrt.setting_kinds import SWITCHES
from torchtrt.settings import CompilationSettings


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Returns settings as keyword arguments of ``torchtrt.compile``.

    A text is ``name=value``, and the setting's type decides how the value is read. A switch is ``true`` or ``false``,
    and a dtype has its name. ``none`` stands for None where a setting may be None. A collection has commas, or the form
    that it has in Python. One that is given several times has the elements of all of them.

    Raises:
        SettingsError: A text has another form, or names a setting that there is not, or one has an unusable value.
    """
    types = {spec.name: str(spec.type) for spec in dataclasses.fields(CompilationSettings)}
    types["enabled_precisions"] = "Sequence[torch.dtype]"
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name):
            raise SettingsError(f"--set {text}: write --set NAME=VALUE, as --set autocast=float16.")
        if name not in types:
            CompilationSettings.from_keywords(**{name: value})  # which raises
        parsed = _parsed(value, types[name])
        earlier = settings.get(name)
        if isinstance(earlier, dict) and isinstance(parsed, dict):
            parsed = {**earlier, **parsed}
        elif isinstance(earlier, list) and isinstance(parsed, list):
            parsed = [*earlier, *parsed]
        settings[name] = parsed
        try:
            CompilationSettings.from_keywords(**{name: parsed})
        except (UnknownTargetError, AmbiguousTargetError) as error:
            raise SettingsError(f"--set {text}: {error}") from error
    CompilationSettings.from_keywords(**settings)
    return settings


def _parsed(text: str, kind: str) -> Any:
    """Returns a text as a value of a type, or unchanged: the setting's check then refuses it."""
    if "None" in kind and text.lower() == "none":
        return None
    if "bool" in kind and text.lower() in SWITCHES:
        return SWITCHES[text.lower()]
    for part, read in _READERS.items():
        if part in kind:
            try:
                return read(text)
            except (ValueError, SyntaxError, AttributeError):
                return text
    return text


def _dtype(text: str) -> torch.dtype:
    dtype = getattr(torch, text.removeprefix("torch."))
    if not isinstance(dtype, torch.dtype):
        raise ValueError(text)
    return dtype


def _elements(text: str) -> list[str]:
    """Returns the elements of a collection: as Python writes it, or separated by commas."""
    if text.startswith(("[", "(", "{")):
        written: Iterable[Any] = ast.literal_eval(text)
        return list(written)
    return [part.strip() for part in text.split(",") if part.strip()]


def _packs(text: str) -> dict[str, str]:
    """Returns the pack of each op, from ``aten.gelu=mypack`` and the like."""
    if text.startswith("{"):
        return dict(ast.literal_eval(text))
    pairs: Sequence[tuple[str, str, str]] = [element.partition("=") for element in _elements(text)]
    if not all(op and pack for op, _, pack in pairs):
        raise ValueError(text)
    return {op: pack for op, _, pack in pairs}


_READERS: dict[str, Callable[[str], Any]] = {
    "Mapping": _packs,
    "Sequence[torch.dtype]": lambda text: [_dtype(element) for element in _elements(text)],
    "dtype": _dtype,
    "frozenset[str]": lambda text: _elements(text) if text.startswith(("[", "(", "{")) else [text],
    "str | Sequence": lambda text: text if text in ("all", "current") else _elements(text),
    "frozenset": _elements,
    "Sequence": _elements,
    "int": lambda text: int(text, 0),
    "float": float,
}
"""How to read a value, by a part of its type. The first part that fits counts."""
