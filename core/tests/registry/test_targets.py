"""Names of ops, in every spelling that people write."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchtrt.errors import AmbiguousTargetError, InvalidTargetError, UnknownTargetError
from torchtrt.packs import ConverterPack
from torchtrt.settings import CompilationSettings
from torchtrt.targets import canonical_spelling, parse_target, parse_targets, qualified_name

add = torch.ops.aten.add


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (add.Tensor, "aten.add.Tensor"),
        (torch.ops.aten.relu.default, "aten.relu.default"),
        (torch.ops.prims.sin.default, "prims.sin.default"),
        (operator.getitem, "operator.getitem"),
        (math.ceil, "math.ceil"),
        (torch.sym_max, "torch.sym_max"),
        (builtins.round, "builtins.round"),
        (torch.ops.higher_order.cond, "higher_order.cond"),
    ],
)
def test_an_op_has_one_name_and_the_name_leads_back_to_it(target: Any, name: str) -> None:
    """What a listing prints can be pasted anywhere that takes an op."""
    assert qualified_name(target) == name
    assert parse_targets(name) == {target}


@pytest.mark.parametrize(
    "spelling",
    [
        add.Tensor,
        "aten.add.Tensor",
        "aten::add.Tensor",
        "torch.ops.aten.add.Tensor",
        " aten.add.Tensor ",
    ],
)
def test_one_overload_has_several_spellings(spelling: Any) -> None:
    """An object, PyTorch's dots, the dispatcher's colons, and the full path."""
    assert parse_targets(spelling) == {add.Tensor}


@pytest.mark.parametrize("spelling", [add, "aten.add", "aten::add", "torch.ops.aten.add"])
def test_a_packet_stands_for_all_its_overloads(spelling: Any) -> None:
    """Who keeps ``aten.add`` in PyTorch means every form of it."""
    assert parse_targets(spelling) == {getattr(add, name) for name in add.overloads()}


@pytest.mark.parametrize(
    ("name", "closest"),
    [
        ("aten.gelo", "aten.gelu"),
        ("aten.add.Tensr", "aten.add.Tensor"),
        ("aten::relu_.defult", "aten.relu_.default"),
        ("operator.getitm", "operator.getitem"),
        ("math.ciel", "math.ceil"),
        ("torch.sym_mx", "torch.sym_max"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_closest_match(name: str, closest: str) -> None:
    """A misspelt op in a setting would otherwise have no effect at all."""
    with pytest.raises(UnknownTargetError) as caught:
        parse_targets(name)

    assert repr(name) in str(caught.value)
    assert f"Did you mean {closest!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("torch.nn.functional.gelu", "aten.gelu"),
        ("torch.linalg.svd", "aten.linalg_svd"),
        ("torch.special.zeta", "aten.special_zeta"),
    ],
)
def test_the_name_of_a_function_is_an_error_with_its_op(name: str, op: str) -> None:
    """People know the function, and graphs have the op."""
    with pytest.raises(UnknownTargetError, match=f"Did you mean '{op}', which the function calls"):
        parse_targets(name)


@pytest.mark.parametrize(
    ("name", "full"),
    [("cond", "higher_order.cond"), ("relu", "aten.relu"), ("add.Tensor", "aten.add.Tensor")],
)
def test_a_name_without_its_namespace_is_an_error_with_the_whole_name(name: str, full: str) -> None:
    """However little of the whole it is."""
    with pytest.raises(UnknownTargetError, match=f"Did you mean '{full}'"):
        parse_targets(name)


@pytest.mark.parametrize("spelling", [torch.cond, "torch.cond", "higher_order.cond"])
def test_what_people_call_stands_for_the_op_that_graphs_have(spelling: Any) -> None:
    """No node of a graph calls ``torch.cond`` itself."""
    assert parse_targets(spelling) == {torch.ops.higher_order.cond}
    assert parse_target(spelling) is torch.ops.higher_order.cond


@pytest.mark.parametrize("name", ["acme_ops::rotate", "acme_ops.rotate.default"])
def test_an_op_of_a_library_that_is_not_imported_is_no_misspelling(name: str) -> None:
    """Whatever else has a name like it: the person has to import the library."""
    with pytest.raises(
        UnknownTargetError, match=r"has ops of 'acme_ops'.*--import LIBRARY"
    ) as caught:
        parse_targets(name)

    assert "Did you mean" not in str(caught.value)


def test_an_unknown_name_like_no_other_hints_at_the_library_that_adds_it() -> None:
    """Ops of torchvision exist once torchvision is imported."""
    with pytest.raises(UnknownTargetError, match="import that library first"):
        parse_targets("qqqqqqqqqq::zzzzzzzzzz")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "aten",
        "aten.",
        "aten.name",
        "aten.add.overloads",
        "torch.Tensor",
        "builtins.ValueError",
        "math.pi",
    ],
)
def test_what_is_no_op_is_unknown_although_python_finds_it(name: str) -> None:
    """Namespaces and packets have attributes of their own, and modules have classes and constants."""
    with pytest.raises(UnknownTargetError):
        parse_targets(name)


@pytest.mark.parametrize("spec", [3, None, torch.nn.ReLU, torch.Tensor])
def test_what_is_neither_a_function_nor_a_name_is_an_error(spec: Any) -> None:
    """The message says what to give."""
    for parse in (parse_target, parse_targets):
        with pytest.raises(InvalidTargetError, match="names no op: give an op"):
            parse(spec)
    with pytest.raises(InvalidTargetError):
        CompilationSettings(torch_executed_ops={spec})
    with pytest.raises(InvalidTargetError):
        ConverterPack("vision").converter(spec)(lambda ctx, x: x)


@given(st.text())
def test_no_text_does_anything_but_name_an_op_or_be_unknown(name: str) -> None:
    """Names come from configuration files and command lines."""
    try:
        targets = parse_targets(name)
    except UnknownTargetError:
        return
    assert all(callable(target) for target in targets)


@pytest.mark.parametrize("spelling", [torch.ops.aten.gelu, "aten.gelu", "aten::gelu.default"])
def test_a_packet_of_one_overload_stands_for_it(spelling: Any) -> None:
    """``out`` does not count: graphs are functional."""
    assert parse_target(spelling) is torch.ops.aten.gelu.default


def test_a_packet_of_several_overloads_does_not_stand_for_one() -> None:
    """The message lists them, so that one can be copied."""
    with pytest.raises(
        AmbiguousTargetError, match=r"Write the one that is meant: aten\.add\.Scalar"
    ):
        parse_target(add)


@pytest.mark.parametrize(
    ("spelling", "canonical"),
    [
        ("torchvision::nms", "torchvision.nms.default"),
        ("torch.ops.torchvision.nms", "torchvision.nms.default"),
        ("torchvision.nms.default", "torchvision.nms.default"),
        ("_operator.no_such", "operator.no_such"),
        ("_c10d_functional::all_reduce", "_c10d_functional.all_reduce.default"),
    ],
)
def test_a_name_can_be_brought_into_the_one_spelling_without_its_op(
    spelling: str, canonical: str
) -> None:
    """A pack may name an op whose library is imported later."""
    assert canonical_spelling(spelling) == canonical
