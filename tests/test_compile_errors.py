"""Models, inputs and packs that fail: an error or a report names what to do."""

import contextlib
import sys

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import (
    ConversionError,
    ExportError,
    FullCompilationError,
    InputError,
    PackError,
    SettingsError,
    TensorRTUnavailableError,
    UnknownTargetError,
)
from torchtrt.packs import ConverterPack, ConverterPriority, PackInfo, add_pack, use_packs


def test_full_compilation_lists_what_would_stay(small):
    """The error names the node, the op and the reason, and what to do."""
    with pytest.raises(
        FullCompilationError, match=r"igamma(.|\n)*no pack has a converter(.|\n)*Install a pack"
    ):
        torchtrt.compile(small, (torch.rand(4, 8),), require_full_compilation=True)


def test_a_model_that_cannot_be_exported_is_a_clear_error():
    """The message holds PyTorch's reason and the way out."""

    class Untraceable(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match=r"could not trace Untraceable(.|\n)*draft_export"):
        torchtrt.compile(Untraceable().eval(), (torch.rand(3),))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            (torch.rand(9, 8),),
            "dimension 0 of input 'x' is 9, but the model was compiled for 1 to 4",
        ),
        ((torch.rand(2, 7),), "is 7, but the model was compiled for 8. To accept several sizes"),
        (
            (torch.rand(2, 8).double(),),
            "'x' is torch.float64, but the model was compiled for torch.float32. Convert it",
        ),
        ((torch.rand(8),), "'x' has 1 dimension, but the model was compiled for 2"),
        ((), "issing a required argument"),
        ((3,), "'x' must be a tensor, not an int"),
    ],
    ids=["range", "fixed", "dtype", "rank", "count", "kind"],
)
def test_inputs_that_do_not_fit_are_refused_before_anything_runs(small, inputs, message):
    """Outside the profile there is an error, never a result."""
    shapes = torchtrt.Input(min_shape=(1, 8), opt_shape=(2, 8), max_shape=(4, 8))
    compiled = torchtrt.compile(small, [shapes], min_block_size=1)

    with pytest.raises(InputError, match=message):
        compiled(*inputs)


def test_unknown_settings_and_ops_name_the_closest():
    """Nothing that a person asks for is ignored silently."""
    with pytest.raises(SettingsError, match="min_block_size"):
        torchtrt.compile(nn.ReLU(), (torch.rand(1),), min_block_siz=1)
    with pytest.raises(UnknownTargetError, match="aten"):
        torchtrt.compile(nn.ReLU(), (torch.rand(1),), torch_executed_ops={"aten.rellu"})
    with (
        pytest.raises(TensorRTUnavailableError, match=r"no version .9.(.|\n)*8\.6\.0"),
        torchtrt.use_tensorrt("reference@9"),
    ):
        pass


def test_a_size_without_a_bound_asks_for_one():
    """An engine is built for a maximum size; without one the message says how to give it."""
    exported = torch.export.export(
        nn.ReLU(), (torch.rand(4, 3),), dynamic_shapes=({0: torch.export.Dim("n")},)
    )

    with pytest.raises(InputError, match=r"no upper bound(.|\n)*torchtrt\.Input"):
        torchtrt.compile(exported)


def test_a_dimension_that_the_model_fixes_cannot_be_dynamic():
    """A range for a size that the code depends on is an error, not a silently narrower engine."""

    class Fixed(nn.Module):
        def forward(self, x):
            return x + torch.ones(6)

    shapes = torchtrt.Input(min_shape=(2,), opt_shape=(6,), max_shape=(9,))

    with pytest.raises(InputError, match="the model fixes it to 6"):
        torchtrt.compile(Fixed().eval(), [shapes])


def test_the_line_that_fixes_a_dimension_is_in_the_error():
    """And how to export a model that converts a size by ``int``."""

    class Converted(nn.Module):
        def forward(self, x):
            return x.view(int(x.shape[0] / 2), 2).abs()

    shapes = torchtrt.Input(min_shape=(4,), opt_shape=(6,), max_shape=(8,))

    with pytest.raises(InputError, match=r"test_compile_errors.py.*in forward.*strict=True"):
        torchtrt.compile(Converted().eval(), [shapes])


def test_no_inputs_is_a_clear_error():
    """A module needs inputs to be exported with."""
    with pytest.raises(InputError, match="needs example inputs"):
        torchtrt.compile(nn.ReLU())


# A converter that fails


@pytest.fixture
def failing_converter():
    """Registers, for one test, a converter of this program that raises."""

    def broken(ctx, target, args, kwargs, name):
        raise ValueError("no table for this")

    with use_packs():
        torchtrt.dynamo_tensorrt_converter(torch.ops.aten.igamma.default)(broken)
        yield


