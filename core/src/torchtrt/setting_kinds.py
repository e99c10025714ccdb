"""The kinds of values of settings: which are usable, and the one form in which settings keep them.

``setting`` declares a setting by its kind, its part of the documentation and whether engines follow from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from torchtrt.capability import Capability
from torchtrt.errors import SettingsError
from torchtrt.stores import is_store
from torchtrt.targets import parse_targets

SWITCHES = {"1": True, "true": True, "yes": True, "on": True}
SWITCHES |= {"0": False, "false": False, "no": False, "off": False, "": False}
"""The words for on and off in a setting that is a switch or a folder."""


def is_integer(value: object, least: int = 0, most: int = 2**31 - 1) -> bool:
    """Returns whether a value is an integer in a range, by default one that TensorRT holds, and no ``bool``."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_op_or_collection(value: object) -> bool:
    return callable(value) or isinstance(value, Iterable)


def _is_pack_by_op(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(pack, str) for pack in value.values())


def _is_threshold(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value is None or (is_number and value > 0)  # type: ignore[operator]  # a number


def _are_batches(value: object) -> bool:
    is_one = isinstance(value, (str, bytes, Mapping, torch.Tensor))
    return value is None or (isinstance(value, Iterable) and not is_one)


def _is_cache(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() not in SWITCHES and _is_path(value)
    return isinstance(value, bool) or _is_folder_or_store(value)


def _is_folder_or_store(value: object) -> bool:
    return _is_path(value) or is_store(value)


def _is_path(value: object) -> bool:
    """Returns whether a value is a path, or none; no path has a NUL character."""
    if value is None:
        return True
    return (
        isinstance(value, str | os.PathLike) and value != "" and "\0" not in str(os.fspath(value))
    )


def _are_targets(value: Any) -> bool:
    """Returns whether a value names compute capabilities, all or the current one."""
    targets = _targets(value)
    if targets in (("all",), ("current",)):
        return True
    return all(isinstance(target, str) and re.fullmatch(r"\d+\.\d", target) for target in targets)


_LAYERS = {capability.name: capability for capability in Capability if capability.group == "layers"}
"""The capabilities without which converters choose other layers, by name."""


def layers_named(value: Any) -> frozenset[Capability] | None:
    """Returns the capabilities of layers that a value names; ``None`` if it names anything else."""
    is_one = isinstance(value, (str, Capability))
    if not is_one and not isinstance(value, Iterable):
        return None
    layers = [value] if is_one else list(value)
    names = [layer.name if isinstance(layer, Capability) else layer for layer in layers]
    if not all(isinstance(name, str) and name in _LAYERS for name in names):
        return None
    return frozenset(_LAYERS[name] for name in names)


def _are_names(value: Any) -> bool:
    """Returns whether a value is a sequence of different names that TensorRT can give to tensors."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    are_names = all(isinstance(name, str) and _is_tensor_name(name) for name in value)
    return are_names and len(set(value)) == len(value)


def _is_tensor_name(name: str) -> bool:
    return name.isprintable() and 0 < len(name.encode()) < _LONGEST_NAME


_LONGEST_NAME = 4096
"""The bytes of a name in TensorRT, with the zero at its end."""


def _are_patterns(value: Any) -> bool:
    return not isinstance(value, str) and all(_is_pattern(pattern) for pattern in value)


def _are_texts(value: Any) -> bool:
    is_collection = isinstance(value, Iterable) and not isinstance(value, str)
    return is_collection and all(isinstance(text, str) for text in value)


def _is_pattern(text: Any) -> bool:
    try:
        re.compile(text)
    except (re.error, TypeError):
        return False
    return isinstance(text, str)


def _parsed(specs: Any) -> frozenset[Any]:
    """Returns the ops that one spelling or several stand for."""
    spellings = (specs,) if isinstance(specs, str) or callable(specs) else specs
    return frozenset(target for spec in spellings for target in parse_targets(spec))


def _pack_by_op(preferences: Mapping[Any, str]) -> Mapping[Any, str]:
    pairs = ((op, pack) for spec, pack in preferences.items() for op in parse_targets(spec))
    return MappingProxyType(dict(pairs))


def _targets(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(() if value is None else value)


def _engine_capability(value: Any) -> Any:
    """Returns the lower-case name of a member of TensorRT's enumeration; any other value as it is."""
    name = getattr(value, "name", value)
    return _OLD_NAMES.get(name, name.lower()) if isinstance(name, str) else value


_OLD_NAMES = {"DEFAULT": "standard", "SAFE_GPU": "safety", "SAFE_DLA": "dla_standalone"}
"""The first names of the members in TensorRT 8.6."""


@dataclass(frozen=True)
class Kind:
    """A kind of values.

    Attributes:
        accepts: Returns whether a value is usable.
        wanted: The usable values, in words.
        normal: Returns a usable value in the form in which settings keep it.
    """

    accepts: Callable[[Any], bool]
    wanted: str
    normal: Callable[[Any], Any] = lambda value: value

    def check(self, name: str, value: Any) -> None:
        """Raises a ``SettingsError`` for a value that is not usable.

        Args:
            name: The name of the setting.
            value: Its value.
        """
        try:
            is_usable = self.accepts(value)
        except TypeError:  # a value that has no such operation, as a number that is no collection
            is_usable = False
        if not is_usable:
            message = f"The setting {name}={value!r} is not usable: it must be {self.wanted}."
            raise SettingsError(message)


def _one_of(*values: Any) -> Kind:
    """Returns the kind of a setting that takes one of a few values."""
    types = tuple(map(type, values))
    shown = [repr(value) for value in values]
    return Kind(
        lambda value: isinstance(value, types) and value in values,  # 1, which equals True, is none
        f"{', '.join(shown[:-1])} or {shown[-1]}",
    )


SWITCH = _one_of(True, False)
COUNT = Kind(lambda value: is_integer(value, 1), "an integer from 1 to 2**31 - 1")
COUNT_OR_NONE = Kind(
    lambda value: value is None or is_integer(value, 1), "an integer from 1 to 2**31 - 1, or None"
)
THRESHOLD = Kind(_is_threshold, "a number above 0, or None")
BATCHES = Kind(_are_batches, "an iterable of batches, such as a DataLoader or a list, or None")
BYTES = Kind(lambda value: is_integer(value, 0, 2**63 - 1), "bytes, 0 or more")
BYTES_OR_NONE = Kind(
    lambda value: value is None or is_integer(value, 1, 2**63 - 1), "bytes, 1 or more, or None"
)
INTEGER_OR_NONE = Kind(lambda value: value is None or is_integer(value), "0 to 2**31 - 1, or None")
LEVEL = Kind(lambda value: value is None or is_integer(value, 0, 5), "0 to 5 or None")
DTYPE = _one_of(torch.float16, torch.bfloat16, None)
OPS = Kind(_is_op_or_collection, "an op, or a collection of ops", _parsed)
PACK_BY_OP = Kind(_is_pack_by_op, "a dictionary: the op, and the name of the pack", _pack_by_op)
PATTERNS = Kind(_are_patterns, "a collection of regular expressions", frozenset)
PASSES = Kind(_are_texts, "a collection of names, such as ['aten_core.autocast']", frozenset)
LAYERS = Kind(
    lambda value: layers_named(value) is not None,
    f"a torchtrt.tensorrt.Capability of a layer, its name, or a collection: {', '.join(_LAYERS)}",
    layers_named,
)
NAMES = Kind(_are_names, "a sequence of different names: printable text of 1 to 4,095 bytes", tuple)
GPUS = Kind(_are_targets, "'8.6', a collection of such texts, 'all', 'current' or None", _targets)
SWITCH_OR_NONE = _one_of(True, False, None)
TILING = _one_of("none", "fast", "moderate", "full", None)
_CAPABILITIES = ("standard", "safety", "dla_standalone", None)
ENGINE_CAPABILITY = Kind(
    lambda value: _engine_capability(value) in _CAPABILITIES,
    "'standard', 'safety', 'dla_standalone', a member of trt.EngineCapability or None",
    _engine_capability,
)
VERIFY = _one_of("engines", "reference", False, None)
CUDA_GRAPHS = _one_of(True, False, "overwrite", "runtime")
SPECIALIZATION = _one_of("lazy", "eager", "none", None)
INDUCTOR = _one_of(True, False, "max-autotune")
FOLDER_OR_STORE = Kind(
    _is_folder_or_store, "a folder, an object with the methods load and save, or None"
)
CACHE = Kind(
    _is_cache,
    "True or False (without quotes), None, a folder, or an object with the methods load and save",
)


@dataclass(frozen=True)
class Declaration:
    """The facts about a setting beside its name, its type and its default.

    Attributes:
        section: The part of the documentation that has it.
        kind: Its usable values.
        in_engine: Whether an engine of a given graph follows from it, so that it is in the key of the engine cache.
        page: The page of the documentation that shows how to use it; empty if there is none.
    """

    section: str
    kind: Kind
    in_engine: bool
    page: str


def setting(
    section: str, default: Any, kind: Kind, *, in_engine: bool = False, page: str = ""
) -> Any:
    """Returns the field of a dataclass that is a setting; see ``Declaration``."""
    metadata = {"setting": Declaration(section, kind, in_engine, page)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)
