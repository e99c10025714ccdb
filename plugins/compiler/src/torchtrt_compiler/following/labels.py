"""Labels of configurations and models: where a model comes from, which no ``forward`` reads.

``save_pretrained`` writes them to the configuration in memory, and ``from_pretrained`` to that of what it loads.
"""

from __future__ import annotations

import sys

_LIBRARIES = (
    ("transformers.configuration_utils", "PreTrainedConfig"),
    ("transformers.modeling_utils", "PreTrainedModel"),
    ("diffusers.configuration_utils", "FrozenDict"),
)
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
        "transformers_version",
    }
)
"""The dtype of a configuration is that of the weights, which have one of their own."""


def labels_of(value: object) -> frozenset[str]:
    """Returns the names of the labels of a configuration or a model; none for any other object."""
    for place, name in _LIBRARIES:
        kind = getattr(sys.modules.get(place), name, None)
        if kind is not None and isinstance(value, kind):
            return _LABELS
    return frozenset()
