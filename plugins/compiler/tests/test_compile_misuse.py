"""The errors of torchtrt.compile for inputs that are none, and which forms of ``forward`` it takes."""

import copy

import numpy as np
import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import ExportError, InputError, SettingsError
from torchtrt.settings import CompilationSettings

X = torch.linspace(-1, 1, 8).reshape(2, 4)
VARYING = torchtrt.Input(min_shape=(2, 4), opt_shape=(3, 4), max_shape=(8, 4))


def linear():
    """Returns a small model."""
    return torch.nn.Linear(4, 4).eval()


@pytest.mark.parametrize(
    "inputs",
    [X, None, 3, torchtrt.Input((2, 4)), "x", {"input": X}, (x for x in [X])],
    ids=lambda value: type(value).__name__,
)
def test_inputs_that_are_no_sequence_are_refused_with_what_to_write(inputs):
    """A bare tensor is not the sequence of its rows."""
    with pytest.raises(InputError, match=rf"not as an? {type(inputs).__name__}: write \[x\]"):
        torchtrt.compile(linear(), inputs)


def test_keyword_inputs_that_are_no_dictionary_are_refused():
    """They have names."""
    with pytest.raises(InputError, match="kwarg_inputs is a list"):
        torchtrt.compile(linear(), [X], kwarg_inputs=[X])


def test_what_pytorch_opens_of_a_compiled_model_is_refused(tmp_path):
    """Engines compute all of it. As a part of another model, it is compiled."""
    torchtrt.save(torchtrt.compile(linear(), [X], min_block_size=1), tmp_path / "model.pt2")
    program = torch.export.load(tmp_path / "model.pt2")

    with pytest.raises(InputError, match=r"is a compiled model.* torchtrt\.load\(path\)"):
        torchtrt.compile(program, [X])
    larger = Function(lambda x: torch.relu(program.module()(x) + 1)).eval()
    compiled = torchtrt.compile(larger, [X], min_block_size=1)
    torch.testing.assert_close(compiled(X), larger(X))


def test_an_exported_program_needs_a_sequence_too():
    """The check does not depend on the kind of model."""
    with pytest.raises(InputError, match="not as a Tensor"):
        torchtrt.compile(torch.export.export(linear(), (X,)), X)


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype stage")
@pytest.mark.filterwarnings("ignore:.*Sparse.*beta state")
@pytest.mark.parametrize(
    ("example", "kind"),
    [
        (lambda: X.to_sparse(), "torch.sparse_coo"),
        (lambda: X.to_sparse_csr(), "torch.sparse_csr"),
        (lambda: torch.nested.nested_tensor([X, X[:1]]), "nested tensor"),
        (lambda: torch.nested.nested_tensor([X, X[:1]], layout=torch.jagged), "nested tensor"),
    ],
    ids=["sparse", "csr", "nested", "jagged"],
)
def test_an_example_that_no_engine_can_read_is_refused_before_it_is_exported(example, kind):
    """Whatever error torch.export would raise for it."""
    with pytest.raises(InputError, match=f"plain strided tensors, and an input is a {kind}"):
        torchtrt.compile(torch.nn.ReLU(), [example()])


def test_a_sparse_tensor_where_a_dense_one_was_compiled_for_is_refused():
    """By name, before anything runs on it."""
    compiled = torchtrt.compile(linear(), [X], min_block_size=1)

    with pytest.raises(InputError, match=r"plain strided tensors, and an input is a torch.sparse"):
        compiled(X.to_sparse())


class Arguments(torch.nn.Module):
    """Takes any number of inputs."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, *args):
        return args[0] + self.weight * args[1].relu()


class Keywords(torch.nn.Module):
    """Takes inputs of any name."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, **kwargs):
        return kwargs["a"] + self.weight * kwargs["b"].relu()


class Both(torch.nn.Module):
    """Takes every kind of parameter."""

    def forward(self, a, *args, k=None, **named):
        return a + args[0] - args[1].relu() + k * named["z"]


@pytest.mark.parametrize(
    ("model", "count", "names"),
    [(Arguments(), 2, ""), (Keywords(), 0, "ba"), (Keywords(), 0, "ab"), (Both(), 3, "zk")],
    ids=["args", "kwargs", "kwargs in order", "both"],
)
def test_sizes_may_vary_in_whatever_form_forward_takes_its_inputs(model, count, names):
    """``*args`` and ``**kwargs`` are parameters like others, and the model stays as it is."""
    before = set(vars(model))
    compiled = torchtrt.compile(
        model.eval(),
        [VARYING] * count,
        kwarg_inputs=dict.fromkeys(names, VARYING),
        require_full_compilation=True,
        min_block_size=1,
    )

    for size in (2, 5, 8):
        args = [torch.rand(size, 4) - 0.5 for _ in range(count)]
        kwargs = {name: torch.rand(size, 4) - 0.5 for name in names}
        torch.testing.assert_close(compiled(*args, **kwargs), model(*args, **kwargs))
    assert before == set(vars(model))


