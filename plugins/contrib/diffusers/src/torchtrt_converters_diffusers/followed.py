"""Facts about models of diffusers, for ``torchtrt.follow``. Nothing here imports diffusers."""

from __future__ import annotations

import sys
from typing import Any

import torch

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

    def labels(self, value: Any) -> frozenset[str]:
        """Returns the labels of a configuration, and the registry of hooks of a module while it has none.

        ``save_pretrained`` and ``from_pretrained`` write these labels. Models make the registry in their first call.
        """
        configuration = getattr(
            sys.modules.get("diffusers.configuration_utils"), "FrozenDict", None
        )
        if configuration is not None and isinstance(value, configuration):
            return _LABELS
        is_module = isinstance(value, torch.nn.Module)
        registry = getattr(value, "_diffusers_hook", None) if is_module else None
        if registry is None or registry.hooks or getattr(registry, "_child_registries_cache", None):
            return frozenset()
        return frozenset({"_diffusers_hook"})
