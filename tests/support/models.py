"""Libraries of models outside of the virtual environment: timm, torchvision, PyTorch Geometric."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / ".cache" / "models"
"""Where ``make`` puts the libraries of ``models.txt``."""


def import_models(name: str) -> ModuleType:
    """Imports a library of models.

    transformers chooses its image processors by whether it finds torchvision. It decides that before the folder is on
    the path, so that tests of transformers run the same code in any order.

    Raises:
        ModuleNotFoundError: The library is not installed.
    """
    from transformers.utils.import_utils import is_torchvision_available

    is_torchvision_available()
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def import_alone(name: str) -> ModuleType:
    """Imports a library that needs no other one of the folder, while pytest collects tests.

    The path stays as it was: pytest would take the folder ``torchvision/tests`` for a part of the library torchvision.

    Raises:
        ModuleNotFoundError: The library is not installed.
    """
    path = list(sys.path)
    try:
        return import_models(name)
    finally:
        sys.path[:] = path
