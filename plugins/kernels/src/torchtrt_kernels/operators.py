"""The ops that can run as plugins, and the names by which engines ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch

from torchtrt.contract import Reject
from torchtrt.errors import PackError
from torchtrt_kernels.torch_internals import OpOverload, has_fake_implementation, has_kernel


@dataclass(frozen=True, order=True, slots=True)
class PluginKey:
    """The name by which an engine asks for a plugin, and facts about the plugin that it was built with.

    Attributes:
        pack: The pack that registers it, which is the plugin's namespace in TensorRT.
        name: The op's name, ``"vision::box_filter.default"``.
        version: The plugin's version.
        distribution: The distribution of the pack; ``""`` if it is not known.
        schema: The schema of the op; ``""`` if it is not known.
        kernel: The name of the compiled kernel that the plan has; ``""`` where Python runs the op's own kernel.
    """

    pack: str
    name: str
    version: str
    distribution: str = field(default="", compare=False)
    schema: str = field(default="", compare=False)
    kernel: str = ""


def keys_to_json(keys: Iterable[PluginKey]) -> list[dict[str, str]]:
    """Returns names of plugins as a file has them."""
    return [asdict(key) for key in keys]


def keys_from_json(data: Any) -> tuple[PluginKey, ...]:
    """Returns names of plugins from a file.

    Raises:
        ValueError: They are malformed.
    """
    entries = data if isinstance(data, list) else [data]
    names = {field.name for field in fields(PluginKey)}
    for entry in entries:
        is_whole = isinstance(entry, dict) and _NAME <= entry.keys() <= names
        if not is_whole or not all(isinstance(value, str) for value in entry.values()):
            message = f"{entry!r:.100} is no name of a plugin: a pack, a name and a version"
            raise ValueError(message)
    return tuple(PluginKey(**entry) for entry in entries)


_NAME = {"pack", "name", "version"}
"""The parts of a key that engines of every torchtrt have."""


@dataclass(frozen=True, slots=True)
class PluginOp:
    """An op whose kernel runs as a layer of engines.

    Attributes:
        op: The op.
        pack: The name of the pack that registers it.
        version: The plugin's version: engines ask for the one that they were built with.
        aot: Returns the compiled kernel of a call, which plans then keep; ``None`` if Python runs the kernel.
    """

    op: OpOverload
    pack: str
    version: str
    aot: Callable[..., Any] | None = None

    @property
    def key(self) -> PluginKey:
        """The name by which engines ask for it."""
        return PluginKey(self.pack, self.op.name(), self.version, schema=self.schema)

    @property
    def schema(self) -> str:
        """The schema of the op, as text."""
        return str(self.op._schema)

    def changed_schema(self, built_with: str) -> str:
        """Returns why the op cannot run calls that were described under another schema; ``""`` if it is the same."""
        if built_with in ("", self.schema):
            return ""
        return (
            f"the op had the schema {built_with} then, and has {self.schema} here, under version {self.version} of its "
            "plugin in both. Install the version of the pack that the engine was compiled with, or compile the model "
            "again. Who maintains the pack raises the version of the plugin with the schema"
        )

    def objection_to(self, device_type: str) -> Reject | None:
        """Returns why the op cannot run on ``"cpu"`` or ``"cuda"``, and what to do; ``None`` if it can."""
        if has_kernel(self.op, device_type):
            return None
        return Reject(
            f"it has no implementation for {device_type.upper()} tensors",
            f'Register one with @torch.library.register_kernel("{self.op.name()}", "{device_type}").',
        )


def check_op(op: Any, pack: str) -> OpOverload:
    """Returns an op after checking that it can run as a plugin.

    Raises:
        PackError: It cannot; the message contains the reason, and what to do.
    """
    what = f"Pack {pack!r} cannot make a plugin of {op}"
    if not isinstance(op, OpOverload):
        raise PackError(
            f"{what}: it is no op of torch.library. Define it with torch.library.custom_op, and give the result."
        )
    for objection in _objections(op):
        raise PackError(f"{what}: {objection}")
    return op


def _objections(op: OpOverload) -> Iterator[str]:
    """Yields why an op cannot run as a plugin, the gravest reason first."""
    schema = op._schema
    if schema.is_mutable:
        names = ", ".join(argument.name for argument in schema.arguments if _is_written(argument))
        yield f"it writes to its argument {names}. Write an op that returns the new value, with mutates_args=()."
    if any(argument.alias_info is not None for argument in (*schema.arguments, *schema.returns)):
        yield "it returns a view of an argument, and an engine's tensors share no memory. Return a copy."
    if not schema.returns:
        yield "it returns nothing."
    for result in schema.returns:
        if not isinstance(result.type, torch.TensorType):
            yield (
                f"it returns a value of type {result.type}, and layers return tensors. Return tensors, one or several."
            )
    if not has_fake_implementation(op):
        name = op.name()
        yield (
            "it has no fake implementation, from which the sizes of its results follow. Register one before the "
            f'plugin, with torch.library.register_fake("{name}").'
        )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write
