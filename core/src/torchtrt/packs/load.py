"""Imports the packs that were found, one by one, so that a broken one harms only itself."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

import pluggy
import torch
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from torchtrt.errors import PackError, did_you_mean
from torchtrt.packs import hooks
from torchtrt.packs.environment import DISABLE, Selection
from torchtrt.packs.info import (
    API_VERSION,
    LOCAL,
    LOCAL_TIER,
    PROJECT,
    PackInfo,
    normalize,
)
from torchtrt.packs.pack import CURRENT_PACK, ConverterPack
from torchtrt.packs.problem import Problem, describe
from torchtrt.packs.scan import InstalledExtension, Scan


@dataclass(frozen=True, slots=True)
class LoadedPack:
    """A pack in use: its provenance, what it registered, and its hook ``torchtrt_check``."""

    info: PackInfo
    pack: ConverterPack
    check: pluggy.HookImpl | None = None


LOCAL_INFO = PackInfo(LOCAL, tier=LOCAL_TIER)

Hooks: TypeAlias = "Mapping[str, pluggy.HookImpl]"
Watch: TypeAlias = Callable[[PackInfo], AbstractContextManager[object]]
_HOOKS = tuple(name for name in vars(hooks) if name.startswith("torchtrt_"))


@dataclass(frozen=True, slots=True, eq=False)
class PackSet:
    """The packs of this process, as of one moment.

    Attributes:
        installed: Every installed pack, in pack order, whether in use or not.
        loaded: The packs in use, in pack order. ``local`` is the last.
        disabled: For each pack that is not to be loaded, the reason.
        preferred: Names of the packs whose converters are tried first, in this order.
        preferred_for: What the environment prefers for one op each: the op, as it was written, and the pack's name.
        strict: Whether a problem is an error.
        others: The extensions of the other entry-point groups: implementations of TensorRT and front ends.
    """

    installed: tuple[PackInfo, ...] = ()
    loaded: tuple[LoadedPack, ...] = ()
    disabled: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    preferred: tuple[str, ...] = ()
    preferred_for: tuple[tuple[str, str], ...] = ()
    strict: bool = False
    others: tuple[InstalledExtension, ...] = ()


class _RefusalError(Exception):
    """Why one pack is not used."""

    def __init__(self, code: str, what: str, hint: str) -> None:
        super().__init__(what)
        self.problem = Problem(what, hint, code)


def load(
    scan: Scan, selection: Selection, local: ConverterPack, watch: Watch = nullcontext
) -> tuple[PackSet, list[Problem]]:
    """Returns the packs in use, and every problem met on the way to them.

    Args:
        scan: What is installed.
        selection: What the environment asks for.
        local: The pack of what this program registers itself.
        watch: What each pack is loaded within.

    Raises:
        PackError: Something is wrong and ``selection.strict`` is set.
    """
    problems = list(_problems_before_loading(scan, selection))
    if problems and selection.strict:
        raise PackError(str(problems[0]))
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hooks)
    loaded: list[LoadedPack] = []
    for extension in scan.packs:
        if selection.why_not(extension.info.name) is not None:
            continue
        try:
            with watch(extension.info):
                loaded.append(_load_pack(manager, extension))
        except _RefusalError as refusal:
            problem = _problem_of(refusal, extension.info)
            if selection.strict:
                raise PackError(str(problem)) from refusal.__cause__
            problems.append(problem)
    packs = PackSet(
        installed=tuple(extension.info for extension in scan.packs),
        others=scan.others,
        loaded=(*loaded, LoadedPack(LOCAL_INFO, local)),
        disabled=_disabled(scan, selection),
        preferred=selection.preferred,
        preferred_for=selection.preferred_for,
        strict=selection.strict,
    )
    return packs, problems


def _disabled(scan: Scan, selection: Selection) -> Mapping[str, str]:
    """Returns why extensions are not to be imported, by name. ``TORCHTRT_PACKS`` lists packs only."""
    disabled = {
        extension.info.name: f"disabled by {DISABLE}"
        for extension in scan.others
        if extension.info.name in selection.disabled
    }
    for extension in scan.packs:
        if (reason := selection.why_not(extension.info.name)) is not None:
            disabled[extension.info.name] = reason
    return MappingProxyType(disabled)


def _problem_of(refusal: _RefusalError, info: PackInfo) -> Problem:
    """Returns the problem of a pack that is not used, with the traceback of the error that caused it."""
    cause = refusal.__cause__
    text = "".join(traceback.format_exception(cause)) if cause else None
    return dataclasses.replace(refusal.problem.about(info), traceback=text)


def _problems_before_loading(scan: Scan, selection: Selection) -> Iterator[Problem]:
    """Yields the problems of the environment and of the search, but for packs that are disabled."""
    yield from selection.problems
    for problem in scan.problems:
        if not _names_of(problem) & selection.disabled:
            yield problem
    pack_names = {extension.info.name for extension in (*scan.packs, *scan.others)}
    pack_names.update(*map(_names_of, scan.problems))
    yield from selection.unknown_names(pack_names)


def _names_of(problem: Problem) -> set[str]:
    """Returns the names by which a user disables the pack that a problem of the search is about."""
    distribution = problem.distribution
    if distribution.endswith((".dist-info", ".egg-info")):  # its metadata cannot be read
        distribution = distribution.partition("-")[0]
    return {normalize(name) for name in (problem.pack, distribution) if name}


def _load_pack(manager: pluggy.PluginManager, extension: InstalledExtension) -> LoadedPack:
    """Returns the filled pack; raises a refusal, and keeps nothing, if any step fails."""
    turn = CURRENT_PACK.set(extension.info.name)
    try:
        return _load_checked(manager, extension)
    except (_RefusalError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # SystemExit, and whatever else a pack may raise, stops only the pack.
        hint = _repair_or_disable(extension.info)
        package = extension.info.group.package_name(extension.info.name)
        raise _RefusalError("import-failed", describe(error, package), hint) from error
    finally:
        CURRENT_PACK.reset(turn)


def _load_checked(manager: pluggy.PluginManager, extension: InstalledExtension) -> LoadedPack:
    """Returns a pack filled by its modules and hooks.

    Raises:
        _RefusalError: The entry point or a hook gives a wrong value, or the pack has another name, version or content
            than it may.
    """
    module = importlib.import_module(extension.module)
    implemented = _hooks_of(manager, extension.info.name, module)
    pack = (
        _named_pack(module, implemented, extension)
        if extension.object_name
        else _pack_of_hook(implemented, extension)
    )
    if pack.name != extension.info.name:
        what = (
            f"it calls itself {pack.name!r}, but its entry point is named {extension.info.name!r}"
        )
        raise _RefusalError("bad-name", what, f"Write ConverterPack({extension.info.name!r}, ...).")
    _check_versions(pack, extension.info)
    if not pack.is_sealed:  # as one is that was loaded before another one broke off the loading
        _fill(pack, implemented, extension.info)
    return LoadedPack(extension.info, pack, implemented.get("torchtrt_check"))


def _named_pack(
    module: ModuleType, implemented: Hooks, extension: InstalledExtension
) -> ConverterPack:
    """Returns the pack that an entry point names."""
    entry = f'The entry point {extension.info.name} = "{extension.entry_point}"'
    right = f"{extension.object_name} = ConverterPack({extension.info.name!r}, ...)"
    if "torchtrt_converter_pack" in implemented:
        what = f"{entry} names the pack, so that nothing calls the hook torchtrt_converter_pack"
        raise _RefusalError("bad-hook", what, f"Delete the hook from {extension.module}.")
    pack = getattr(module, extension.object_name, None)
    if not isinstance(pack, ConverterPack):
        what = f"{entry} names a value of type {type(pack).__name__}, not a ConverterPack"
        if not hasattr(module, extension.object_name):
            what = f"{entry} names an object that {extension.module} does not have"
        hint = f"Write {right} in {extension.module}, or name the right object in pyproject.toml."
        raise _RefusalError("bad-entry", what, hint)
    return pack


def _pack_of_hook(implemented: Hooks, extension: InstalledExtension) -> ConverterPack:
    """Returns the pack that the hook of a module returns, where the entry point names only the module."""
    pack = _call(implemented, "torchtrt_converter_pack", extension.info)
    if isinstance(pack, ConverterPack):
        return pack
    if pack is None:
        what = "its module has no torchtrt_converter_pack hook that returns a ConverterPack"
        hint = (
            f'Name a pack in the entry point: {extension.info.name} = "{extension.module}:pack" in pyproject.toml. '
            f"Or return one from a function marked @hookimpl in {extension.module}."
        )
        raise _RefusalError("bad-hook", what, hint)
    what = f"torchtrt_converter_pack returned a value of type {type(pack).__name__}, not a ConverterPack"
    hint = f"Return one from a function marked @hookimpl in {extension.module}."
    raise _RefusalError("bad-hook", what, hint)


def import_modules(package: str) -> None:
    """Imports a module by its full name. Of a package, it also imports the modules, in the order of their names."""
    folder = getattr(importlib.import_module(package), "__path__", ())
    for name in sorted(module.name for module in pkgutil.iter_modules(folder)):
        importlib.import_module(f"{package}.{name}")


def _fill(pack: ConverterPack, implemented: Hooks, info: PackInfo) -> None:
    """Imports the modules that fill a pack, and then calls its hook.

    Raises:
        _RefusalError: A module does not exist, or the hook returned a value.
    """
    package = info.group.package_name(info.name)
    for name in pack.modules:
        try:
            import_modules(f"{package}.{name}")
        except ModuleNotFoundError as error:
            named = f"{package}.{name}."
            if error.name == package or not named.startswith(f"{error.name}."):
                raise
            what = f"it has modules={pack.modules!r}, and there is no module {error.name}"
            hint = f"Name modules of {package}, by their names in it."
            raise _RefusalError("import-failed", what, hint) from error
    result = _call(implemented, "torchtrt_register_converters", info, pack=pack)
    if result is not None:
        raise _RefusalError(
            "bad-hook",
            f"torchtrt_register_converters returned a value of type {type(result).__name__}: it must fill the pack",
            "Call pack.add(...) or import modules that use @pack.converter(...).",
        )
    satisfies("0", pack.tensorrt)  # A malformed range is found now, not at the first lookup.
    pack.seal()


def _hooks_of(manager: pluggy.PluginManager, name: str, module: ModuleType) -> Hooks:
    """Returns a pack's implementations of the hooks, which pluggy has compared with their specifications."""
    for function_name, function in vars(module).items():
        is_named = function_name.startswith("torchtrt_") and inspect.isroutine(function)
        if is_named and not hasattr(function, f"{PROJECT}_impl"):
            what = f"its function {function_name!r} is not marked, so that nothing would call it"
            hint = "Mark it @hookimpl, or name it otherwise: names that begin so are of hooks."
            raise _RefusalError("bad-hook", what, hint)
    try:
        manager.register(module, name=name)
        callers = manager.get_hookcallers(module) or []
    except Exception as error:
        hint = "The pack may need a newer torchtrt: update one of them."
        raise _RefusalError("bad-hook", f"its hooks are not accepted: {error}", hint) from error
    implemented = {}
    for caller in callers:
        (implementation,) = (hook for hook in caller.get_hookimpls() if hook.plugin is module)
        if not caller.has_spec():
            manager.unregister(module)
            hint = did_you_mean(caller.name, _HOOKS, f"Hooks: {', '.join(_HOOKS)}.")
            raise _RefusalError("bad-hook", f"it implements an unknown hook, {caller.name!r}", hint)
        if implementation.wrapper or implementation.hookwrapper:
            manager.unregister(module)
            what = f"its {caller.name} is a hook wrapper, which could see other packs"
            raise _RefusalError("bad-hook", what, "Mark it with a plain @hookimpl.")
        implemented[caller.name] = implementation
    return implemented


