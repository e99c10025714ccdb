"""ConverterPack: what a pack author writes."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

import pytest
import torch

from torchtrt.contract import RejectIf, check_names
from torchtrt.errors import (
    AmbiguousTargetError,
    ConverterSignatureError,
    InvalidTargetError,
    PackError,
)
from torchtrt.packs import (
    CallingConvention,
    ConverterPack,
    ConverterPriority,
    PackInfo,
    Reject,
    add_pack,
    current_packs,
    use_packs,
)
from torchtrt.packs.registrations import Registration
from torchtrt.registry import DYNAMO_CONVERTERS

relu = torch.ops.aten.relu.default


def convert(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter."""


def convert_for_network(net: Any, target: Any, args: Any, kwargs: Any, name: str) -> None:
    """Stands for a converter of the older convention."""


def only(pack: ConverterPack) -> Registration:
    """Returns the one registered converter."""
    (registration,) = pack.converters
    return registration


def test_a_decorated_function_is_registered_and_stays_what_it_was() -> None:
    """The decorator returns the function itself, so decorators stack."""
    pack = ConverterPack("vision")

    returned = pack.converter(relu)(pack.converter(torch.ops.aten.gelu.default)(convert))

    assert returned is convert
    assert [registration.target for registration in pack.converters] == [
        torch.ops.aten.gelu.default,
        relu,
    ]


def test_a_converter_that_is_not_enabled_is_not_registered() -> None:
    """``enabled`` takes a condition, such as whether a library is there."""
    pack = ConverterPack("vision")

    returned = pack.converter(relu, enabled=False)(convert)

    assert returned is convert
    assert pack.converters == ()


def test_a_registration_carries_every_argument() -> None:
    """All that the author declares about a converter arrives in its ConverterSupport."""
    pack = ConverterPack("vision")

    pack.add(
        relu,
        convert,
        capability_validator=callable,
        priority=ConverterPriority.HIGH,
        supports_dynamic_shapes=True,
        requires_output_allocator=True,
    )

    registration = only(pack)
    assert registration.priority is ConverterPriority.HIGH
    assert registration.support.converter_implementation is convert
    assert registration.support.capability_validator is callable
    assert registration.support.supports_dynamic_shapes
    assert registration.support.requires_output_allocator


def test_a_converter_without_a_validator_accepts_every_node() -> None:
    """The default validator is always true."""
    pack = ConverterPack("vision")

    pack.add(relu, convert)

    assert only(pack).support.capability_validator(None, None) is True
    assert not only(pack).support.supports_dynamic_shapes
    assert not only(pack).support.requires_output_allocator


def test_what_is_registered_cannot_be_changed() -> None:
    """A registration holds for as long as the process."""
    pack = ConverterPack("vision")
    pack.add(relu, convert)

    with pytest.raises(dataclasses.FrozenInstanceError):
        only(pack).support.supports_dynamic_shapes = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (torch.ops.aten.gelu, torch.ops.aten.gelu.default),
        ("aten.gelu", torch.ops.aten.gelu.default),
        ("aten::add.Tensor", torch.ops.aten.add.Tensor),
        (operator.getitem, operator.getitem),
        ("operator.getitem", operator.getitem),
        ("nosuch::op", "nosuch.op.default"),
        ("torch.ops.nosuch.op.Tensor", "nosuch.op.Tensor"),
    ],
)
def test_a_target_may_be_an_op_a_packet_or_a_name(target: Any, expected: Any) -> None:
    """A name of an op that this PyTorch does not have is kept as a name."""
    pack = ConverterPack("vision")

    pack.add(target, convert)

    assert only(pack).target == expected


@pytest.mark.parametrize("target", [torch.ops.aten.add, "aten.add"])
def test_a_packet_of_several_overloads_is_an_error_that_names_them(target: Any) -> None:
    """The author has to choose one."""
    with pytest.raises(
        AmbiguousTargetError, match=r"aten\.add has several overloads.*aten\.add\.Tensor"
    ):
        ConverterPack("vision").add(target, convert)


