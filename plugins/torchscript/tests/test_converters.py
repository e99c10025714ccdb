"""Converters for TorchScript schemas: how they are registered, what they receive, and what goes wrong."""

import textwrap
import warnings

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_torchscript as torchscript
from torchtrt.errors import ConversionError, PackError
from torchtrt.packs import ConverterPack, use_packs
from torchtrt.registry import DYNAMO_CONVERTERS, ConverterPriority
from torchtrt_torchscript.node_arguments import Argument

from .ir import function_of, graph_of, tensors_of
from .schemas import CALLS, OUTPUTS

RELU = "aten::relu(Tensor self) -> Tensor"
HIGH = ConverterPriority.HIGH


@pytest.fixture(autouse=True)
def empty_local_pack():
    """Leaves nothing registered behind."""
    with use_packs():
        yield


def script(function):
    """Returns a scripted function, without PyTorch's note that TorchScript is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(function)


def rectify(x):
    """Twice the positive part."""
    return torch.relu(x) * 2


def add_relu(ctx, node, args):
    """A converter for aten::relu."""
    layer = ctx.net.add_activation(args[0].ITensor(), torchtrt.trt.ActivationType.RELU)
    layer.name = ctx.label
    ctx.associate_value_and_tensor(node.output(), layer.get_output(0))
    return True


def test_a_registered_converter_converts_its_schema():
    """With HIGH it comes before every pack's; the report says where it comes from."""
    patterns = torchscript.RegisterNodeConversionPatterns(HIGH)
    assert patterns.pattern(RELU, add_relu) is patterns

    x = torch.randn(2, 3)
    compiled = torchscript.compile(script(rectify), (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), rectify(x))
    rows = {row.op: (row.pack, row.converter) for row in compiled.report.converted}
    assert rows["aten.relu.default"][0].startswith("local")
    assert rows["aten.relu.default"][1].endswith("test_converters:add_relu")


def test_a_standard_converter_does_not_take_an_op_from_a_first_party_pack():
    """The order law is the same as for every other converter."""
    called = []
    torchscript.RegisterNodeConversionPatterns().pattern(RELU, lambda *_: called.append(1))

    torchscript.compile(script(rectify), (torch.randn(2, 3),), require_full_compilation=True)

    assert [] == called


def test_a_torchscript_converter_declines_exported_models():
    """It receives nodes of a TorchScript graph only, as the resolution shows."""
    torchscript.RegisterNodeConversionPatterns(HIGH).pattern(RELU, add_relu)

    class Rectify(nn.Module):
        def forward(self, x):
            return torch.relu(x) * 2

    compiled = torchtrt.compile(Rectify().eval(), (torch.randn(2, 3),), min_block_size=1)

    rows = {row.op: row.pack for row in compiled.report.converted}
    assert rows["aten.relu.default"].startswith("aten_core")
    candidates = DYNAMO_CONVERTERS.candidates(torch.ops.aten.relu.default)
    assert "local" == candidates[0].pack.name


def test_a_pack_carries_torchscript_converters():
    """With their priority, under the op of their schema; a disabled one is not there."""
    pack = ConverterPack("mine")
    assert add_relu is torchscript.torchscript_converter(pack, RELU, priority=HIGH)(add_relu)
    torchscript.torchscript_converter(pack, "aten::tanh(Tensor self) -> Tensor", enabled=False)(
        add_relu
    )

    (registration,) = pack.converters
    assert torch.ops.aten.relu.default is registration.target
    assert HIGH is registration.priority


def test_a_schema_that_cannot_be_read_is_an_error():
    """The message has the schema and an example."""
    with pytest.raises(PackError, match="'aten::relu' is not a function schema"):
        torchscript.RegisterNodeConversionPatterns().pattern("aten::relu", add_relu)


BECOMING = (
    *("relu_", "sigmoid_", "add_.Tensor", "div_.Scalar", "hardtanh_", "mul_.Tensor", "sub_.Tensor"),
    *("_convolution", "_convolution.deprecated", "view", "index.Tensor", "to.dtype", "max.dim"),
)
"""Calls whose op is another one, or the same, by the time that converters are looked up."""


