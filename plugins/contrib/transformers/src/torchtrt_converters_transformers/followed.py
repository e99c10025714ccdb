"""Facts about models of transformers, and about adapters of PEFT, for ``torchtrt.follow``.

Nothing here imports a library: a model of one has imported it.
"""

from __future__ import annotations

import sys
from typing import Any

from torchtrt_converters_transformers._pack import pack

_CAPTURING = "transformers.utils.output_capturing"
_LABELS = frozenset(
    {
        "_commit_hash",
        "_name_or_path",
        "_output_capturing_hooks_installed",
        "architectures",
        "dtype",
        "name_or_path",
        "transformers_version",
    }
)
"""The dtype of a configuration is that of the weights, which have one of their own."""


@pack.followed_library
class Transformers:
    """Models and configurations of transformers."""

    weight_loaders = ("load_adapter",)

    def labels(self, value: object) -> frozenset[str]:
        """Returns what ``save_pretrained`` and ``from_pretrained`` write to a model or a configuration."""
        kinds = (
            ("transformers.configuration_utils", "PreTrainedConfig"),
            ("transformers.modeling_utils", "PreTrainedModel"),
        )
        return _LABELS if any(_is_instance(value, *kind) for kind in kinds) else frozenset()

    def only_collects(self, hook: object) -> bool:
        """Returns whether a hook collects hidden states or attentions; models install them in their first call."""
        return (getattr(hook, "__module__", None) or type(hook).__module__) == _CAPTURING

    def is_collecting(self) -> bool:
        """Returns whether a model that is being called collects what its modules return."""
        collector = getattr(sys.modules.get(_CAPTURING), "_active_collector", None)
        return collector is not None and collector.get() is not None


@pack.followed_library
class Peft:
    """Adapters of PEFT."""

    weight_loaders = ("load_adapter",)

    def scales(self, module: Any) -> dict[str, Any] | None:
        """Returns the scale of each adapter of a layer: PEFT multiplies by ``scaling[adapter]``, a float."""
        scales = vars(module).get("scaling") if _is_layer(module) else None
        is_plain = type(scales) is dict and all(
            type(scale) in (int, float) for scale in scales.values()
        )
        return scales if is_plain else None


def _is_layer(module: object) -> bool:
    return _is_instance(module, "peft.tuners.tuners_utils", "BaseTunerLayer")


def _is_instance(value: object, module: str, name: str) -> bool:
    """Returns whether a value is of a class of a module, which has been imported if there is such a value."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)