def test_a_converter_that_raises_names_pack_op_node_and_model_line(failing_converter, small):
    """The person learns whose converter failed, on what, and what to try."""
    with pytest.raises(ConversionError) as caught:
        torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1)

    text = str(caught.value)
    for part in (
        "local could not convert aten.igamma.default",
        "from this program",
        "mend the converter",
        "no table for this",
        "support/small.py",
        "float32[2, 8]",
        "torch_executed_ops",
    ):
        assert part in text
    assert isinstance(caught.value.__cause__, ValueError)


def without_arguments(module, settings):
    """Takes the arguments of the calls."""
    for node in module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.args = ()


def without_values(module, settings):
    """Takes what the nodes record of PyTorch's results."""
    for node in module.graph.nodes:
        node.meta.clear()


def without_results(module, settings):
    """Takes the end of the graph."""
    module.graph.erase_node(module.graph.output_node())


def without_order(module, settings):
    """Moves a call behind what reads its result."""
    target = torch.ops.aten.relu.default
    relu = module.graph.find_nodes(op="call_function", target=target)[0]
    next(iter(relu.users)).append(relu)


def behind_the_end(module, settings):
    """Adds a call without a place."""
    relu = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    module.graph.call_function(torch.ops.aten.sigmoid.default, relu.args)


def new_without_value(module, settings):
    """Puts another op in a call's place, without the value of its result."""
    relu = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    with module.graph.inserting_before(relu):
        sigmoid = module.graph.call_function(torch.ops.aten.sigmoid.default, relu.args)
    relu.replace_all_uses_with(sigmoid)
    module.graph.erase_node(relu)


def with_another_argument(module, settings):
    """Passes what the op does not take."""
    relu = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    relu.kwargs = {"slope": 1}


def as_a_method(module, settings):
    """Calls a method of tensors, as graphs before the export do."""
    relu = module.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0]
    relu.op, relu.target = "call_method", "relu"


@contextlib.contextmanager
def folding_boxes(function):
    """Lets a pack have a lowering pass in a ``with`` block."""
    pack = ConverterPack("boxes")
    pack.lowering_pass("fold_boxes")(function)
    with use_packs():
        add_pack(pack, PackInfo("boxes", "torchtrt-converters-boxes", "2.1"))
        yield


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (
            without_arguments,
            r"the node relu\w* calls aten\.relu\.default without its argument 'self'",
        ),
        (without_values, r"the node \w+ has lost the value"),
        (without_results, "its results are not those that it had"),
        (without_order, "used before it has been defined"),
        (behind_the_end, r"the node sigmoid\w* is behind the output; insert"),
        (new_without_value, r"the new node sigmoid\w* has no value"),
        (with_another_argument, "with an argument 'slope', which it does not have"),
        (as_a_method, "is a call_method, and only call_function"),
    ],
)
def test_a_lowering_pass_that_breaks_the_graph_is_named_with_its_pack(small, function, match):
    """Not the model, nor what reads the graph later."""
    message = f"fold_boxes of boxes 2.1 broke the graph: .*({match}).*PACKS_DISABLE=boxes"
    with folding_boxes(function), pytest.raises(PackError, match=message):
        torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        pytest.param(lambda graph, settings: 1 / 0, "raised ZeroDivisionError", id="raises"),
        pytest.param(lambda graph, settings: "done", "returned str", id="returns"),
        pytest.param(lambda graph, settings: sys.exit(3), "raised SystemExit: 3", id="exits"),
    ],
)
def test_a_lowering_pass_that_fails_is_named_with_its_pack(small, function, match):
    """Whose it is, what it did, and how to go without it."""
    fails = pytest.raises(PackError, match=f"fold_boxes of boxes 2.1 {match}")
    with folding_boxes(function), fails:
        torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1)


def test_a_decomposition_that_calls_its_op_is_named():
    """The report says why it does not help."""

    @torch.library.custom_op("boxes::loops", mutates_args=())
    def loops(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    loops.register_fake(torch.empty_like)
    pack = ConverterPack("boxes")

    @pack.decomposition("boxes::loops")
    def looping(x):
        return torch.ops.boxes.loops(x * 2)

    class Model(nn.Module):
        def forward(self, x):
            return loops(x).relu()

    with use_packs():
        add_pack(pack, PackInfo("boxes"))
        compiled = torchtrt.compile(Model().eval(), [torch.rand(2)], min_block_size=1)

    (row,) = compiled.report.in_torch
    assert "looping calls the op" in row.reason


def test_a_converter_that_ends_the_program_is_a_failed_conversion(small):
    """The program goes on to the error, which names the pack."""
    pack = ConverterPack("boxes")
    high = ConverterPriority.HIGH
    pack.add("aten.relu.default", lambda ctx, self: sys.exit(3), priority=high)

    fails = pytest.raises(ConversionError, match=r"boxes .*could not .*SystemExit: 3")
    with use_packs():
        add_pack(pack, PackInfo("boxes"))
        with fails:
            torchtrt.compile(small, [torch.rand(2, 8)], min_block_size=1)
