"""The reference TensorRT as the package ``tensorrt``, with its compiled part ``tensorrt.tensorrt``."""

from __future__ import annotations

import os
import sys
from typing import Any

import torchtrt_reference

_reference = torchtrt_reference.load(os.environ["TORCHTRT_TENSORRT"].partition("@")[2])
tensorrt = sys.modules[f"{__name__}.tensorrt"] = _reference
__version__ = _reference.__version__


def __getattr__(name: str) -> Any:
    return getattr(_reference, name)