def call_hook(implementation: pluggy.HookImpl | None, **available: Any) -> Any:
    """Returns what one pack's implementation of a hook returns; ``None`` without one.

    Packs are called one by one: in a pluggy call the first to raise would end it for all.
    """
    if implementation is None:
        return None
    return implementation.function(*(available[name] for name in implementation.argnames))


def _call(implemented: Hooks, hook: str, info: PackInfo, **available: Any) -> Any:
    try:
        return call_hook(implemented.get(hook), **available)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        what = f"{hook} raised {describe(error, info.group.package_name(info.name))}"
        raise _RefusalError("hook-failed", what, _repair_or_disable(info)) from error


def _check_versions(pack: ConverterPack, info: PackInfo) -> None:
    """Checks the versions of the converter contract and of PyTorch that a pack was written for.

    Raises:
        _RefusalError: This torchtrt, or this PyTorch, is another.
    """
    major, minor = pack.api
    ours = ".".join(map(str, API_VERSION))
    if major != API_VERSION[0] or minor > API_VERSION[1]:
        newer = pack.api > API_VERSION
        remedy = "Update torchtrt, or install an older" if newer else "Install a newer"
        raise _RefusalError(
            "contract-version",
            f"it was written for converter contract {major}.{minor}, and this torchtrt has {ours}",
            f"{remedy} {info.distribution}.",
        )
    if not satisfies(torch.__version__, pack.torch):
        raise _RefusalError(
            "torch-version",
            f"it works with PyTorch {pack.torch}, and this is {torch.__version__}",
            f"Install another version of {info.distribution} or of torch.",
        )


@functools.lru_cache(maxsize=1024)
def satisfies(version: str, required: str) -> bool:
    """Returns whether a version lies in a range such as ``">=2.9,<3"``; every version lies in ``""``.

    A nightly or local build counts as the release it leads to: ``2.13.0a0+git1`` is a ``2.13.0``.
    """
    try:
        allowed = SpecifierSet(required)
    except InvalidSpecifier as error:
        hint = "Write a range such as '>=2.9,<3'."
        raise _RefusalError(
            "bad-range", f"{required!r} is not a range of versions", hint
        ) from error
    return allowed.contains(Version(version).base_version, prereleases=True)


def _repair_or_disable(info: PackInfo) -> str:
    return f"Repair or update {info.distribution}, or set {DISABLE}={info.name}."
