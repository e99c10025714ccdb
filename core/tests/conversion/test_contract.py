"""The arguments of converters, refused layers, results of converters, and the pack that an error names."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt import trt
from torchtrt.contract import CallingConvention, RejectIf, check_names, to_rejection
from torchtrt.conversion import ConversionContext, NetworkTensor, add, constant_of
from torchtrt.errors import ConversionError, ConverterSignatureError, PackError
from torchtrt.packs import ConverterPack, ConverterPriority, Reject, local_pack, problems, use_packs
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.shims import create_network

aten = torch.ops.aten
HIGH = ConverterPriority.HIGH


@pytest.fixture(autouse=True)
def empty_local_pack() -> Iterator[None]:
    """Leaves nothing registered behind."""
    with use_packs():
        yield


class Call(nn.Module):
    """Calls a function of one tensor."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def compiled(function: Callable[..., Any], x: torch.Tensor | None = None) -> Any:
    """A function, compiled with everything in engines."""
    x = torch.rand(2, 3) if x is None else x
    return torchtrt.compile(Call(function).eval(), (x,), require_full_compilation=True)


def override(target: Any, converter: Callable[..., Any], **options: Any) -> None:
    """Registers a converter of this program before all others."""
    local_pack.converter(target, priority=HIGH, supports_dynamic_shapes=True, **options)(converter)


# Conventions


def test_a_schema_converter_gets_every_argument_by_name_with_defaults() -> None:
    """The parameters of the op, in any order of the call."""
    seen: dict[str, Any] = {}

    def softmax(ctx: Any, self: Any, dim: int, dtype: Any) -> Any:
        seen.update(dim=dim, dtype=dtype, target=ctx.node.target)
        layer = ctx.net.add_softmax(self)
        layer.axes = 1 << dim
        return layer.get_output(0)

    override(aten.softmax.int, softmax)
    x = torch.rand(2, 3)

    torch.testing.assert_close(compiled(lambda x: torch.softmax(x, 1))(x), torch.softmax(x, 1))
    assert {"dim": 1, "dtype": None, "target": aten.softmax.int} == seen


def test_a_keyword_of_python_takes_an_underscore() -> None:
    """`from` cannot be a parameter."""
    pack = ConverterPack("vision")

    pack.add(aten.uniform.default, lambda ctx, self, from_, to, generator: None)

    (registration,) = pack.converters
    assert registration.arguments is not None
    assert {"self": 1, "from_": 0.0, "to": 2.0, "generator": None} == registration.arguments.bind(
        (1,), {"to": 2.0}, torch.clone
    )[1]


