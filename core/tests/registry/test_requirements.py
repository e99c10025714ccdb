"""Versions and capabilities of TensorRT, symbolic sizes and ops that come later: what passes a converter over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from core.tests.registry.converters import Call, RegistryOf, convert, pack, relu
from torchtrt.errors import PackError, PackWarning
from torchtrt.packs import ConverterPack, ConverterPriority, problems
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import Capability, use_tensorrt


def symbolic_tensor() -> torch.Tensor:
    """Returns a fake tensor with symbolic dimensions."""
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv()).from_tensor(torch.empty(3, 4))


@pytest.mark.parametrize(
    "arguments",
    [
        lambda x: ((x,), {}),
        lambda x: (([1, (x, 2)],), {}),
        lambda x: ((1,), {"other": {"deep": [x]}}),
        lambda x: ((slice(None, x),), {}),
    ],
    ids=["plain", "nested", "keyword", "slice"],
)
@pytest.mark.parametrize("kind", ["tensor", "number", "tuple"])
def test_symbolic_dimensions_are_seen_wherever_they_come_in(
    registry_of: RegistryOf, call: Call, arguments: Callable[..., Any], kind: str
) -> None:
    """Inside nested lists, keyword arguments and slices; as sizes, numbers and parts of tuples."""
    tensor = symbolic_tensor()
    value = {"tensor": tensor, "number": tensor.shape[0], "tuple": (torch.empty(2), tensor)}[kind]
    args, kwargs = arguments(call.placeholder(value))
    static, dynamic = registry_of(pack()), registry_of(pack(supports_dynamic_shapes=True))

    node = call(relu, *args, **kwargs)

    assert "does not support dynamic shapes" in static.resolve(node).explain()
    assert dynamic.resolve(node)


def test_a_symbolic_result_makes_a_node_dynamic(registry_of: RegistryOf, call: Call) -> None:
    """As of an op whose output size depends on the data."""
    node = call(relu, value=symbolic_tensor())

    assert not registry_of(pack()).resolve(node)


def test_a_symbol_with_one_possible_value_is_no_symbol(registry_of: RegistryOf, call: Call) -> None:
    """PyTorch may learn a size after it made a symbol for it."""
    value = symbolic_tensor()
    assert value.shape[0] == 3
    assert value.shape[1] == 4

    assert registry_of(pack()).resolve(call(relu, call.placeholder(value)))


def test_assuming_dynamic_shape_support_takes_static_converters_too(
    registry_of: RegistryOf, call: Call
) -> None:
    """The person vouches for them."""
    node = call(relu, call.placeholder(symbolic_tensor()))
    settings = CompilationSettings(assume_dynamic_shape_support=True)

    assert registry_of(pack()).resolve(node, settings)


def test_a_static_converter_gives_way_to_a_dynamic_one_of_a_later_pack(
    registry_of: RegistryOf, call: Call
) -> None:
    """For a dynamic node the order goes on; for a static one it stops."""
    registry = registry_of(pack("aten_core"), pack("vision", supports_dynamic_shapes=True))

    dynamic = registry.resolve(call(relu, call.placeholder(symbolic_tensor())))
    static = registry.resolve(call(relu))

    assert dynamic.chosen is not None
    assert static.chosen is not None
    assert (dynamic.chosen.pack.name, static.chosen.pack.name) == ("vision", "aten_core")


def test_a_pack_for_other_versions_of_tensorrt_is_passed_over(
    registry_of: RegistryOf, call: Call
) -> None:
    """The range is compared with the TensorRT in use at the time of the lookup."""
    newer = ConverterPack("aten_core", tensorrt=">=10")
    newer.add(relu, convert)
    registry = registry_of(newer, pack("vision"))

    with use_tensorrt("reference@8.6.0"):
        old = registry.resolve(call(relu))
    with use_tensorrt("reference@10.16.1"):
        new = registry.resolve(call(relu))

    assert old.chosen is not None
    assert new.chosen is not None
    assert (old.chosen.pack.name, new.chosen.pack.name) == ("vision", "aten_core")
    assert "aten_core works with TensorRT >=10, and 8.6.0 is in use" in old.explain()


def test_a_converter_for_other_versions_of_tensorrt_is_passed_over(
    registry_of: RegistryOf, call: Call
) -> None:
    """One converter of a pack may need a newer TensorRT than the others, and the report says so."""
    made = ConverterPack("vision", tensorrt=">=8.6")
    made.add(relu, convert)
    made.add(relu, convert, tensorrt=">=10.14,<11", priority=ConverterPriority.HIGH)
    registry = registry_of(made)

    with use_tensorrt("reference@8.6.0"):
        old = registry.resolve(call(relu))
    with use_tensorrt("reference@10.16.1"):
        new = registry.resolve(call(relu))

    assert (1, 0) == (len(old.rejections), len(new.rejections))
    reason = "this converter works with TensorRT >=8.6,>=10.14,<11, and 8.6.0 is in use"
    assert reason in old.explain()
    assert new.chosen is not None
    assert ">=8.6,>=10.14,<11" == new.chosen.tensorrt


def test_a_converter_that_requires_a_capability_is_passed_over_without_it(
    registry_of: RegistryOf, call: Call
) -> None:
    """The reason names the converter's need, the first version with it, and the TensorRT in use."""
    made = ConverterPack("vision")
    made.add(relu, convert)
    needs = (Capability.INT64, Capability.ATTENTION)
    made.add(relu, convert, requires=needs, priority=ConverterPriority.HIGH)
    registry = registry_of(made)

    with use_tensorrt("reference@8.6.0"):
        old = registry.resolve(call(relu))
    with use_tensorrt("reference@11.4.0"):
        new = registry.resolve(call(relu))

    assert ["tensorrt-capability"] == [rejection.code for rejection in old.rejections]
    assert (
        "this converter needs the dtype INT64, which TensorRT has from version 10.0 on; "
        "the one in use is reference@8.6.0"
    ) == old.rejections[0].reason
    assert not new.rejections
    assert new.chosen is not None
    assert needs == new.chosen.support.requires


