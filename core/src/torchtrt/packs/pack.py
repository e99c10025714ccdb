"""ConverterPack: everything that one distribution contributes."""

from __future__ import annotations

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
    check_decomposition,
    looks_like_converter,
    qualified_function,
)
from torchtrt.contract.functions import keywords_of, with_value
from torchtrt.errors import ConverterSignatureError, PackError, UnknownTargetError, did_you_mean
from torchtrt.lazy import import_part
from torchtrt.packs.info import API_VERSION, is_pack_name
from torchtrt.packs.registrations import (
    Decomposition,
    LoweringPass,
    Registration,
    checks_of,
    joined_checks,
    register,
    spelling_of_unknown,
    target_or_name,
)
from torchtrt.targets import Target, parse_targets, qualified_name
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
        self.plugins: tuple[Any, ...] = ()
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
        *targets: Target | str,
        table: Mapping[str, Mapping[Any, Any]] | None = None,
        enabled: bool = True,
        capability_validator: Validator | None = None,
        reject_if: Validator | Sequence[Validator] = (),
        priority: ConverterPriority = ConverterPriority.STANDARD,
        supports_dynamic_shapes: bool = False,
        requires_output_allocator: bool = False,
        tensorrt: str = "",
        requires: Capability | Sequence[Capability] = (),
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers a function as a converter, and leaves the function as it is.

        Args:
            *targets: The ops: each an ``OpOverload``, a Python function on sizes, a packet with only
                a ``default`` overload, or the name of one of these. A name of an op that this PyTorch
                does not have is noted, not an error.
            table: Further ops, each with a value: ``{"kind": {op: value}}``. The function receives the op's value in
                its parameter ``kind``, and so does each check that has such a parameter.
            enabled: With ``False`` the function is not registered.
            capability_validator: ``(node, settings)`` or ``(node)``: whether the converter can handle a node. ``True``
                and ``None`` accept it; ``False``, ``Reject("why")`` and a string, which is the reason, reject it.
            reject_if: Checks of the same form. A check returns a reason to reject the node, or ``None``.
                All of them and the validator must accept; listings show them by name.
            priority: ``HIGH`` puts the converter before every ``STANDARD`` one of any pack.
            supports_dynamic_shapes: Whether it handles nodes with symbolic dimensions.
            requires_output_allocator: Whether an output's size depends on the data.
            tensorrt: The TensorRT versions that it works with, as ``">=10"``, beside the pack's own range.
            requires: The capabilities of TensorRT that it needs: one ``torchtrt.tensorrt.Capability`` or several.

        Raises:
            AmbiguousTargetError: The packet has several overloads.
            ConverterSignatureError: A signature is not that of a converter or validator, or the
                converter's parameters are not those of the op's schema.
            PackError: The pack is already loaded, or an argument is of the wrong kind.
        """
        if looks_like_converter(targets[0] if targets else None) or not (targets or table):
            message = f"Pack {self.name!r}: write @pack.converter(op), with the op that the function converts."
            raise PackError(message)
        self._check_form(targets, {} if table is None else table)
        ops = ", ".join(map(str, targets)) or "a table"
        flags = {
            "enabled": enabled,
            "supports_dynamic_shapes": supports_dynamic_shapes,
            "requires_output_allocator": requires_output_allocator,
        }
        if wrong := [flag for flag, value in flags.items() if type(value) is not bool]:
            stated = f"{wrong[0]}={flags[wrong[0]]!r}"
            message = f"Pack {self.name!r}: {stated} of {ops}, where True or False is meant."
            raise PackError(message)
        capabilities = _as_tuple(requires)
        if not all(isinstance(capability, Capability) for capability in capabilities):
            message = f"Pack {self.name!r}: requires={requires!r} of {ops} has no Capability: write Capability.NAME."
            raise PackError(message)
        if tensorrt != "" and not _is_range(tensorrt):
            message = f"Pack {self.name!r}: {tensorrt!r} of {ops} is no range of TensorRT versions; write '>=10'."
            raise PackError(message)

        def register_function(function: Function) -> Function:
            """Registers a function for each of the ops, and returns it."""
            if not enabled:
                return function
            self._check_open()
            if not callable(cast(object, function)):
                message = f"Pack {self.name!r}: {function!r} for {ops} is no function. Pass the function itself."
                raise PackError(message)
            own_checks = checks_of(reject_if, self.name)
            for target, bound, checks in _registrations(targets, table or {}, function, own_checks):
                support = ConverterSupport(
                    bound,
                    joined_checks(capability_validator, checks),
                    supports_dynamic_shapes=supports_dynamic_shapes,
                    requires_output_allocator=requires_output_allocator,
                    tensorrt=tensorrt,
                    requires=capabilities,
                )
                registration = register(target, support, self._priority(priority, target))
                self._converters.append(registration)
            self._changed()
            return function

        return register_function

    def add(self, target: Target | str, implementation: Converter, **options: Any) -> None:
        """Registers a function as the converter of an op. The other arguments are those of ``converter``."""
        self.converter(target, **options)(implementation)

    def plugin(self, op: Target | str, **options: Any) -> None:
        """Makes a layer of engines from an op's own kernel.

        Args:
            op: The op: what ``torch.library.custom_op`` returned, an ``OpOverload``, or a name.
            **options: The version of the plugin, checks, the priority and others: see
                ``torchtrt_kernels.register_kernel``.

        Raises:
            MissingDistributionError: The distribution torchtrt-kernels is not installed.
            PackError: The op cannot run as a plugin, the pack is already loaded, or an argument is of the wrong kind.
            UnknownTargetError: There is no such op.
        """
        import_part("torchtrt_kernels", "ConverterPack.plugin").register_kernel(self, op, **options)

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
                PyTorch's ``register_decomposition``, and that can be called as the function.
            enabled: With ``False`` the function is not registered.
            priority: ``HIGH`` puts it before every ``STANDARD`` one of any pack.

        Raises:
            ConverterSignatureError: The function cannot be called as the op.
            PackError: The pack is already loaded, or an argument is of the wrong kind.
        """

        def register(function: Function) -> Function:
            if not enabled:
                return function
            self._check_open()
            targets = _fitting(function, _functional_targets(target))
            order = self._priority(priority, target)
            self.decompositions += tuple(Decomposition(op, function, order) for op in targets)
            self._changed()
            return function

        return register

    def lowering_pass(
        self, name: object = None, *, ops: Iterable[Target | str] = (), last: bool = False
    ) -> Callable[[Function], Function]:
        """Returns a decorator that registers a pass over the graph, run in pack order before partitioning.

        Args:
            name: What to call it in reports; the function's own name if omitted.
            ops: The ops that it converts. The catalogue of packs names them to users who lack the pack.
            last: Whether it runs behind the passes of all packs: it reads the graph that they leave, and computes
                nothing from weights.
        """
        if callable(name):
            raise PackError(f"Pack {self.name!r}: write @pack.lowering_pass(), with parentheses.")

        def register(function: Function) -> Function:
            self._check_open()
            converted = tuple(map(target_or_name, ops))
            step = LoweringPass(str(name or function.__name__), function, converted, last)
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
        self.autocast_rules += tuple((qualified_name(op), rule) for op in ops)
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

    def _check_form(self, targets: Sequence[Any], table: Any) -> None:
        """Checks that ops are arguments of their own, and that a table has values by op.

        Raises:
            PackError: One is in another form.
        """
        has_table = any(isinstance(target, Mapping) for target in targets)
        values = table.values() if isinstance(table, Mapping) else [table]
        if has_table or not all(isinstance(value, Mapping) for value in values):
            message = f"Pack {self.name!r}: write ops with values as table={{'parameter': {{op: value}}}}."
            raise PackError(message)
        if any(isinstance(target, list | tuple | set | frozenset) for target in targets):
            message = f"Pack {self.name!r}: write each op as an argument of its own, or a star before the collection."
            raise PackError(message)

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