@pytest.mark.parametrize("name", BECOMING)
def test_a_converter_is_asked_for_what_becomes_of_its_schema(name):
    """Of a write in place, a view or PyTorch's own convolution; it receives all arguments of the node."""
    graph = graph_of(
        f"aten::{name}", CALLS[f"aten::{name}"], OUTPUTS.get(f"aten::{name}", "Tensor")
    )
    (node,) = graph.findAllNodes(f"aten::{name.partition('.')[0]}")
    seen = []

    def convert(ctx, node, args):
        seen.append((node.kind(), len(args) == len(list(node.inputs()))))
        return False

    torchscript.RegisterNodeConversionPatterns(HIGH).pattern(node.schema(), convert)
    with pytest.raises(ConversionError, match="returned False"):
        torchscript.compile(
            function_of(graph), tensors_of(CALLS[f"aten::{name}"]), min_block_size=1
        )

    assert [(node.kind(), True)] == seen


NEVER_ASKED = {
    "aten::narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)": "aten::index_select",
    "aten::rleu(Tensor self) -> Tensor": r"no aten::rleu\. Did you mean 'aten::relu'\?$",
    "aten::relu(Tensor self, int dim) -> Tensor": r"another: aten::relu\(Tensor self\) -> Tensor",
    "aten::add.Tensors(Tensor self, Tensor other) -> Tensor": "aten::add.Tensor",
    "aten::size(Tensor self) -> int[]": "evaluated",
    "aten::add.int(int a, int b) -> int": "evaluated",
    "aten::relu.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": "without out",
    "prim::NumToTensor.Scalar(Scalar a) -> Tensor": "dispatcher",
    "aten::requires_grad_(Tensor(a!) self, bool requires_grad=True) -> Tensor(a!)": "in place",
}


@pytest.mark.parametrize("schema", NEVER_ASKED)
def test_a_schema_that_nothing_will_ask_for_is_refused(schema):
    """When it is registered, with what to register instead."""
    with pytest.raises(PackError, match=NEVER_ASKED[schema]) as caught:
        torchscript.RegisterNodeConversionPatterns().pattern(schema, add_relu)
    assert "ever be asked" in str(caught.value)


def test_a_converter_is_not_asked_for_a_part_of_another_call():
    """The node it would receive is not one of its schema."""
    schema = "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"
    torchscript.RegisterNodeConversionPatterns(HIGH).pattern(schema, lambda *_: False)

    def element(x, position):
        return x[int(position)] + 0

    x, position = torch.randn(2, 3), torch.tensor(1)
    scripted = script(element)
    compiled = torchscript.compile(scripted, (x, position), require_full_compilation=True)

    torch.testing.assert_close(compiled(x, position), x[1])


def test_a_schema_of_another_library_may_be_registered_before_the_library_is_there():
    """A pack is loaded before what it converts."""
    pack = ConverterPack("mine")
    schema = "not_loaded_yet::snake(Tensor x) -> Tensor"

    assert add_relu is torchscript.torchscript_converter(pack, schema)(add_relu)


def run_with(converter, function=rectify, schema=RELU, inputs=None):
    """Compiles a function with one converter."""
    torchscript.RegisterNodeConversionPatterns(HIGH).pattern(schema, converter)
    inputs = (torch.randn(2, 3),) if inputs is None else inputs
    return torchscript.compile(script(function), inputs, require_full_compilation=True)


def test_a_converter_that_returns_false_is_an_error_that_names_the_node():
    """The message has the node, the converter and the line of the model."""
    with pytest.raises(ConversionError, match="returned False") as caught:
        run_with(lambda ctx, node, args: False)
    assert "= aten::relu(%x.1)" in str(caught.value)
    assert "return torch.relu(x) * 2" in str(caught.value)


def test_an_output_without_tensor_or_value_is_an_error_that_names_it():
    """Nothing can read a value that was never made."""
    with pytest.raises(ConversionError, match=r"neither a tensor nor a value with %\d"):
        run_with(lambda ctx, node, args: True)


def test_an_output_that_nothing_reads_may_be_left_out_with_a_warning():
    """The warning names the value."""

    def largest(x):
        return torch.max(x, 1, False)[0] + 1

    def convert(ctx, node, args):
        layer = ctx.net.add_reduce(args[0].ITensor(), torchtrt.trt.ReduceOperation.MAX, 2, False)
        ctx.associate_value_and_tensor(next(iter(node.outputs())), layer.get_output(0))
        return True

    schema = (
        "aten::max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"
    )
    x = torch.randn(2, 3)
    with pytest.warns(UserWarning, match=r"neither a tensor nor a value with %"):
        compiled = run_with(convert, largest, schema, (x,))

    torch.testing.assert_close(compiled(x), largest(x))


