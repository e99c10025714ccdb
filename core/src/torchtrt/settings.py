"""What a person can ask of one compilation.

Settings travel as an argument from :func:`torchtrt.compile` down to every validator and converter;
nothing stores them globally, so two threads can compile with different settings at the same time.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from torchtrt.errors import SettingsError
from torchtrt.targets import Target, parse_targets

TargetSpec = Target | str


@dataclass(frozen=True)
class CompilationSettings:
    """The settings of one compilation, checked when they are made.

    Attributes:
        torch_executed_ops: Ops that stay in PyTorch, in any spelling: an overload, a packet,
            ``"aten.add"``, ``"aten::add.Tensor"`` or ``"torch.ops.aten.add.Tensor"``.
        min_block_size: A block of fewer converted ops than this stays in PyTorch: entering an
            engine has a cost that few ops do not earn back.
        require_full_compilation: Raise when anything would stay in PyTorch, whatever the block
            size. Copying results into the buffers and inputs that the model writes to is always
            PyTorch's.
        dryrun: Lower and partition only. The result runs in PyTorch and carries the report.
        assume_dynamic_shape_support: Use converters for nodes with symbolic dimensions even where
            the converter does not declare that it supports them.
        converter_preferences: For an op, the pack whose converters are asked first, whatever the
            order law says.
        torch_enabled_decompositions: Ops to decompose even where a converter accepts them.
        torch_disabled_decompositions: Ops never to decompose. Disjoint from the enabled ones.
        truncate_double: Compute float64 in float32. Without it float64 ops stay in PyTorch.
        workspace_size: Bytes of scratch memory a layer may use; 0 leaves TensorRT's default.
        optimization_level: TensorRT's builder optimization level, 0 to 5; ``None`` leaves its
            default.
        disable_tf32: Keep float32 matrix arithmetic at full precision.
        refittable: Build engines whose weights can be replaced without a rebuild.
        tactic_sources: Bit mask of TensorRT's tactic sources; ``None`` leaves its default.
        progress: Show progress bars; ``None`` shows them when standard error is a terminal.
    """

    torch_executed_ops: frozenset[Target] = frozenset()
    min_block_size: int = 5
    require_full_compilation: bool = False
    dryrun: bool = False
    assume_dynamic_shape_support: bool = False
    converter_preferences: Mapping[Target, str] = field(default_factory=dict)
    torch_enabled_decompositions: frozenset[Target] = frozenset()
    torch_disabled_decompositions: frozenset[Target] = frozenset()
    truncate_double: bool = False
    workspace_size: int = 0
    optimization_level: int | None = None
    disable_tf32: bool = False
    refittable: bool = False
    tactic_sources: int | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name in (
            "torch_executed_ops",
            "torch_enabled_decompositions",
            "torch_disabled_decompositions",
        ):
            self._set(name, _parse_all(getattr(self, name)))
        self._set(
            "converter_preferences",
            MappingProxyType(
                {
                    target: pack
                    for spec, pack in self.converter_preferences.items()
                    for target in parse_targets(spec)
                }
            ),
        )
        self._check("min_block_size", int, lambda value: value >= 1, "an integer from 1")
        self._check("workspace_size", int, lambda value: value >= 0, "bytes, 0 or more")
        if self.optimization_level is not None:
            self._check("optimization_level", int, lambda value: 0 <= value <= 5, "0 to 5 or None")
        both = self.torch_enabled_decompositions & self.torch_disabled_decompositions
        if both:
            names = ", ".join(sorted(map(str, both)))
            message = (
                f"torch_enabled_decompositions and torch_disabled_decompositions both name {names}. "
                "Keep each op in one of them."
            )
            raise SettingsError(message)

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check(self, name: str, kind: type, accept: Callable[[Any], bool], wanted: str) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, kind) or not accept(value):
            message = f"The setting {name}={value!r} is not usable: it must be {wanted}."
            raise SettingsError(message)

    @classmethod
    def from_keywords(cls, **keywords: Any) -> CompilationSettings:
        """Returns settings from ``compile``'s keyword arguments.

        Raises:
            SettingsError: A name is unknown (the closest known one is named) or a value is
                unusable.
        """
        known = [spec.name for spec in dataclasses.fields(cls)]
        for name in keywords:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
                message = f"torchtrt has no setting named {name!r}. {hint}"
                raise SettingsError(message)
        return cls(**keywords)


def _parse_all(specs: Iterable[TargetSpec]) -> frozenset[Target]:
    if isinstance(specs, str):
        specs = (specs,)
    return frozenset(target for spec in specs for target in parse_targets(spec))
