"""What a program registers itself, at any time."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import torchtrt
from torchtrt import packs
from torchtrt.errors import AmbiguousTargetError, ExportError, PackError
from torchtrt.packs import ConverterPack, ConverterPriority
from torchtrt.registry import (
    DYNAMO_CONVERTERS,
    decompositions,
    dynamo_tensorrt_converter,
    enabled_passes,
    lowering_passes,
    register_torch_trt_decomposition,
)

erfinv = torch.ops.aten.erfinv.default


def test_the_decorator_registers_into_the_pack_local(local: ConverterPack, call: Any) -> None:
    """After import time too: the merged table follows."""
    assert DYNAMO_CONVERTERS.get(call(operator.matmul)) is None

    @dynamo_tensorrt_converter(operator.matmul, supports_dynamic_shapes=True)
    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None: ...

    chosen = DYNAMO_CONVERTERS.resolve(call(operator.matmul)).chosen
    assert chosen is not None
    assert chosen.converter is convert
    assert chosen.pack.name == "local"
    assert chosen.pack.origin == "this program"


def test_a_disabled_decorator_returns_the_function_unregistered(local: ConverterPack) -> None:
    """The function can still be called by hand."""

    @dynamo_tensorrt_converter(operator.matmul, enabled=False)
    def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> str:
        return "called"

    assert convert(None, None, (), {}, "") == "called"
    assert operator.matmul not in DYNAMO_CONVERTERS


def test_the_decorator_takes_a_packet_of_one_overload_and_refuses_others(
    local: ConverterPack,
) -> None:
    """The error names the overloads to choose from."""
    register = dynamo_tensorrt_converter(torch.ops.aten.erfinv, priority=ConverterPriority.HIGH)
    register(lambda ctx, target, args, kwargs, name: None)

    assert DYNAMO_CONVERTERS.candidates(erfinv)[0].pack.name == "local"
    with pytest.raises(AmbiguousTargetError, match=r"aten\.add\.Tensor"):
        dynamo_tensorrt_converter(torch.ops.aten.add)(lambda ctx, target, args, kwargs, name: None)


def test_a_decomposition_of_the_program_is_used(local: ConverterPack) -> None:
    """With HIGH it overrides a pack's."""

    @register_torch_trt_decomposition("aten.erfinv", priority=ConverterPriority.HIGH)
    def decompose(x: torch.Tensor) -> torch.Tensor:
        return x

    function, info = decompositions()[erfinv]
    assert function is decompose
    assert info.name == "local"


def test_a_decomposition_that_raises_is_reported_with_its_line(local: ConverterPack) -> None:
    """A mistake in it does not mean that the op has no converter."""

    @register_torch_trt_decomposition("aten.igamma.default", priority=ConverterPriority.HIGH)
    def decompose(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.no_such_function(x, other)

    inputs = (torch.rand(3), torch.rand(3))
    exported = torch.export.export(_Igamma(), inputs)
    (stayed,) = torchtrt.compile(exported, dryrun=True).report.in_torch

    assert re.search(
        r"its decomposition .*decompose raised AttributeError: .*no_such_function.* \(.*test_local.py:\d+\)",
        stayed.reason,
    )


class _Igamma(torch.nn.Module):
    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.igamma(x, other)


def test_a_decomposition_of_a_packet_serves_the_overloads_of_its_form_that_write_nothing(
    local: ConverterPack,
) -> None:
    """``addmm.dtype`` has one argument more."""

    @register_torch_trt_decomposition(torch.ops.aten.addmm, priority=ConverterPriority.HIGH)
    def decompose(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return x + a @ b

    aten = torch.ops.aten
    ops = {op for op, (function, _) in decompositions().items() if function is decompose}
    assert {aten.addmm.default} == ops


def test_models_are_exported_inside_what_packs_say(local: ConverterPack) -> None:
    """In this thread, for as long as the export takes; one that raises is named."""
    seen = []

    @local.export_context
    @contextlib.contextmanager
    def told() -> Iterator[None]:
        seen.append("in")
        yield
        seen.append("out")

    torchtrt.compile(torch.nn.ReLU().eval(), [torch.ones(2)], min_block_size=1)
    assert ["in", "out"] == seen

    @local.export_context
    def broken() -> Any:
        raise ZeroDivisionError("oops")

    with pytest.raises(
        PackError, match=r"Pack 'local': .*broken raised ZeroDivisionError: oops.*Mend"
    ):
        torchtrt.compile(torch.nn.ReLU().eval(), [torch.ones(2)], min_block_size=1)


def test_a_context_of_a_pack_that_fails_behind_the_export_is_named(local: ConverterPack) -> None:
    """And not the model."""

    @local.export_context
    @contextlib.contextmanager
    def broken() -> Iterator[None]:
        yield
        raise SystemExit(3)

    with pytest.raises(PackError, match=r"Pack 'local': .*broken raised SystemExit: 3"):
        torchtrt.compile(torch.nn.ReLU().eval(), [torch.ones(2)], min_block_size=1)


def test_a_context_of_a_pack_hides_no_error_of_the_model(local: ConverterPack) -> None:
    """Even if it would."""

    @local.export_context
    @contextlib.contextmanager
    def hiding() -> Iterator[None]:
        with contextlib.suppress(Exception):
            yield

    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("oops")

    with pytest.raises(ExportError, match="oops"):
        torchtrt.compile(Broken().eval(), [torch.ones(2)], min_block_size=1)


def test_passes_run_in_pack_order() -> None:
    """Whatever is installed, by tier and name; behind all, the passes that are registered as last."""
    order = [(entry.last, entry.pack.order) for entry in lowering_passes()]

    assert order == sorted(order)
    assert {False, True} == {is_last for is_last, _ in order}


def test_passes_of_one_name_all_run_or_are_all_disabled(local: ConverterPack) -> None:
    """A name is for reports and settings, and need not be unique."""
    for _ in range(2):
        local.lowering_pass("fold")(lambda graph_module, settings: None)

    def own(*disabled: str) -> list[str]:
        settings = torchtrt.CompilationSettings(disabled_passes=frozenset(disabled))
        names = [entry.qualified_name for entry in enabled_passes(settings)]
        return [name for name in names if name == "local.fold"]

    assert 2 == len(own())
    assert [] == own("local.fold")


def test_the_same_packs_are_the_same_object_until_something_changes(local: ConverterPack) -> None:
    """By it, a registry sees that its table still holds."""
    before = packs.current_packs()
    assert packs.current_packs() is before

    local.add(erfinv, lambda ctx, target, args, kwargs, name: None)

    assert packs.current_packs() is not before
