"""Imports that wait: names of a package until they are used, a module until another one is imported."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from torchtrt import errors
from torchtrt.errors import MissingDistributionError


def lazy_names(
    namespace: dict[str, Any], modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns a package's ``__getattr__`` and ``__dir__``.

    Args:
        namespace: The package's ``globals()``.
        modules: For each module the names that it has.
    """
    module_by_name = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_by_name:
            hint = f". It is torchtrt.errors.{name}" if hasattr(errors, name) else ""
            message = f"module {namespace['__name__']!r} has no attribute {name!r}{hint}"
            raise AttributeError(message)
        module = import_part(module_by_name[name], f"{namespace['__name__']}.{name}")
        # Not setdefault: the import of a module sets the package's attribute of the same name.
        namespace[name] = getattr(module, name)
        return namespace[name]

    def names() -> list[str]:
        return sorted({*namespace, *module_by_name})

    return get, names


def import_after(module: str, follower: str) -> None:
    """Imports ``follower`` now if the process has imported ``module``; otherwise right after ``module``, if ever.

    Args:
        module: A package or module that is slow to import, or that may be broken.
        follower: A module that imports it.
    """
    if module in sys.modules:
        importlib.import_module(follower)
    else:
        sys.meta_path.insert(0, _FollowingFinder(module, follower))


class _FollowingFinder(MetaPathFinder):
    """Finds ``module`` as Python does, and imports ``follower`` once the code of ``module`` has run."""

    def __init__(self, module: str, follower: str) -> None:
        self._module = module
        self._follower = follower

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the place of the module as the other finders have it; ``None`` for any other module."""
        if name != self._module:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            # The loader stays itself: readers of resources and of source code ask it.
            execute = functools.partial(self._execute, spec.loader.exec_module)
            setattr(spec.loader, "exec_module", execute)  # noqa: B010  # which mypy takes for a mistake
        return spec

    def _execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        execute(module)
        if self in sys.meta_path:  # until an import of the module ends without an error
            sys.meta_path.remove(self)
            importlib.import_module(self._follower)


_OURS = "torchtrt_"
"""The prefix of the packages of torchtrt's distributions."""


def import_part(module: str, name: str) -> ModuleType:
    """Returns a module of a distribution that may not be installed, or that needs another one that is not.

    Args:
        module: The module.
        name: What it was imported for, for the message.

    Raises:
        MissingDistributionError: The distribution is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = missing_distribution(error, name, module.partition(".")[0])
        if missing is None:
            raise
        raise missing from None


def missing_distribution(
    error: ModuleNotFoundError, name: str, package: str = ""
) -> MissingDistributionError | None:
    """Returns the error for a distribution of torchtrt that is not installed; ``None`` if another module is missing.

    Args:
        error: What the import raised.
        name: What the import was for, for the message.
        package: The package that has it.
    """
    missing = error.name or ""
    if "." in missing or not missing.startswith(_OURS):
        return None
    distribution = missing.replace("_", "-")
    verb = "is in" if missing == package else "needs"
    return MissingDistributionError(
        f"{name} {verb} the distribution {distribution}, which is not installed. "
        f"Run `pip install {distribution}`."
    )
