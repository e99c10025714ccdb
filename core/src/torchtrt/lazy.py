"""Names of a package that are imported when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
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
