"""The usable values of each setting of a compilation."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchtrt.capability import Capability
from torchtrt.errors import SettingsError

SWITCHES = {"1": True, "true": True, "yes": True, "on": True}
SWITCHES |= {"0": False, "false": False, "no": False, "off": False, "": False}
"""The words for on and off in a setting that is a switch or a folder."""


def is_integer(value: object, least: int = 0, most: int = 2**31 - 1) -> bool:
    """Returns whether a value is an integer in a range, by default one that TensorRT holds. ``True`` is none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_op_or_collection(value: object) -> bool:
    return callable(value) or isinstance(value, Iterable)


def _is_pack_by_op(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(pack, str) for pack in value.values())


def _is_count(value: object) -> bool:
    return is_integer(value, 1)


def _is_byte_count(value: object) -> bool:
    return is_integer(value, 0, 2**63 - 1)


def _is_level(value: object) -> bool:
    return value is None or is_integer(value, 0, 5)


def _is_autocast_dtype(value: object) -> bool:
    return value in (None, torch.float16, torch.bfloat16)


def _is_folder_or_switch(value: object) -> bool:
    if isinstance(value, str):
        return value.lower() not in SWITCHES and _is_path(value)
    return isinstance(value, bool) or _is_path(value)


def _is_path(value: object) -> bool:
    """Returns whether a value is a path, or none; no path has a NUL character."""
    if value is None:
        return True
    return isinstance(value, str | os.PathLike) and "\0" not in str(os.fspath(value))


def _are_targets(value: Any) -> bool:
    """Returns whether a value names compute capabilities, all or the current one."""
    if value is None or value in ("all", "current"):
        return True
    given = (value,) if isinstance(value, str) else tuple(value)
    if given in (("all",), ("current",)):
        return True
    return all(isinstance(each, str) and re.fullmatch(r"\d+\.\d", each) for each in given)


_LAYERS = {each.name: each for each in Capability if each.group == "layers"}
"""The capabilities without which converters choose other layers, by name."""


def layers_named(value: Any) -> frozenset[Capability] | None:
    """Returns the capabilities of layers that a value names; ``None`` if it names anything else."""
    is_one = isinstance(value, (str, Capability))
    if not is_one and not isinstance(value, Iterable):
        return None
    given = [value] if is_one else list(value)
    names = [each.name if isinstance(each, Capability) else each for each in given]
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
    return not isinstance(value, str) and all(_is_pattern(each) for each in value)


def _are_texts(value: Any) -> bool:
    is_collection = isinstance(value, Iterable) and not isinstance(value, str)
    return is_collection and all(isinstance(each, str) for each in value)


def _is_pattern(text: Any) -> bool:
    try:
        re.compile(text)
    except (re.error, TypeError):
        return False
    return isinstance(text, str)


@dataclass(frozen=True)
class Check:
    """Which values a setting takes.

    Attributes:
        accepts: Returns whether a value is usable.
        wanted: The usable values, in words.
    """

    accepts: Callable[[Any], bool]
    wanted: str

    def check(self, name: str, value: Any) -> None:
        """Raises a ``SettingsError`` for a value that is not usable.

        Args:
            name: The name of the setting.
            value: The value that was given for it.
        """
        if not self.accepts(value):
            message = f"The setting {name}={value!r} is not usable: it must be {self.wanted}."
            raise SettingsError(message)


_SWITCH = Check(_is_switch, "True or False")
OPS = Check(_is_op_or_collection, "an op, or a collection of ops")
_COUNT = Check(_is_count, "an integer from 1 to 2**31 - 1")
_PATTERNS = Check(_are_patterns, "a collection of regular expressions")
_NAMES = Check(_are_names, "a sequence of different names: printable text of 1 to 4,095 bytes")
_BYTES_OR_NONE = Check(
    lambda value: value is None or is_integer(value, 1, 2**63 - 1), "bytes, 1 or more, or None"
)
INTEGER_OR_NONE = Check(lambda value: value is None or is_integer(value), "0 to 2**31 - 1, or None")

CHECKS: Mapping[str, Check] = {
    "torch_executed_ops": OPS,
    "torch_executed_modules": _PATTERNS,
    "torch_executed_on_failure": _SWITCH,
    "fallback_data_dependent_ops": _SWITCH,
    "min_block_size": _COUNT,
    "require_full_compilation": _SWITCH,
    "dryrun": _SWITCH,
    "assume_dynamic_shape_support": _SWITCH,
    "converter_preferences": Check(
        _is_pack_by_op, "a dictionary: the op, and the name of the pack"
    ),
    "torch_enabled_decompositions": OPS,
    "torch_disabled_decompositions": OPS,
    "truncate_double": _SWITCH,
    "allow_dequantized_weights": _SWITCH,
    "autocast": Check(_is_autocast_dtype, "torch.float16, torch.bfloat16 or None"),
    "autocast_excluded_ops": OPS,
    "autocast_excluded_nodes": _PATTERNS,
    "max_engine_bytes": _BYTES_OR_NONE,
    "offload_module_to_cpu": _SWITCH,
    "workspace_size": Check(_is_byte_count, "bytes, 0 or more"),
    "optimization_level": Check(_is_level, "0 to 5 or None"),
    "tiling_optimization_level": Check(
        lambda value: value in (None, "none", "fast", "moderate", "full"),
        "'none', 'fast', 'moderate', 'full' or None",
    ),
    "l2_limit_for_tiling": _BYTES_OR_NONE,
    "num_avg_timing_iters": _COUNT,
    "disable_tf32": _SWITCH,
    "use_fp32_acc": _SWITCH,
    "immutable_weights": _SWITCH,
    "strip_engine_weights": _SWITCH,
    "tactic_sources": INTEGER_OR_NONE,
    "sparse_weights": _SWITCH,
    "version_compatible": _SWITCH,
    "hardware_compatible": _SWITCH,
    "enable_weight_streaming": _SWITCH,
    "max_aux_streams": INTEGER_OR_NONE,
    "cuda_graphs": Check(
        lambda value: _is_switch(value) or value in ("overwrite", "runtime"),
        "True, False, 'overwrite' or 'runtime'",
    ),
    "engine_cache": Check(_is_folder_or_switch, "True or False (without quotes), None or a folder"),
    "target_compute_capabilities": Check(
        _are_targets, "'8.6', a collection of such texts, 'all', 'current' or None"
    ),
    "user_allocation": _SWITCH,
    "share_execution_memory": _SWITCH,
    "input_names": _NAMES,
    "output_names": _NAMES,
    "runtime_cache": Check(_is_path, "a folder or None"),
    "kernel_specialization": Check(
        lambda value: value in (None, "lazy", "eager", "none"), "'lazy', 'eager', 'none' or None"
    ),
    "disabled_passes": Check(_are_texts, "a collection of names, such as ['aten_core.autocast']"),
    "disabled_capabilities": Check(
        lambda value: layers_named(value) is not None,
        f"a torchtrt.tensorrt.Capability of a layer, its name, or a collection: {', '.join(_LAYERS)}",
    ),
    "nccl_in_engines": _SWITCH,
    "async_tensor_parallel": _SWITCH,
    "verify": Check(
        lambda value: value in (None, "engines", "reference") or value is False,
        "'engines', 'reference', False or None",
    ),
    "inductor": Check(
        lambda value: _is_switch(value) or value == "max-autotune", "True, False or 'max-autotune'"
    ),
    "tune": _SWITCH,
    "progress": Check(lambda value: value is None or _is_switch(value), "True, False or None"),
}
"""The check of each setting, by its name."""