@pytest.mark.parametrize(
    ("function", "convention"),
    [
        (convert, CallingConvention.CTX),
        (convert_for_network, CallingConvention.LEGACY),
        (lambda network, target, args, kwargs, name: None, CallingConvention.LEGACY),
        (
            functools.partial(lambda flag, ctx, target, args, kwargs, name: None, True),
            CallingConvention.CTX,
        ),
        (functools.wraps(convert)(lambda *args: None), CallingConvention.CTX),
    ],
    ids=["ctx", "net", "network", "partial", "wrapped"],
)
def test_the_first_parameter_tells_the_calling_convention(
    function: Any, convention: CallingConvention
) -> None:
    """``ctx`` is the conversion context, ``net`` or ``network`` the bare network."""
    pack = ConverterPack("vision")

    pack.add(relu, function)

    assert only(pack).convention is convention


def test_a_bound_method_is_judged_without_self() -> None:
    """A converter may be a method of an object that holds options."""

    class Options:
        def convert(self, ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> None: ...

    pack = ConverterPack("vision")

    pack.add(relu, Options().convert)

    assert only(pack).convention is CallingConvention.CTX


@pytest.mark.parametrize("function", [lambda a, b, c, d, e: None, lambda *args: None, lambda: None])
def test_an_ambiguous_signature_is_an_error_that_says_what_to_write(function: Any) -> None:
    """A wrong guess would fail deep inside a conversion."""
    with pytest.raises(ConverterSignatureError, match=r"Write \(ctx, target, args, kwargs, name\)"):
        ConverterPack("vision").add(relu, function)


@pytest.mark.parametrize(
    "validator",
    [
        lambda node: node,
        lambda node, settings: (node, settings)[0],
        lambda node, settings=None: node,
        lambda *arguments: arguments[0],
    ],
    ids=["one", "two", "optional", "any"],
)
def test_a_validator_takes_the_node_and_may_take_the_settings(validator: Any) -> None:
    """Both forms are called the same way from there on."""
    pack = ConverterPack("vision")

    pack.add(relu, convert, capability_validator=validator)

    registration = only(pack)
    assert registration.validate is not None
    assert registration.validate("node", "settings") == "node"


@pytest.mark.parametrize("validator", [lambda: True, lambda a, b, c: True])
def test_a_validator_of_another_form_is_an_error(validator: Any) -> None:
    """It is found at registration, not at the first lookup."""
    with pytest.raises(ConverterSignatureError, match=r"Write `def validator\(node, settings\)`"):
        ConverterPack("vision").add(relu, convert, capability_validator=validator)


def test_a_reject_is_false_and_keeps_its_reason() -> None:
    """A validator can return it in place of False."""
    reject = Reject("only 2-D kernels")

    assert not reject
    assert reject.reason == "only 2-D kernels"


@pytest.mark.parametrize("wrong", ["module:function", None, 3])
def test_a_converter_is_a_function(wrong: Any) -> None:
    """Nothing is imported by name."""
    with pytest.raises(PackError, match="is no function"):
        ConverterPack("vision").add(relu, wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"priority": "first"}, {"reject_if": 3}, {"reject_if": [convert, None]}],
    ids=["priority", "check", "checks"],
)
def test_a_wrong_argument_of_a_registration_is_an_error_that_names_the_pack(wrong: Any) -> None:
    """Nothing is registered."""
    pack = ConverterPack("vision")

    with pytest.raises(PackError, match="Pack 'vision'"):
        pack.add(relu, convert, **wrong)
    assert not pack.converters


def test_a_table_passes_each_op_its_value() -> None:
    """One function serves several ops, and reads nothing back from the node."""
    pack = ConverterPack("vision")

    cosines = {"aten.cos.default": "COS", "aten.sin.default": "SIN"}

    @pack.converter("aten.tan.default", table={"kind": cosines})
    def function(ctx: Any, self: Any, *, kind: str = "TAN") -> str:
        return kind

    kinds = {
        str(converter.target): converter.support.converter_implementation(None, None)  # type: ignore[operator]
        for converter in pack.converters
    }
    assert kinds == {
        "aten.cos.default": "COS",
        "aten.sin.default": "SIN",
        "aten.tan.default": "TAN",
    }
    names = {
        converter.support.converter_implementation.__qualname__ for converter in pack.converters
    }  # type: ignore[union-attr]
    assert names == {function.__qualname__}