class Writes(torch.nn.Module):
    """Has an argument whose name is one of Python's own, and writes to it."""

    def forward(self, input):
        input.add_(1)
        return input * 2


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # PyTorch's copying itself
@pytest.mark.parametrize("model", [linear(), Writes()], ids=["reads", "writes"])
def test_a_copied_program_is_the_program(model):
    """Copying a graph renames placeholders that are named like Python's own functions."""
    program = copy.deepcopy(torch.export.export(model.eval(), (X.clone(),)))
    argument, expected = X.clone(), X.clone()

    result = torchtrt.compile(program, [X.clone()], min_block_size=1)(argument)

    torch.testing.assert_close(result, model(expected))
    assert torch.equal(argument, expected)


@pytest.mark.parametrize(
    "spelling", ["aten_core", "ATEN-Core", "torchtrt-converters-aten-core", "aten core"]
)
def test_a_preferred_pack_is_named_in_any_spelling(spelling):
    """As in the environment variables."""
    compiled = torchtrt.compile(
        torch.nn.ReLU().eval(), [X], converter_preferences={"aten.relu": spelling}, min_block_size=1
    )

    (row,) = compiled.report.converted
    assert row.pack.startswith("aten_core ")


def test_a_misspelt_argument_is_an_error_that_names_the_argument():
    with pytest.raises(SettingsError, match=r"'dynamic_shape'\. Did you mean 'dynamic_shapes'"):
        torchtrt.compile(linear(), [X], dynamic_shape={})


def test_preferring_a_pack_that_is_not_installed_is_an_error_that_names_the_closest():
    """Whether or not the model has the op."""
    with pytest.raises(SettingsError, match=r"'aten_cor'.*Did you mean 'aten_core'"):
        torchtrt.compile(linear(), [X], converter_preferences={"aten.erfinv": "aten_cor"})

    assert CompilationSettings(converter_preferences={"aten.erfinv": "aten_cor"})


@pytest.mark.parametrize("model", ["model.pt2", torch.nn.Linear, lambda x: x], ids=type)
def test_what_is_no_model_is_refused_with_what_is_one(model):
    """A path among them: PyTorch opens files."""
    with pytest.raises(InputError, match=r"torch\.export\.load(.|\n)*not a "):
        torchtrt.compile(model, [X])


@pytest.mark.parametrize("inputs", [[X], [X.to("meta")]], ids=["values", "meta"])
def test_a_model_without_values_is_refused_before_it_is_exported(inputs):
    """It cannot become an engine."""
    with pytest.raises(InputError, match="on the device meta"):
        torchtrt.compile(linear().to("meta"), inputs)


def test_inputs_that_the_model_does_not_take_are_blamed_before_its_code():
    """What fails in PyTorch as well is no matter of exporting."""
    with pytest.raises(ExportError, match="give inputs that the model takes"):
        torchtrt.compile(linear(), [torch.rand(2, 5)])


@pytest.mark.parametrize("again", [torchtrt.compile, torch.export.export])
def test_a_compiled_model_says_how_it_becomes_a_program(again):
    """It is not traced a second time."""
    compiled = torchtrt.compile(linear(), [X], min_block_size=1)
    with pytest.raises(InputError, match=r"torchtrt\.save makes an exported program"):
        again(compiled, (X,))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([(1, 3, 8, 8)], r"None of the inputs is a tensor.*torchtrt\.Input\(\(1, 3, 224, 224\)\)"),
        ([None], "None of the inputs is a tensor"),
        ([np.zeros((2, 2), "f4")], r"torch\.from_numpy"),
        (np.zeros((2, 2), "f4"), "not as an ndarray: write"),
        (torchtrt.Input((2, 2)), "not as an Input: write"),
        ([torchtrt.Input((2, 2), device="nowhere")], "device='nowhere', which PyTorch .* not have"),
    ],
)
def test_inputs_that_are_no_tensors_are_an_error_that_says_what_to_write(inputs, message):
    with pytest.raises(InputError, match=message):
        torchtrt.compile(torch.nn.ReLU().eval(), inputs)


def test_a_dim_that_the_model_does_not_take_leads_to_input():
    """PyTorch's own suggestions are not those that torchtrt understands best."""
    size = torch.export.Dim("n", min=2, max=8)
    model = Function(lambda x: x.reshape(4, 4)).eval()

    with pytest.raises(ExportError, match=r"torchtrt\.Input\(min_shape"):
        torchtrt.compile(model, [torch.rand(4, 4)], dynamic_shapes=(({0: size},),))


def test_loading_weights_into_engines_leads_to_refitting():
    """A compiled model has no weights by the names of the model's."""
    model = linear().eval()
    compiled = torchtrt.compile(model, [X], min_block_size=1)

    with pytest.raises(RuntimeError, match="refit_module_weights"):
        compiled.load_state_dict(model.state_dict())


def test_the_name_of_an_exception_in_the_package_leads_to_its_module():
    """`torchtrt.errors` is the address of all exceptions."""
    with pytest.raises(AttributeError, match=r"It is torchtrt\.errors\.InputError"):
        torchtrt.InputError  # noqa: B018