def test_layers_are_named_by_the_node_and_tensors_by_the_value():
    """What inspectors show is what the graph prints."""
    seen = {}

    def convert(ctx, node, args):
        add_relu(ctx, node, args)
        seen["label"] = ctx.label
        seen["tensor"] = ctx.value_tensor_map[node.output()].name
        seen["input"] = ctx.value_tensor_map[node.input()] is args[0].ITensor()
        return True

    run_with(convert)

    assert f"%{seen['tensor']} = aten::relu(%x.1)" == seen["label"]
    assert seen["input"]


def clamped(x):
    """Everything that an argument can be."""
    return torch.clamp(x, -1, None).sum([0, 1], False) + torch.cat([x, x], 0).sum()


def test_arguments_say_what_they_are():
    """Checked unwrapping, fallbacks for None, and messages with the argument's name."""
    seen = {}

    def convert(ctx, node, args):
        x, low, high = args
        assert (x.is_itensor(), x.is_ivalue(), high.is_none()) == (True, False, True)
        seen["low"] = low.unwrap_to_int(), low.unwrap_to_scalar(), low.IValue()
        seen["high"] = high.unwrap_to_double(2.5), high.unwrap_to_int(None)
        for call in (low.ITensor, low.unwrap_to_double, x.IValue, high.unwrap_to_scalar):
            with pytest.raises(ConversionError, match=r"The argument '(min|max|self)' is"):
                call()
        bounded = torchtrt.trt.ElementWiseOperation.MAX
        bound = ctx.net.add_constant((1, 1), torchscript.Weights(ctx, -1.0).data).get_output(0)
        layer = ctx.net.add_elementwise(x.ITensor(), bound, bounded)
        ctx.associate_value_and_tensor(node.output(), layer.get_output(0))
        return True

    schema = "aten::clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"
    x = torch.randn(2, 3)
    compiled = run_with(convert, clamped, schema, (x,))

    torch.testing.assert_close(compiled(x), clamped(x))
    assert {"low": (-1, -1, -1), "high": (2.5, None)} == seen


def test_maps_hold_constants_and_what_lists_are_made_of():
    """Not only what is an input of the node itself."""
    seen = {}

    def convert(ctx, node, args):
        inputs = list(node.inputs())
        seen["dimension"] = ctx.evaluated_value_map[inputs[1]]
        parts = list(inputs[0].node().inputs())
        seen["parts"] = [ctx.value_tensor_map[part] for part in parts]
        assert args[0].unwrap_to_itensor_list() == seen["parts"]
        factor = next(reversed(list(parts[1].node().inputs())))
        seen["factor"] = ctx.evaluated_value_map[factor]
        return False

    def join(x):
        return torch.cat([x, x * 5], 0)

    with pytest.raises(ConversionError, match="returned False"):
        run_with(convert, join, "aten::cat(Tensor[] tensors, int dim=0) -> Tensor")

    assert 0 == seen["dimension"]
    assert 2 == len(seen["parts"])
    assert 5 == seen["factor"]


def test_arguments_answer_what_they_hold():
    """Every kind of value has its question and its way to unwrap it; a fallback stands in for None alone."""
    tensor = torch.ones(2)
    held = {
        "int": 3,
        "double": 2.5,
        "bool": True,
        "string": "a",
        "dtype": torch.int8,
        "tensor": tensor,
        "int_list": [1, 2],
        "double_list": [1.5],
        "bool_list": [True],
        "tensor_list": [tensor, tensor],
    }
    for kind, value in held.items():
        argument = Argument("it", value)
        answers = {answer for answer in held if getattr(argument, f"is_{answer}")()}
        assert {kind} == answers
        assert value is getattr(argument, f"unwrap_to_{kind}")()
        assert value is getattr(Argument("it", None), f"unwrap_to_{kind}")(value)
        for other in held.keys() - {kind}:
            with pytest.raises(ConversionError, match="The argument 'it' is"):
                getattr(argument, f"unwrap_to_{other}")(held[other])
        assert argument.is_scalar() == (kind in ("int", "double", "bool"))
        assert argument.is_ivalue()
        assert not any((argument.is_none(), argument.is_itensor(), argument.is_itensor_list()))


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (torch.ones(4, 3, 2, 5), ((4, 3, 2, 5), (2, 5), 3, 4)),
        (torch.ones(4, 3), ((4, 3), (1,), 3, 4)),
        (torch.ones(4), ((4,), (1,), 4, 4)),
        (2.5, ((), (), 1, 1)),
    ],
)
def test_weights_have_the_sizes_that_torch_tensorrt_gives_them(value, sizes):
    """Of a convolution, a linear layer, a bias and a number."""
    seen = []

    def convert(ctx, node, args):
        weights = torchscript.Weights(ctx, value)
        seen.append(
            (weights.shape, weights.kernel_shape, weights.num_input_maps, weights.num_output_maps)
        )
        return False

    with pytest.raises(ConversionError, match="returned False"):
        run_with(convert)
    assert [sizes] == seen


