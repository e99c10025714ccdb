"""Gives the root distribution its dependencies: the sibling folders in a checkout, exact versions elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

SIBLINGS = {
    "torchtrt-core": "core",
    "torchtrt-converters-aten-core": "plugins/aten_core",
    "torchtrt-converters-aten-experimental": "plugins/aten_experimental",
    "torchtrt-converters-quantization": "plugins/contrib/quantization",
}


class SiblingDependencies(MetadataHookInterface):
    """Depends on the checkout's own folders, or on one released version of each (TORCHTRT_RELEASE=1)."""

    def update(self, metadata: dict) -> None:
        """Fills in the two dynamic fields of ``pyproject.toml``."""
        root = Path(self.root)
        from_checkout = (root / "core/pyproject.toml").is_file() and not os.environ.get(
            "TORCHTRT_RELEASE"
        )
        version = metadata["version"]

        def requirement(name: str, extra: str = "") -> str:
            if from_checkout:
                return f"{name}{extra} @ {(root / SIBLINGS[name]).as_uri()}"
            return f"{name}{extra}=={version}"

        metadata["dependencies"] = [requirement(name) for name in SIBLINGS]
        metadata["optional-dependencies"] = {
            "tensorrt": [requirement("torchtrt-core", "[tensorrt]")],
            "demo": [requirement("torchtrt-core", "[demo]")],
        }