def test_one_function_serves_ops_that_differ() -> None:
    """A parameter that an op lacks has a default; the rest collects the other arguments."""
    pack = ConverterPack("vision")

    @pack.converter(aten.sum.default, aten.sum.dim_IntList)
    def total(ctx: Any, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> None: ...

    assert [CallingConvention.SCHEMA] * 2 == [converter.convention for converter in pack.converters]


def test_an_op_without_a_schema_gives_its_arguments_by_position() -> None:
    """Python functions on sizes, and higher-order operators."""
    pack = ConverterPack("vision")

    pack.add(operator.add, lambda ctx, first, second: None)

    (registration,) = pack.converters
    assert registration.arguments is not None
    assert ((1, 2), {}) == registration.arguments.bind((1, 2), {}, torch.clone)


@pytest.mark.parametrize(
    ("converter", "what"),
    [
        (
            lambda ctx, self, dimension, **_: None,
            "no argument 'dimension', which the converter takes",
        ),
        (lambda ctx, self, dim: None, "the argument 'dtype', which the converter does not take"),
        (lambda ctx: None, "the argument 'self', which the converter does not take"),
    ],
    ids=["misspelt", "forgotten", "nothing"],
)
def test_parameters_that_are_not_the_ops_are_found_at_registration(
    converter: Any, what: str
) -> None:
    """Not when a model uses it; the message shows the schema."""
    with pytest.raises(ConverterSignatureError, match=what) as caught:
        ConverterPack("vision").add(aten.softmax.int, converter)

    assert "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None)" in str(caught.value)


Weights = list[torch.Tensor | NetworkTensor]


@pytest.mark.parametrize(
    ("annotation", "keep"),
    [
        (Any, False),
        ("list[NetworkTensor]", False),
        ("Sequence[NetworkTensor | torch.Tensor]", True),
        ("list[OnlyTypeCheckersKnow | torch.Tensor]", True),
        (list[torch.Tensor], True),
        ("Sequence[Operand]", True),
        ("Weights", True),
    ],
    ids=str,
)
def test_weights_are_network_tensors_unless_the_annotation_says_torch_tensor(
    annotation: Any, keep: bool
) -> None:
    """In lists, too; and under another name."""
    kinds: list[bool] = []

    def concatenate(ctx, tensors, dim):  # type: ignore[no-untyped-def]
        kinds.extend(isinstance(tensor, torch.Tensor) for tensor in tensors)
        layer = ctx.net.add_concatenation([ctx.tensor(tensor) for tensor in tensors])
        layer.axis = dim
        return layer.get_output(0)

    concatenate.__annotations__["tensors"] = annotation
    override(aten.cat.default, concatenate)
    weight, x = torch.rand(2, 3), torch.rand(2, 3)

    result = compiled(lambda x: torch.cat([x, weight], 0))(x)

    torch.testing.assert_close(result, torch.cat([x, weight], 0))
    assert [False, keep] == kinds


@pytest.mark.parametrize("first", ["ctx", "net"])
def test_the_two_older_conventions_still_work(first: str) -> None:
    """As converters for Torch-TensorRT are written; weights are PyTorch tensors."""

    def with_ctx(ctx: Any, target: Any, args: Any, kwargs: Any, name: str) -> Any:
        layer = ctx.net.add_activation(args[0], trt.ActivationType.RELU)
        layer.name = name
        return layer.get_output(0)

    def with_net(net: Any, target: Any, args: Any, kwargs: Any, name: str) -> Any:
        layer = net.add_activation(args[0], trt.ActivationType.RELU)
        layer.name = name
        return layer.get_output(0)

    override(aten.relu.default, with_ctx if first == "ctx" else with_net)
    x = torch.randn(2, 3)

    assert torch.equal(compiled(torch.relu)(x), x.relu())


@pytest.mark.parametrize("decorate", ["converter", "lowering_pass"])
def test_a_decorator_without_parentheses_is_an_error(decorate: str) -> None:
    """It would register nothing, without an error."""

    def convert(ctx: Any, self: Any) -> None: ...

    with pytest.raises(PackError, match=rf"write @pack\.{decorate}\("):
        getattr(ConverterPack("vision"), decorate)(convert)


def test_a_flag_must_be_a_boolean() -> None:
    """A string is true, whatever it contains."""
    with pytest.raises(PackError, match="True or False is meant"):
        ConverterPack("vision").add(
            aten.relu.default,
            lambda ctx, self: None,
            supports_dynamic_shapes="no",  # type: ignore[arg-type]
        )


# Validators


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(True, None), (None, None), (False, ""), (Reject("why"), "why"), ("why", "why")],
)
def test_a_validator_has_one_form(answer: Any, reason: str | None) -> None:
    """True and None accept; False, Reject and a reason reject."""
    rejection = to_rejection(answer)

    assert reason == (None if rejection is None else rejection.reason)


@pytest.mark.parametrize("answer", [1, [], Reject, object(), 0.5, ""])
def test_any_other_answer_is_a_problem_of_the_pack(answer: Any) -> None:
    """It counts as a rejection, is reported once, and the next converter is tried."""
    before = len(problems())
    override(aten.relu.default, lambda ctx, self: None, capability_validator=lambda node: answer)
    x = torch.randn(2, 3)

    with pytest.warns(torchtrt.errors.PackWarning, match="True, False, None, Reject"):
        assert torch.equal(compiled(torch.relu)(x), x.relu())

    assert {"bad-validator"} == {problem.code for problem in problems()[before:]}


