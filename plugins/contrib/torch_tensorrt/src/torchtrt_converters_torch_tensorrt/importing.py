"""Imports modules that ask for ``torch_tensorrt`` and ``tensorrt``, and gives them torchtrt's names for these.

An import statement calls the ``__import__`` of the builtins of the module that it stands in. Adopted modules get
builtins of their own, so that their imports, those inside functions too, lead to the stand-ins: now, later and in
any thread. Nothing is put into ``sys.modules``, and no other module sees a ``torch_tensorrt`` that is not there.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.util
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from torchtrt.errors import PackError
from torchtrt_converters_torch_tensorrt.namespace import ROOT, stand_in, why_missing

_OURS = (ROOT, "tensorrt")
_lock = threading.Lock()
_adopted: set[str] = set()


class MissingNameError(PackError, ImportError):
    """An adopted module imports a name of Torch-TensorRT that torchtrt has no counterpart of."""


def torch_tensorrt_is_installed() -> bool:
    """Returns whether the real Torch-TensorRT is there, imported or not."""
    if ROOT in sys.modules:
        return True
    return importlib.util.find_spec(ROOT) is not None


def import_adopted(name: str) -> ModuleType:
    """Returns a module, imported with torchtrt's names for Torch-TensorRT's.

    It, the modules of its package and those beside it that it imports get them.

    Raises:
        PackError: It has been imported already, without them.
    """
    root = name.partition(".")[0]
    if root in _OURS or root == "torchtrt":
        raise PackError(f"{name} cannot be adopted: give a module with converters.")
    adopted = getattr(sys.modules.get(name), "__builtins__", None)
    if name in sys.modules and not isinstance(adopted, _Builtins):
        raise PackError(
            f"{name} was imported before it was adopted, so that it has not seen torchtrt's names. "
            "Call adopt(...) first, or import it only after."
        )
    _adopt_package(root)
    before = set(sys.modules)
    try:
        return importlib.import_module(name)
    except BaseException:
        for other in set(sys.modules) - before:  # so that a second try registers all of it again
            if other.partition(".")[0] in _adopted:
                del sys.modules[other]
        raise


def _adopt_package(root: str) -> None:
    with _lock:
        _adopted.add(root)
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())


class _Builtins(dict[str, Any]):
    """The builtins of an adopted module."""


def _import(
    name: str,
    globals: Any = None,
    locals: Any = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Imports for an adopted module: the names of Torch-TensorRT are stand-ins."""
    importer = (globals or {}).get("__name__", "a module")
    if level or name.partition(".")[0] not in _OURS:
        if not level:
            _adopt_neighbour(name.partition(".")[0], (globals or {}).get("__file__"))
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    try:
        module = stand_in(name)
    except ModuleNotFoundError as error:
        raise MissingNameError(f"{importer} imports {name}. {error}") from error
    for wanted in fromlist or ():
        if wanted != "*" and not hasattr(module, wanted):
            text = why_missing(name, wanted)
            raise MissingNameError(f"{importer} imports {wanted} from {name}. {text}")
    return module if fromlist else stand_in(name.partition(".")[0])


def _adopt_neighbour(root: str, file: str | None) -> None:
    """Adopts what lies beside a module that is no package: a script's other files."""
    if root in sys.modules or root in _adopted or file is None:
        return
    folder = Path(file).resolve().parent
    if (folder / f"{root}.py").is_file() or (folder / root / "__init__.py").is_file():
        _adopt_package(root)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of adopted packages, as the finders behind it do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds a module of an adopted library as Python does, with a loader that runs it under this pack's control.

        Returns:
            ``None`` for the modules of every other library, and for those that no finder finds.
        """
        if fullname.partition(".")[0] not in _adopted:
            return None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Loader(spec.loader)
                    return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads a module with the builtins of adopted ones."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        spec.loader = self.loader
        made: ModuleType | None = self.loader.create_module(spec)
        spec.loader = self
        return made

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        vars(module)["__builtins__"] = _Builtins(vars(builtins), __import__=_import)
        self.loader.exec_module(module)