def _registrations(
    targets: Sequence[Target | str],
    table: Mapping[str, Mapping[Any, Any]],
    function: Converter,
    checks: Sequence[Validator],
) -> Iterator[tuple[Any, Converter, Sequence[Validator]]]:
    """Yields each op, and for those of a table the function and the checks with the op's value.

    Raises:
        ConverterSignatureError: The function has no parameter for the values.
    """
    for target in targets:
        yield target, function, checks
    for name, values in table.items():
        parameters = keywords_of(function).names
        if name not in parameters:
            advice = did_you_mean(name, parameters, f"Write `def convert(ctx, self, *, {name})`.")
            raise ConverterSignatureError(
                f"The converter {qualified_function(function)} is registered with the table {{{name!r}: ...}} and has "
                f"no parameter {name!r}. {advice}"
            )
        for op, value in values.items():
            bound = [
                with_value(check, name, value) if name in keywords_of(check).names else check
                for check in checks
            ]
            yield op, with_value(function, name, value), bound


def _fitting(
    function: Callable[..., Any], targets: Sequence[Target | str]
) -> Sequence[Target | str]:
    """Returns the ops that a decomposition can be called as.

    Raises:
        ConverterSignatureError: There is none.
    """
    fitting, faults = [], []
    for target in targets:
        try:
            check_decomposition(function, target)
        except ConverterSignatureError as error:
            faults.append(error)
        else:
            fitting.append(target)
    if faults and not fitting:
        raise faults[0]
    return fitting


def _as_tuple(value: Any) -> tuple[Any, ...]:
    is_one = isinstance(value, str) or not isinstance(value, Iterable)
    return (value,) if is_one else tuple(value)


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
        return (spelling_of_unknown(str(target)),)
    functional = [
        op for op in targets if not (isinstance(op, OpOverload) and op._schema.is_mutable)
    ]
    return functional or targets