def test_a_table_needs_a_converter_with_a_parameter_for_its_values() -> None:
    """The value has to go somewhere."""
    pack = ConverterPack("vision")

    with pytest.raises(ConverterSignatureError, match="no parameter 'kind'"):
        pack.converter(table={"kind": {"aten.cos": "COS"}})(convert)


def test_a_check_receives_the_tables_value_if_it_has_the_parameter() -> None:
    """It need not look the op up again."""
    pack = ConverterPack("vision")

    def unlike_cosine(node: Any, *, kind: str) -> str | None:
        return None if kind == "COS" else f"{kind} of {node}"

    def never(node: Any) -> None: ...

    pack.converter(
        table={"kind": {"aten.cos.default": "COS", "aten.sin.default": "SIN"}},
        reject_if=(never, unlike_cosine),
    )(lambda ctx, self, kind: self)

    validators = {str(converter.target): converter.validate for converter in pack.converters}
    assert validators["aten.cos.default"]("x", None) is None  # type: ignore[misc]
    assert validators["aten.sin.default"]("x", None) == "SIN of x"  # type: ignore[misc]
    assert {
        check_names(converter.support.capability_validator) for converter in pack.converters
    } == {("never", "unlike_cosine")}


def test_a_sealed_pack_refuses_registrations() -> None:
    """A converter that would have no effect is an error, not a surprise."""
    pack = ConverterPack("vision")
    pack.seal()

    for register in (
        pack.converter(relu),
        pack.decomposition(relu),
        pack.lowering_pass(),
    ):
        with pytest.raises(PackError, match="'vision' is already loaded"):
            register(convert)


@pytest.mark.parametrize("name", ["", "Vision", "my-ops", "1st", "a__b", "a_", 3])
def test_a_name_that_no_distribution_could_follow_from_is_an_error(name: Any) -> None:
    """Lower-case letters, digits and single underscores."""
    with pytest.raises(PackError, match="cannot be a pack's name"):
        ConverterPack(name)


@pytest.mark.parametrize("api", [1, (1,), ("1", "0"), (1, 0, 0), (True, 0)])
def test_a_contract_is_two_whole_numbers(api: Any) -> None:
    """It is what decides whether the rest of the pack can be trusted."""
    with pytest.raises(PackError, match=r"\(1, 0\)"):
        ConverterPack("vision", api=api)


def test_a_pack_carries_decompositions_and_passes() -> None:
    """Everything that a distribution contributes is in one object, in order of registration."""
    pack = ConverterPack("vision")

    pack.decomposition("aten.silu")(lambda self: self)
    pack.decomposition("aten.gelu", enabled=False)(lambda self: self)
    pack.lowering_pass()(convert)
    pack.lowering_pass("fold_boxes")(convert)

    assert [entry.target for entry in pack.decompositions] == [torch.ops.aten.silu.default]
    assert [entry.name for entry in pack.lowering_passes] == ["convert", "fold_boxes"]


def test_a_pack_can_be_added_by_a_program() -> None:
    """It takes its place in the order, counts again when it has grown, and takes no other pack's name."""
    pack = ConverterPack("zz_added")
    before = current_packs()
    with use_packs():
        add_pack(pack, PackInfo("zz_added", "zz-added", "2.0"))
        names = [loaded.info.name for loaded in current_packs().loaded]
        assert names[-2:] == ["zz_added", "local"]
        assert "zz_added" in [info.name for info in current_packs().installed]

        assert torch.ops.aten.geqrf.default not in DYNAMO_CONVERTERS
        pack.add(torch.ops.aten.geqrf.default, lambda ctx, target, args, kwargs, name: None)
        add_pack(pack, PackInfo("zz_added", "zz-added", "2.0"))
        assert torch.ops.aten.geqrf.default in DYNAMO_CONVERTERS
        for other in (ConverterPack("zz_added"), ConverterPack("aten_core"), ConverterPack("x")):
            info = PackInfo("aten_core" if other.name == "x" else other.name)
            with pytest.raises(PackError, match="another one's name"):
                add_pack(other, info)
    assert before.loaded == current_packs().loaded
    assert torch.ops.aten.geqrf.default not in DYNAMO_CONVERTERS