@pytest.mark.parametrize("answer", [True, False])
def test_a_check_that_answers_with_a_bool_is_a_problem_of_the_pack(answer: bool) -> None:
    """Unless it is true, or unless it accepts the node? A validator may."""
    override(aten.relu.default, lambda ctx, self: None, reject_if=lambda node: answer)
    x = torch.randn(2, 3)

    with pytest.warns(torchtrt.errors.PackWarning, match=f"{answer} of lambda: a reason or None"):
        assert torch.equal(compiled(torch.relu)(x), x.relu())
    validator = RejectIf(lambda node: None, validator=lambda node: answer)
    assert validator(None, None) is (None if answer else False)


def test_checks_are_composed_and_shown_by_their_names() -> None:
    """The first that objects gives the reason."""

    def too_wide(node: Any) -> str | None:
        return "too wide" if node > 3 else None

    def _odd(node: Any, settings: Any) -> str | None:
        return f"odd {settings}" if node % 2 else None

    both = RejectIf(too_wide, _odd)

    assert ("too_wide", "odd") == check_names(both)
    assert [None, "odd x", "too wide"] == [both(number, "x") for number in (2, 1, 5)]


# The network


def test_a_refused_layer_raises_where_it_is_added_with_tensorrts_words() -> None:
    """No converter tests for None; the error names pack, op, node and argument."""

    def relu(ctx: Any, self: Any) -> Any:
        other = ctx.tensor(torch.zeros(5, 7))
        return add(ctx, "elementwise", self, other, trt.ElementWiseOperation.SUM)

    override(aten.relu.default, relu)

    with pytest.raises(ConversionError) as caught:
        compiled(torch.relu)

    text = str(caught.value)
    assert "local" in text
    assert "aten.relu.default (node relu)" in text
    assert "refused the elementwise over (FLOAT [2, 3], FLOAT [5, 7]" in text


def test_layers_are_named_after_op_node_part_and_kind_and_never_twice() -> None:
    """Layers that a converter does not name, or names twice."""
    names: list[str] = []

    def relu(ctx: Any, self: Any) -> Any:
        first = ctx.net.add_identity(self)
        second = ctx.net.add_identity(first.get_output(0))
        with ctx.part("last"):
            third = ctx.net.add_identity(second.get_output(0))
        third_name = third.name
        fourth, fifth = (ctx.net.add_identity(third.get_output(0)) for _ in range(2))
        fourth.name = fifth.name = "mine"
        names.extend((first.name, second.name, third_name))
        ctx.attachments["layers"] = fourth, fifth
        return add(ctx, "activation", fifth.get_output(0), trt.ActivationType.RELU)

    override(aten.relu.default, relu)
    compiled(torch.relu)

    assert [
        "aten.relu.default/relu/identity",
        "aten.relu.default/relu/identity#2",
        "aten.relu.default/relu/last/identity",
    ] == names


# Results


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (lambda ctx, x: None, "the result is None, and PyTorch returns a tensor"),
        (lambda ctx, x: "x", "the result is a str"),
        (lambda ctx, x: ctx.net.add_identity(x), "PyTorch returns a tensor"),
        (
            lambda ctx, x: ctx.tensor(torch.zeros(2, 4)),
            r"the shape \(2, 4\), and PyTorch returns \(2, 3\)",
        ),
        (lambda ctx, x: ctx.tensor(torch.zeros(3)), r"the shape \(3,\)"),
        (lambda ctx, x: ctx.tensor(x, torch.int32), "is int32, and PyTorch returns float32"),
        (lambda ctx, x: (x, x), "the result is a tuple"),
    ],
    ids=["none", "string", "layer", "size", "rank", "dtype", "too many"],
)
@pytest.mark.parametrize("version", ["8.6.0", "11.4.0"])
def test_a_wrong_result_is_blamed_on_its_converter(version: str, result: Any, what: str) -> None:
    """In its own node, not the next one, and never as a wrong value."""
    override(aten.relu.default, lambda ctx, self: result(ctx, self))

    with (
        torchtrt.use_tensorrt(f"reference@{version}"),
        pytest.raises(ConversionError, match=what) as caught,
    ):
        compiled(lambda x: torch.relu(x) + 1)

    assert "could not convert aten.relu.default (node relu)" in str(caught.value)
    assert "raised at" not in str(caught.value)  # no line of the converter did


