"""The namespace of one version."""

from __future__ import annotations

import types
from typing import Any


class ReferenceModule(types.ModuleType):
    """The namespace of one version, used like the module ``tensorrt``."""

    def __getattr__(self, name: str) -> Any:
        message = f"TensorRT {self.__version__} has no {name!r} (reference)."
        raise AttributeError(message)
