"""Takes what modules register with Torch-TensorRT's decorators into packs of torchtrt."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
import sys
import threading
from types import ModuleType
from typing import Any

from torchtrt.errors import PackError
from torchtrt.packs import ConverterPack, PackInfo, add_pack
from torchtrt.packs.info import normalize
from torchtrt_converters_torch_tensorrt import installed_registry
from torchtrt_converters_torch_tensorrt.importing import import_adopted, torch_tensorrt_is_installed
from torchtrt_converters_torch_tensorrt.registration import COLLECTED, Collected

_lock = threading.RLock()
_packs: dict[str, ConverterPack] = {}
_adopted: dict[str, ConverterPack] = {}


def adopt(module: str, *, into: ConverterPack | None = None) -> ConverterPack:
    """Imports a module that registers converters with Torch-TensorRT, and puts these into use.

    Where Torch-TensorRT is not installed, the module gets torchtrt's counterparts of the names that
    it imports; nothing else sees them. Where it is, the module is imported as it is, and its
    converters are used when the real TensorRT is.

    Args:
        module: The module's full name. It must not have been imported yet, unless Torch-TensorRT is
            installed. A second call changes nothing.
        into: The pack to fill, for the hook ``torchtrt_register_converters`` of a pack. Without it
            the pack is named after the distribution that the module comes from, and has its version.

    Returns:
        The pack. A failed adoption leaves nothing in it.

    Raises:
        PackError: The module raised; the message names it, and what it needs that torchtrt lacks.
    """
    argument: object = module
    if not isinstance(argument, str):
        message = f"adopt() takes a module's full name, not {module!r}: it must be imported inside."
        raise PackError(message)
    if into is None:
        return adopt_as(module, None)
    with _lock:
        _fill(into, _collect(module), module)
    return into


def adopt_as(module: str, info: PackInfo | None) -> ConverterPack:
    """Adopts a module as a pack; without its provenance, that of the distribution which the module comes from."""
    with _lock:
        if module in _adopted:
            return _adopted[module]
        collected = _collect(module)
        info = info or _provenance(module)
        pack = _packs.setdefault(info.name, ConverterPack(info.name, summary="adopted"))
        _fill(pack, collected, module)
        add_pack(pack, info)
        _adopted[module] = pack
        return pack


def _fill(pack: ConverterPack, collected: Collected, module: str) -> None:
    """Fills a pack with all or nothing of what was collected."""
    trial = ConverterPack(pack.name)
    try:
        collected.fill(trial)
    except Exception as error:
        raise PackError(f"{module} cannot be adopted: {error}") from error
    collected.fill(pack)


def _collect(module: str) -> Collected:
    """Returns what a module of a Torch-TensorRT user registers, with the installed one or the stand-in."""
    if torch_tensorrt_is_installed():
        return installed_registry.registered_by(module)
    collected = Collected()
    token = COLLECTED.set(collected)
    try:
        import_adopted(module)
    except PackError:
        raise
    except Exception as error:
        message = f"{module} cannot be adopted: {type(error).__name__}: {error}"
        raise PackError(message) from error
    finally:
        COLLECTED.reset(token)
    if not collected:
        raise PackError(
            f"{module} registers nothing when it is imported: no converter, decomposition or lowering pass. "
            "Adopt the module whose decorators do."
        )
    return collected


def _provenance(module: str) -> PackInfo:
    """Returns who a module comes from: its distribution, or itself where it is of none."""
    root = module.partition(".")[0]
    names = _distributions().get(root, ())
    origin = getattr(sys.modules.get(module), "__file__", None) or ""
    if not names:
        return PackInfo(_pack_name(root), root, "", origin)
    distribution = importlib.metadata.distribution(names[0])
    return PackInfo(_pack_name(names[0]), names[0], distribution.version, origin)


@functools.lru_cache(maxsize=1)
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _pack_name(name: str) -> str:
    flat = re.sub(r"[^a-z0-9]+", "_", normalize(name)).strip("_")
    return flat if flat[:1].isalpha() else f"adopted_{flat}"


def adopt_torch_tensorrt() -> ConverterPack:
    """Puts the converters of the installed Torch-TensorRT into use, as a pack of its name and version.

    They are tried where the real TensorRT is in use, and come after first-party packs.

    Returns:
        The pack, ``torch_tensorrt_registry``.

    Raises:
        PackError: Torch-TensorRT is not installed, or cannot be imported here.
    """
    with _lock:
        name = "torch_tensorrt_registry"
        if name not in _adopted:
            registry = installed_registry.everything()
            package: Any = _import_torch_tensorrt()
            pack = ConverterPack(name, summary="the converters of the installed Torch-TensorRT")
            _fill(pack, registry, "torch_tensorrt")
            version = str(getattr(package, "__version__", ""))
            add_pack(pack, PackInfo(name, "torch-tensorrt", version, str(package.__file__ or "")))
            _adopted[name] = pack
        return _adopted[name]


def _import_torch_tensorrt() -> ModuleType:
    return importlib.import_module("torch_tensorrt")