def test_a_pack_that_names_no_modules_keeps_the_order_of_registration() -> None:
    """Whatever its modules are called."""
    pack = ConverterPack("vision")
    for module in ("later", "earlier"):

        def rewrite(graph_module: Any, settings: Any) -> None: ...

        rewrite.__module__ = f"torchtrt_converters_vision.{module}"
        pack.lowering_pass(module)(rewrite)

    pack.seal()

    assert [pass_.name for pass_ in pack.lowering_passes] == ["later", "earlier"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda self: self, "has 2 positional arguments, and the function takes 1"),
        (
            lambda self, other, alpha: self,
            "may be called without 'alpha', for which the function has no default",
        ),
        (lambda ctx, self, other, alpha: self, "has 3 arguments, and the function takes 4"),
    ],
)
def test_a_decomposition_that_cannot_be_called_as_its_op_is_refused(
    function: Any, reason: str
) -> None:
    """When it is registered, with the op's schema."""
    pack = ConverterPack("vision")

    with pytest.raises(ConverterSignatureError, match=reason) as caught:
        pack.decomposition("aten.add.Tensor")(function)
    assert "aten::add.Tensor(Tensor self" in str(caught.value)
    assert not pack.decompositions


@pytest.mark.parametrize(
    "function",
    [lambda self, other, alpha=1: self, lambda self, *_, **rest: self],
)
def test_a_decomposition_of_its_ops_form_is_registered(function: Any) -> None:
    """With names, or taking the rest."""
    pack = ConverterPack("vision")

    pack.decomposition("aten.add.Tensor")(function)

    assert len(pack.decompositions) == 1


def test_a_table_with_a_misspelt_parameter_names_the_one_that_is_meant() -> None:
    """Which the function has."""
    pack = ConverterPack("vision")

    with pytest.raises(ConverterSignatureError, match="Did you mean 'kind'"):
        pack.converter(table={"kindd": {"aten.cos.default": 1}})(lambda ctx, self, kind: self)


@pytest.mark.parametrize("answer", [3, True, "", 0.5])
def test_the_answer_of_a_check_that_is_no_reason_names_the_check(answer: Any) -> None:
    """And not the checks beside it."""

    def small(node: Any) -> Any:
        return answer

    def never(node: Any) -> None: ...

    with pytest.raises(TypeError, match=r"of small: a reason or None is meant"):
        RejectIf(never, small)("node", None)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"enabled": "no"}, "enabled='no' of vision::snake, where True or False is meant"),
        ({"supports_dynamic_shapes": 1}, "supports_dynamic_shapes=1 of vision::snake"),
        ({"requires": 42}, "requires=42 of vision::snake has no Capability"),
        ({"table": "kind"}, "write ops with values as table="),
    ],
)
def test_an_argument_of_the_wrong_kind_is_named(arguments: Any, match: str) -> None:
    """Whatever Python would make of it."""
    with pytest.raises(PackError, match=f"Pack 'vision': {match}"):
        ConverterPack("vision").converter("vision::snake", **arguments)


@pytest.mark.parametrize("name", ["snake", "", "::snake", "vision."])
def test_a_name_without_a_namespace_is_no_op_of_a_later_library(name: str) -> None:
    """So that it is refused, and not noted for later."""
    pack = ConverterPack("vision")

    with pytest.raises(InvalidTargetError, match="a name has a namespace"):
        pack.converter(name)(lambda ctx, x: x)
    with pytest.raises(InvalidTargetError, match="a name has a namespace"):
        pack.decomposition(name)(lambda x: x)