@pytest.mark.parametrize("requires", ["ATTENTION", ("INT64",), (Capability.INT64, None)])
def test_a_requirement_that_is_no_capability_is_refused_where_it_is_written(requires: Any) -> None:
    """Names are no capabilities: a misspelt one would never be found."""
    with pytest.raises(PackError, match=r"has no Capability: write Capability"):
        ConverterPack("vision").add(relu, convert, requires=requires)


@pytest.mark.parametrize("tensorrt", ["10", ">=ten", 10, None, ">= 10 or so"])
def test_a_range_that_is_none_is_refused_where_it_is_written(tensorrt: Any) -> None:
    """And not when a model is compiled."""
    with pytest.raises(PackError, match=r"is no range of TensorRT versions; write '>=10'"):
        pack(tensorrt=tensorrt)


def test_an_op_that_its_library_adds_later_is_found_by_name(
    registry_of: RegistryOf, call: Call
) -> None:
    """A pack need not import the library whose ops it converts."""
    registry = registry_of(pack(target="torchtrt_lookup_test::later", supports_dynamic_shapes=True))
    assert list(registry.missing_targets()) == ["torchtrt_lookup_test.later.default"]

    with torch.library._scoped_library("torchtrt_lookup_test", "DEF") as library:
        library.define("later(Tensor x) -> Tensor")
        op = torch.ops.torchtrt_lookup_test.later.default

        assert registry.resolve(call(op))
        assert registry.candidates(op)
        assert not registry.missing_targets()


def test_a_decomposition_of_an_op_that_comes_later_is_found_by_name(
    registry_of: RegistryOf, call: Call
) -> None:
    """It is looked for when a node of the op is."""
    decomposing = ConverterPack("decomposing")
    decomposing.decomposition("torchtrt_lookup_test::soon")(lambda x: x + 1)
    registry = registry_of(decomposing)
    assert not registry.decompositions()

    with torch.library._scoped_library("torchtrt_lookup_test", "DEF") as library:
        library.define("soon(Tensor x) -> Tensor")
        op = torch.ops.torchtrt_lookup_test.soon.default

        assert not registry.resolve(call(op))
        assert op in registry.decompositions()


def test_a_converter_that_does_not_fit_an_op_that_came_later_is_a_problem(
    registry_of: RegistryOf, call: Call
) -> None:
    """Its parameters can only be compared with the schema once there is one."""

    def converts_sound(ctx: Any, sound: Any) -> None:
        """Takes a parameter that the op does not have."""

    registry = registry_of(
        pack(target="torchtrt_signature_test::later", implementation=converts_sound)
    )

    with torch.library._scoped_library("torchtrt_signature_test", "DEF") as library:
        library.define("later(Tensor x) -> Tensor")
        with pytest.warns(PackWarning, match="sound"):
            resolution = registry.resolve(call(torch.ops.torchtrt_signature_test.later.default))

    assert not resolution
    assert ["bad-signature"] == [problem.code for problem in problems()]
