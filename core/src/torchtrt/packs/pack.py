"""ConverterPack: everything that one distribution contributes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from torchtrt.capability import Capability
from torchtrt.contract import (
    AutocastRule,
    Converter,
    ConverterPriority,
    ConverterSupport,
    Validator,
    accept_every_node,
    looks_like_converter,
    qualified_function,
    with_table_value,
)
from torchtrt.errors import PackError, UnknownTargetError
from torchtrt.packs.info import API_VERSION, is_pack_name
from torchtrt.packs.registrations import (
    Decomposition,
    LoweringPass,
    Registration,
    checks_of,
    joined_checks,
    register,
    target_or_name,
)
from torchtrt.plugins.calls import PluginCheck
from torchtrt.plugins.operators import PluginOp, check_op
from torchtrt.plugins.torch_internals import op_of
from torchtrt.targets import Target, canonical_spelling, parse_target, parse_targets, qualified_name
from torchtrt.torch_internals import OpOverload

CURRENT_PACK: ContextVar[str] = ContextVar("torchtrt_current_pack", default="")
"""The name of the pack that is being loaded; empty outside."""

ExportContext = Callable[[], AbstractContextManager[Any]]
Function = TypeVar("Function", bound=Callable[..., Any])
Library = TypeVar("Library")


class ConverterPack:
    """A set of converters, decompositions and passes from one distribution.

    Args:
        name: The pack's name: ``"vision"`` for the distribution ``torchtrt-converters-vision``.
        api: The converter contract that the pack was written for.
        summary: What it is for, in a few words.
        torch: The PyTorch versions that it works with, as ``">=2.9"``.
        tensorrt: The TensorRT versions that its converters work with, as ``">=8.6"``.
        modules: The modules that fill it, by their names in the pack's package. Of a package all modules do.

    The attributes named after the methods hold the registrations in their order. Once the
    pack is loaded, what ``modules`` registered is in their order, whichever was imported first.

    Raises:
        PackError: An argument is malformed.
    """

    def __init__(
        self,
        name: str,
        *,
        api: tuple[int, int] = API_VERSION,
        summary: str = "",
        torch: str = "",
        tensorrt: str = "",
        modules: Sequence[str] = (),
    ) -> None:
        if not isinstance(name, str) or not is_pack_name(name):
            message = f"{name!r} cannot be a pack's name: lower-case letters, digits, single underscores, no keyword."
            raise PackError(message)
        if not (isinstance(api, tuple) and list(map(type, api)) == [int, int]):
            message = f"Pack {name!r} has api={api!r}. Write the contract it is for as two integers: (1, 0)."
            raise PackError(message)
        if isinstance(modules, str) or not all(map(_is_module_name, modules)):
            message = f"Pack {name!r} has modules={modules!r}. Name modules of its package: ('converters',)."
            raise PackError(message)
        self._name = name
        self.api = api
        self.summary = summary
        self.torch = torch
        self.tensorrt = tensorrt
        self._converters: list[Registration] = []
        self.decompositions: tuple[Decomposition, ...] = ()
        self.lowering_passes: tuple[LoweringPass, ...] = ()
        self.never_folded: tuple[Target | str, ...] = ()
        self.export_contexts: tuple[ExportContext, ...] = ()
        self.autocast_rules: tuple[tuple[str, AutocastRule], ...] = ()
        self.plugins: tuple[PluginOp, ...] = ()
        self.followed_libraries: tuple[Any, ...] = ()
        self.modules = tuple(modules)
        self._sealed = False

    @property
    def name(self) -> str:
        """The pack's name, which never changes: it is the provenance of all that the pack registers."""
        return self._name

    def __repr__(self) -> str:
        return f"<ConverterPack {self.name!r}: {len(self._converters)} converters>"

    @property
    def converters(self) -> Sequence[Registration]:
        """The registered converters, in the order in which they were registered."""
        return tuple(self._converters)

    def disable_constant_folding(self, *targets: Target | str) -> None:
        """Names ops that go into the network although all that they read is constant, as Dequantize of a weight."""
        self._check_open()
        self.never_folded += tuple(map(target_or_name, targets))
        self._changed()

    def converter(
        self,
        *targets: Target | str | Mapping[Any, Any],
        enabled: bool = True,
        capability_validator: Validator | None = None,
        reject_if: Validator | Sequence[Validator] = (),
        priority: ConverterPriority = ConverterPriority.STANDARD,
        supports_dynamic_shapes: bool = False,
        requires_output_allocator: bool = False,
        keep_constants: bool = False,
        tensorrt: str = "",
        requires: Capability | Sequence[Capability] = (),
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers a function as a converter, and leaves the function as it is.

        Args:
            *targets: The ops: each an ``OpOverload``, a Python function on sizes, a packet with only
                a ``default`` overload, or the name of one of these. A name of an op that this PyTorch
                does not have is noted, not an error. A mapping from ops to values stands for its ops:
                the function receives the op's value in its keyword-only parameter.
            enabled: With ``False`` the function is not registered.
            capability_validator: ``(node, settings)`` or ``(node)``: whether the converter can handle a node. ``True``
                and ``None`` accept it; ``False``, ``Reject("why")`` and a string, which is the reason, reject it.
            reject_if: Checks of the same form. A check returns a reason to reject the node, or ``None``.
                All of them and the validator must accept; listings show them by name.
            priority: ``HIGH`` puts the converter before every ``STANDARD`` one of any pack.
            supports_dynamic_shapes: Whether it handles nodes with symbolic dimensions.
            requires_output_allocator: Whether an output's size depends on the data.
            keep_constants: Whether a ``SCHEMA`` converter receives weights as ``torch.Tensor`` rather
                than as network tensors.
            tensorrt: The TensorRT versions that it works with, as ``">=10"``, beside the pack's own range.
            requires: The capabilities of TensorRT that it needs: one ``torchtrt.tensorrt.Capability`` or several.

        Raises:
            AmbiguousTargetError: The packet has several overloads.
            ConverterSignatureError: A signature is not that of a converter or validator, or the
                converter's parameters are not those of the op's schema.
            PackError: The pack is already loaded, or an argument is of the wrong kind.
        """
        if not targets or looks_like_converter(targets[0]):
            message = f"Pack {self.name!r}: write @pack.converter(op), with the op that the function converts."
            raise PackError(message)

        def register(function: Function) -> Function:
            """Registers a function for each of the ops, and returns it."""
            for target, registered in _each_op(targets, function):
                self.add(
                    target,
                    registered,
                    enabled=enabled,
                    capability_validator=capability_validator,
                    reject_if=reject_if,
                    priority=priority,
                    supports_dynamic_shapes=supports_dynamic_shapes,
                    requires_output_allocator=requires_output_allocator,
                    keep_constants=keep_constants,
                    tensorrt=tensorrt,
                    requires=requires,
                )
            return function

        return register

    def add(
        self,
        target: Target | str,
        implementation: Converter,
        *,
        enabled: bool = True,
        capability_validator: Validator | None = None,
        reject_if: Validator | Sequence[Validator] = (),
        priority: ConverterPriority = ConverterPriority.STANDARD,
        supports_dynamic_shapes: bool = False,
        requires_output_allocator: bool = False,
        keep_constants: bool = False,
        tensorrt: str = "",
        requires: Capability | Sequence[Capability] = (),
    ) -> None:
        """Registers a function as the converter of an op. The other arguments are those of ``converter``."""
        if not enabled:
            return
        self._check_open()
        flags = (supports_dynamic_shapes, requires_output_allocator, keep_constants)
        if any(type(flag) is not bool for flag in flags):
            message = f"Pack {self.name!r}: a flag of {target} is {flags!r}, where True or False is meant."
            raise PackError(message)
        capabilities = (requires,) if isinstance(requires, Capability) else tuple(requires)
        if not all(isinstance(each, Capability) for each in capabilities):
            message = f"Pack {self.name!r}: requires={requires!r} of {target} has no torchtrt.tensorrt.Capability."
            raise PackError(message)
        if tensorrt != "" and not _is_range(tensorrt):
            message = f"Pack {self.name!r}: {tensorrt!r} of {target} is no range of TensorRT versions; write '>=10'."
            raise PackError(message)
        if not callable(cast(object, implementation)):
            message = f"Pack {self.name!r}: {implementation!r} for {target} is no function. Pass the function itself."
            raise PackError(message)
        support = ConverterSupport(
            implementation,
            joined_checks(capability_validator, reject_if, self.name)
            if capability_validator or reject_if
            else accept_every_node,
            supports_dynamic_shapes=supports_dynamic_shapes,
            requires_output_allocator=requires_output_allocator,
            keep_constants=keep_constants,
            tensorrt=tensorrt,
            requires=capabilities,
        )
        self._converters.append(register(target, support, self._priority(priority, target)))
        self._changed()

    def plugin(
        self,
        op: Target | str,
        *,
        version: str = "1",
        enabled: bool = True,
        capability_validator: Validator | None = None,
        reject_if: Validator | Sequence[Validator] = (),
        priority: ConverterPriority = ConverterPriority.STANDARD,
        tensorrt: str = "",
    ) -> None:
        """Makes a layer of engines from an op: registers a plugin that runs the op's kernel, and its converter.

        The kernel is the op's implementation for CUDA tensors, which may launch a Triton kernel. The sizes and dtypes
        of its results come from the op's fake implementation.

        Args:
            op: The op: what ``torch.library.custom_op`` returned, an ``OpOverload``, or a name. It has a fake
                implementation, and writes to no argument. Its results are tensors with memory of their own.
            version: The plugin's version. An engine runs only by the version that it was built with: change it where
                the op's arguments or results change.
            enabled: With ``False`` the op is not registered.
            capability_validator: Which calls of the op run as a plugin.
            reject_if: Checks that return a reason to reject a call. Both have the form that ``converter`` takes.
            priority: ``HIGH`` puts the plugin before every ``STANDARD`` converter of the op.
            tensorrt: The TensorRT versions that it works with, beside the pack's own range.

        Raises:
            PackError: The op cannot run as a plugin, the pack is already loaded, or an argument is of the wrong kind.
            UnknownTargetError: There is no such op.
        """
        if not enabled:
            return
        self._check_open()
        if not isinstance(version, str) or not version:
            message = f"Pack {self.name!r}: the version of a plugin is a text such as '1', not {version!r}."
            raise PackError(message)
        plugin = PluginOp(check_op(parse_target(op_of(op)), self.name), self.name, version)
        if any(each.key == plugin.key and each.op is plugin.op for each in self.plugins):
            raise PackError(
                f"Pack {self.name!r} registers the plugin {plugin.op} version {version} twice."
            )
        checks = checks_of(reject_if, self.name)
        self.add(
            plugin.op,
            _plugin_converter(plugin, sys._getframe(1).f_globals.get("__name__", "")),
            capability_validator=capability_validator,
            reject_if=(*checks, PluginCheck(plugin)),
            priority=priority,
            supports_dynamic_shapes=True,
            tensorrt=tensorrt,
            requires=Capability.PLUGINS_V3,
        )
        self.plugins += (plugin,)
        self._changed()

    def decomposition(
        self,
        target: Target | str,
        *,
        enabled: bool = True,
        priority: ConverterPriority = ConverterPriority.STANDARD,
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers a function as the decomposition of an op.

        The function has the op's own signature and computes it with other ops. One decomposition of
        an op is used: the first by the order law.

        Args:
            target: The op. A packet stands for all its overloads that write to no argument, as in
                PyTorch's ``register_decomposition``.
            enabled: With ``False`` the function is not registered.
            priority: ``HIGH`` puts it before every ``STANDARD`` one of any pack.
        """

        def register(function: Function) -> Function:
            if enabled:
                self._check_open()
                self.decompositions += tuple(
                    Decomposition(op, function, self._priority(priority, target))
                    for op in _functional_targets(target)
                )
                self._changed()
            return function

        return register

    def lowering_pass(
        self, name: object = None, *, ops: Iterable[Target | str] = ()
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers a pass over the graph, run in pack order before partitioning.

        Args:
            name: What to call it in reports; the function's own name if omitted.
            ops: The ops that it converts. The catalogue of packs names them to users who lack the pack.
        """
        if callable(name):
            raise PackError(f"Pack {self.name!r}: write @pack.lowering_pass(), with parentheses.")

        def register(function: Function) -> Function:
            self._check_open()
            converted = tuple(map(target_or_name, ops))
            step = LoweringPass(str(name or function.__name__), function, converted)
            self.lowering_passes += (step,)
            self._changed()
            return function

        return register

    def autocast_rule(self, rule: AutocastRule, *targets: Target | str) -> None:
        """Sets the precision of ops where the setting ``autocast`` lowers a model's.

        The first pack in pack order that has a rule for an op decides.

        Args:
            rule: The rule.
            *targets: The ops. A packet stands for all its overloads that write to no argument.
        """
        self._check_open()
        ops = (op for target in targets for op in _functional_targets(target))
        rule = AutocastRule(rule)
        self.autocast_rules += tuple(
            (op if isinstance(op, str) else qualified_name(op), rule) for op in ops
        )
        self._changed()

    def export_context(self, context: ExportContext) -> ExportContext:
        """Registers a function without arguments, and returns it: models are exported inside what it returns.

        For telling PyTorch the sizes of ops that it would take apart or fix. It may change nothing that
        other threads see.
        """
        self._check_open()
        self.export_contexts += (context,)
        self._changed()
        return context

    def followed_library(self, library: type[Library]) -> type[Library]:
        """Registers a class that knows a library's models for ``torchtrt.follow``, and returns it.

        The class takes no arguments. ``torchtrt_follow.libraries.Library`` describes it.
        """
        self._check_open()
        self.followed_libraries += (library(),)
        self._changed()
        return library

    @property
    def is_sealed(self) -> bool:
        """True once registration has ended."""
        return self._sealed

    def seal(self) -> None:
        """Ends registration: from now on, each reader gets the same contents, in the order of ``modules``."""
        self._sealed = True
        if not self.modules:
            return
        self._converters.sort(
            key=lambda entry: self._position_of(entry.support.converter_implementation)
        )
        self.decompositions = tuple(sorted(self.decompositions, key=self._position_of))
        self.lowering_passes = tuple(sorted(self.lowering_passes, key=self._position_of))
        self.export_contexts = tuple(sorted(self.export_contexts, key=self._position_of))

    def _position_of(self, registered: Any) -> tuple[int, str]:
        """Returns the position of a registered function's module in ``modules``, -1 if none has it, and the module."""
        module = qualified_function(getattr(registered, "function", registered)).partition(":")[0]
        name = f"{module.partition('.')[2]}."
        positions = (
            position for position, own in enumerate(self.modules) if name.startswith(f"{own}.")
        )
        return next(positions, -1), module

    def _priority(self, value: Any, target: Target | str) -> ConverterPriority:
        try:
            return ConverterPriority(value)
        except ValueError:
            raise PackError(
                f"Pack {self.name!r}: the priority of {target} is {value!r}. Write ConverterPriority.HIGH or STANDARD."
            ) from None

    def _check_open(self) -> None:
        """Raises a ``PackError`` if another pack is being loaded, or this one is complete."""
        if CURRENT_PACK.get() not in ("", self.name):
            message = (
                f"Pack {CURRENT_PACK.get()!r} registers something in pack {self.name!r}. "
                "Each pack fills its own."
            )
            raise PackError(message)
        if self._sealed:
            raise PackError(
                f"Pack {self.name!r} is already loaded and cannot change. Register everything in its modules or in its "
                "torchtrt_register_converters hook, or use @torchtrt.registry.dynamo_tensorrt_converter in a script."
            )

    def _changed(self) -> None:
        """Is called after each registration."""


def _plugin_converter(plugin: PluginOp, module: str) -> Converter:
    """Returns the converter of a plugin, named after the module that registers it."""

    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> Any:  # noqa: ARG001
        """Adds the op's own kernel as a layer."""
        return ctx.add_plugin(plugin, args, kwargs)

    convert.__module__ = module
    convert.__name__ = convert.__qualname__ = f"plugin[{plugin.key.name}]"
    return convert


def _each_op(
    targets: Sequence[Target | str | Mapping[Any, Any]], function: Converter
) -> Iterator[tuple[Any, Converter]]:
    """Yields each op of ops and tables, and the function with the op's value if it is in a table."""
    for target in targets:
        if isinstance(target, Mapping):
            for op, value in target.items():
                yield op, with_table_value(function, value)
        else:
            yield target, function


def _is_module_name(name: object) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def _is_range(text: object) -> bool:
    try:
        return isinstance(text, str) and bool(SpecifierSet(text))
    except InvalidSpecifier:
        return False


def _functional_targets(target: Target | str) -> Sequence[Target | str]:
    try:
        targets = sorted(parse_targets(target), key=str)
    except UnknownTargetError:
        return (canonical_spelling(str(target)),)
    functional = [
        op for op in targets if not (isinstance(op, OpOverload) and op._schema.is_mutable)
    ]
    return functional or targets