def test_lists_hold_tensors_in_containers():
    """A list's tensors are unwrapped one by one, or all at once."""
    seen = []

    def convert(ctx, node, args):
        tensors = args[0].unwrap_to_itensor_list()
        seen.extend(type(item) for item in args[0].IValue())
        assert [item.tensor for item in args[0].IValue()] == tensors
        layer = ctx.net.add_concatenation(tensors)
        layer.axis = args[1].unwrap_to_int()
        ctx.associate_value_and_tensor(node.output(), layer.get_output(0))
        return True

    x = torch.randn(2, 3)
    compiled = run_with(convert, clamped, "aten::cat(Tensor[] tensors, int dim=0) -> Tensor", (x,))

    torch.testing.assert_close(compiled(x), clamped(x))
    assert [torchscript.TensorContainer] * 2 == seen


def test_weights_have_the_shapes_of_a_kernel():
    """Sizes for converters of convolutions; the memory lives until the engine is built."""
    seen = []

    def convert(ctx, node, args):
        weights = torchscript.Weights(ctx, args[1].unwrap_to_tensor())
        seen.append(
            (weights.shape, weights.kernel_shape, weights.num_input_maps, weights.num_output_maps)
        )
        bias = torchscript.Weights(ctx, args[2].unwrap_to_tensor())
        layer = ctx.net.add_convolution_nd(
            args[0].ITensor(),
            weights.num_output_maps,
            weights.kernel_shape,
            weights.data,
            bias.data,
        )
        ctx.associate_value_and_tensor(node.output(), layer.get_output(0))
        return True

    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, (2, 5)).eval()
    x = torch.randn(1, 3, 8, 9)
    scripted = script(model)
    graph = scripted.inlined_graph
    schema = graph.findNode("aten::conv2d").schema()
    torchscript.RegisterNodeConversionPatterns(HIGH).pattern(schema, convert)
    compiled = torchscript.compile(scripted, (x,), require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
    assert [((4, 3, 2, 5), (2, 5), 3, 4)] == seen


def test_a_loop_that_is_unrolled_converts_its_value_several_times():
    """The names of tensors stay unique."""

    def thrice(x):
        for _ in range(3):
            x = torch.relu(x) - 1
        return x

    names = []

    def convert(ctx, node, args):
        add_relu(ctx, node, args)
        names.append(ctx.value_tensor_map[node.output()].name)
        return True

    x = torch.randn(2, 3)
    compiled = run_with(convert, thrice, inputs=(x,))

    torch.testing.assert_close(compiled(x), thrice(x))
    assert (3, 3) == (len(names), len(set(names)))


def test_unsupported_schemas_are_listed_with_the_lines_that_use_them():
    """One warning says everything: the schemas, why, and where in the model they are."""

    def unusual(x):
        return torch.lu_solve(x, x, x.int()) + torch.relu(x)

    scripted = script(unusual)
    assert torchscript.check_method_op_support(script(rectify))
    with pytest.warns(UserWarning, match=r"aten::lu_solve\(Tensor") as caught:
        assert not torchscript.check_method_op_support(scripted)

    text = str(caught[0].message)
    assert "no pack has a converter for it" in text
    assert "return torch.lu_solve(x, x, x.int()) + torch.relu(x)" in textwrap.dedent(text)
    assert "aten::relu" not in text.replace("torch.relu", "")