def test_an_error_names_the_converters_own_line() -> None:
    """And not that of the library in which it was noticed."""

    def converter(ctx: Any, self: Any) -> Any:
        return ctx.net.add_softmax(torch)

    override(aten.relu.default, converter)

    with pytest.raises(ConversionError, match=r"raised at  .*test_contract.py:\d+"):
        compiled(torch.relu)


def test_a_wrong_number_of_results_is_blamed_too() -> None:
    """As many as PyTorch returns; one that nothing reads may be None."""
    override(aten.max.dim, lambda ctx, self, dim, keepdim: (self,))

    with pytest.raises(ConversionError, match="returned 1 results, and PyTorch returns 2 results"):
        compiled(lambda x: torch.max(x, 1)[0])


# Errors


def test_errors_belong_to_the_thread_that_caused_them() -> None:
    """Two builds at once each get their own; errors of a thread that collects none go to all."""
    log, ready = logger(), threading.Barrier(2)
    severity = trt.ILogger.ERROR if hasattr(trt.ILogger, "ERROR") else trt.ILogger.Severity.ERROR
    texts: dict[str, str] = {}

    def build(name: str) -> None:
        with ErrorLog() as errors:
            ready.wait()
            log.log(severity, f"{name} is wrong")
            ready.wait()
        texts[name] = errors.text()

    threads = [threading.Thread(target=build, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with ErrorLog() as outer:
        stray = threading.Thread(target=log.log, args=(severity, "from elsewhere"))
        stray.start()
        stray.join()
    with ErrorLog() as empty:
        pass

    assert {"first": "first is wrong", "second": "second is wrong"} == texts
    assert "from elsewhere" == outer.text()
    assert "it logged no reason" == empty.text()


def test_a_context_made_by_hand_has_a_checked_network() -> None:
    """So that a converter can be called in a test of its own."""
    builder = trt.Builder(logger())
    context = ConversionContext(builder.create_network(0))
    tensor = context.net.add_input("x", trt.DataType.FLOAT, (2, 3))

    with pytest.raises(ConversionError, match="refused the gather over"), context.net.node("x", ""):
        context.net.add_gather(tensor, context.tensor(1.0), 0)


def test_the_reason_is_in_the_error_where_the_converter_had_seen_the_invalid_shape() -> None:
    """TensorRT logs only once what it finds invalid."""
    builder = trt.Builder(logger())
    context = ConversionContext(create_network(builder))
    tensor = context.net.add_input("x", trt.DataType.FLOAT, (2, 3))

    def convert() -> None:
        with context.net.node("x", ""):
            layer = context.net.add_shuffle(tensor)
            layer.reshape_dims = (5, 5)
            with contextlib.suppress(ValueError):
                tuple(layer.get_output(0).shape)

    with pytest.raises(ConversionError) as caught:
        convert()

    assert "refused the shuffle over (FLOAT [2, 3])" in str(caught.value)
    assert "it logged no reason" not in str(caught.value)


def test_a_constant_of_a_node_is_the_tensor_that_its_graph_holds():
    """A weight, wherever it lies; not a branch's graph, nor what is computed, nor a number."""
    module = torch.nn.Module()
    module.inner = torch.nn.Linear(2, 2)
    module.branch = torch.fx.symbolic_trace(torch.nn.ReLU())
    graph = torch.fx.Graph()
    weight, branch = (graph.create_node("get_attr", name) for name in ("inner.weight", "branch"))
    computed = graph.call_function(torch.ops.aten.relu.default, (weight,))
    graph.output((computed, branch))
    torch.fx.GraphModule(module, graph)

    assert constant_of(weight) is module.inner.weight
    assert [None] * 4 == [constant_of(value) for value in (branch, computed, 2.0, None)]
