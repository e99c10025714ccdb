"""Facts about models of diffusers, for ``torchtrt.follow``. Nothing here imports diffusers."""

from __future__ import annotations

import sys
from typing import Any

from torchtrt_converters_diffusers._pack import pack

_LABELS = frozenset(
    {
        "_class_name",
        "_commit_hash",
        "_diffusers_version",
        "_name_or_path",
        "_use_default_values",
        "architectures",
        "dtype",
        "name_or_path",
    }
)


@pack.followed_library
class Diffusers:
    """Models and configurations of diffusers."""

    weight_loaders = ("load_lora_adapter",)

    def labels(self, value: object) -> frozenset[str]:
        """Returns what ``save_pretrained`` and ``from_pretrained`` write to a configuration."""
        kind = getattr(sys.modules.get("diffusers.configuration_utils"), "FrozenDict", None)
        return _LABELS if kind is not None and isinstance(value, kind) else frozenset()

    def is_idle(self, value: Any) -> bool:
        """Returns whether a registry of hooks has none; models make it in their first call."""
        kind = getattr(sys.modules.get("diffusers.hooks.hooks"), "HookRegistry", None)
        if kind is None or type(value) is not kind:
            return False
        return not value.hooks and not getattr(value, "_child_registries_cache", None)
