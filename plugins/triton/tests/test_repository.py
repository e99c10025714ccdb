"""A repository has what Triton needs of a saved model, and never less than was there."""

import collections
import json
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import (
    MissingOperatorError,
    SettingsError,
    UnreadableFileError,
    UnsupportedProgramError,
    UnwritableFileError,
)
from torchtrt_cli import main
from torchtrt_kernels.operators import PluginKey
from torchtrt_runtime import EngineModule
from torchtrt_triton import ServingOptions, add_model

Pair = collections.namedtuple("Pair", "first second")
ROWS = torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(16, 4))


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Sum(nn.Module):
    """Two inputs."""

    def forward(self, x, y):
        return torch.relu(x + y)


def compiled(model, *inputs, **settings):
    """Returns a model, compiled on the reference."""
    model = model if isinstance(model, nn.Module) else Function(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch runs all of it
        return torchtrt.compile(model.eval(), list(inputs), min_block_size=1, **settings)


def engines_of(made):
    """Returns the engines of a compiled model."""
    return [module for module in made.graph_module.modules() if isinstance(module, EngineModule)]


def saved(path, *arguments, tensorrt=None, **settings):
    """Saves a compiled model whose engines are marked as of another TensorRT."""
    made = compiled(*arguments, **settings)
    for engine in engines_of(made) if tensorrt else ():
        engine.tensorrt, engine.gpu = tensorrt, "NVIDIA H200 (9.0)"
    torchtrt.save(made, path)
    return path


@pytest.fixture(scope="module")
def relu(tmp_path_factory):
    """A saved model of one engine."""
    return saved(tmp_path_factory.mktemp("relu") / "my model.pt2", nn.ReLU(), ROWS)


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """The same, of the real TensorRT."""
    path = tmp_path_factory.mktemp("real") / "relu.pt2"
    return saved(path, nn.ReLU(), ROWS, tensorrt="TensorRT 10.16.1")


CONFIG = """\
# Written by torchtrt triton. Adding a version keeps this file.
backend: "python"
max_batch_size: 16
input [
  {
    name: "input"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
output [
  {
    name: "output_0"
    data_type: TYPE_FP32
    dims: [ 4 ]
  }
]
instance_group [
  {
    count: 1
    kind: KIND_CPU
  }
]
"""


def test_the_configuration_follows_from_the_file(relu, tmp_path):
    """Names, dtypes, sizes and the largest batch. The folder has nothing else."""
    added = add_model(relu, tmp_path / "new" / "repository", "relu")

    assert CONFIG == added.config.read_text()
    assert "python" == added.backend
    assert ["1", "config.pbtxt"] == sorted(path.name for path in added.config.parent.iterdir())
    assert {"model.py", "model.pt2"} == {path.name for path in added.folder.iterdir()}
    assert relu.read_bytes() == (added.folder / "model.pt2").read_bytes()


def test_an_engine_of_tensorrt_needs_no_python(real, tmp_path):
    """Its plan is the whole model."""
    added = add_model(real, tmp_path, options=ServingOptions(dynamic_batching=True))
    text = added.config.read_text()

    assert ("tensorrt", "") == (added.backend, added.needs_python)
    assert 'platform: "tensorrt_plan"\nmax_batch_size: 16\n' in text
    assert "kind: KIND_GPU" in text
    assert "dynamic_batching {\n}" in text
    assert ["model.plan"] == [path.name for path in added.folder.iterdir()]
    (engine,) = engines_of(compiled(nn.ReLU(), ROWS))
    assert len(engine.plan) == (added.folder / "model.plan").stat().st_size
    assert (
        ["input"] == [input_.name for input_ in added.interface.inputs] == [engine.inputs[0].name]
    )
    assert 'name: "input"' in text

    python = add_model(real, tmp_path, "other", options=ServingOptions(backend="python"))
    assert "python" == python.backend
    assert "kind: KIND_GPU" in python.config.read_text()


FROM_2 = torchtrt.Input(min_shape=(2, 4), opt_shape=(4, 4), max_shape=(8, 4))
GAP = torchtrt.Input(ranges=[((1, 4), (1, 4), (2, 4)), ((5, 4), (5, 4), (8, 4))])
NO_GAP = torchtrt.Input(ranges=[((1, 4), (1, 4), (2, 4)), ((3, 4), (5, 4), (8, 4))])
TWO = torchtrt.Input(min_shape=(1, 2), opt_shape=(2, 2), max_shape=(4, 4))
PROFILES = torchtrt.Input(ranges=[((1, 2), (2, 2), (2, 2)), ((2, 4), (4, 4), (4, 4))])


@pytest.mark.parametrize(
    ("model", "inputs", "version", "reason"),
    [
        (nn.ReLU(), [ROWS], "rtx@1.7.1.116", "of rtx@1.7.1.116"),
        (lambda x: (x.relu(), x), [ROWS], "TensorRT 10.16.1", "not return the engine's outputs"),
        (lambda x: {"y": x.relu()}, [ROWS], "TensorRT 10.16.1", "calls y output_0"),
        (lambda x: x + 1, [torch.ones(2, 2).long()], "TensorRT 8.6.0", "64 bits"),
        (lambda x: x.sum(-1), [ROWS], "TensorRT 10.16.1", "no dimension besides the batch"),
        (lambda x: x.sum(), [torch.rand(2, 2)], "TensorRT 10.16.1", "no dimension besides"),
        (nn.ReLU(), [PROFILES], "TensorRT 10.16.1", "several profiles"),
        (lambda x: x.relu() @ x.T, [TWO], "TensorRT 10.16.1", ""),
    ],
)  # fmt: skip
def test_python_is_needed_for_a_reason(tmp_path, model, inputs, version, reason):
    """Where Triton's TensorRT backend would compute or accept something else."""
    path = saved(tmp_path / "model.pt2", model, *inputs, tensorrt=version)

    added = add_model(path, tmp_path / "repository")

    assert reason in added.needs_python
    assert ("python" if added.needs_python else "tensorrt") == added.backend
    if added.needs_python:
        with pytest.raises(SettingsError, match="Use the Python backend"):
            add_model(path, tmp_path / "other", options=ServingOptions(backend="tensorrt"))


@pytest.mark.parametrize("backend", ["tensorrt", "python"])
def test_chosen_gpus_get_the_instances(real, tmp_path, backend):
    """One group for all of them; another version must use the same ones."""
    options = ServingOptions(backend=backend, instances=2, gpus=[0, 2])
    text = add_model(real, tmp_path, "chosen", options=options).config.read_text()
    assert (
        "instance_group [\n  {\n    count: 2\n    kind: KIND_GPU\n    gpus: [ 0, 2 ]\n  }\n]\n"
        in text
    )
    text = add_model(
        real, tmp_path, "one", options=ServingOptions(backend=backend, gpus=[1])
    ).config.read_text()
    assert "count: 1\n    kind: KIND_GPU\n    gpus: [ 1 ]" in text
    with pytest.raises(
        UnwritableFileError, match=r"exists without this option(.|\n)*gpus: \[ 3 \]"
    ):
        add_model(real, tmp_path, "one", options=ServingOptions(backend=backend, gpus=[3]))


def test_a_kernel_of_a_pack_needs_python(tmp_path):
    """Its plugin is Python, of which the TensorRT backend has none."""
    made = compiled(nn.ReLU(), ROWS)
    (engine,) = engines_of(made)
    engine.tensorrt, engine.gpu = "TensorRT 10.16.1", "NVIDIA H200 (9.0)"
    engine.plugins = (PluginKey("kernels", "kernels::relu", "1"),)
    torchtrt.save(made, tmp_path / "model.pt2")

    added = add_model(tmp_path / "model.pt2", tmp_path / "repository")

    assert "python" == added.backend
    assert "runs the op kernels::relu by a plugin of the pack kernels" in added.needs_python

    engine.plugins = (PluginKey("kernels", "kernels::relu", "1", kernel="relu"),)
    torchtrt.save(made, tmp_path / "compiled.pt2")
    added = add_model(tmp_path / "compiled.pt2", tmp_path / "repository")
    assert ("tensorrt", "") == (added.backend, added.needs_python)


def test_engines_without_weights_are_refused(tmp_path):
    """No backend has weights for them."""
    torchtrt.save(
        compiled(nn.Linear(4, 4), ROWS, strip_engine_weights=True), tmp_path / "model.pt2"
    )
    with pytest.raises(SettingsError, match="has no weights for its engines"):
        add_model(tmp_path / "model.pt2", tmp_path / "repository")
    assert not (tmp_path / "repository").exists()


def test_equal_sizes_of_two_inputs_need_python(tmp_path):
    """TensorRT would broadcast a size of 1."""
    wide = torchtrt.Input(min_shape=(3, 1), opt_shape=(3, 4), max_shape=(3, 8))
    path = saved(tmp_path / "model.pt2", Sum(), wide, wide, tensorrt="TensorRT 10.16.1")

    added = add_model(path, tmp_path)

    assert "a size of y follows from another size" == added.needs_python


@pytest.mark.parametrize(
    ("function", "inputs", "batch", "reason"),
    [
        (torch.relu, [ROWS], 16, ""),
        (lambda x: x.sum(1), [ROWS], 16, ""),
        (torch.relu, [torch.rand(2, 4)], 0, "the first size of x is 2"),
        (lambda x: x.sum(0), [ROWS], 0, "the first size of output_0 is not that of x"),
        (lambda x: torch.cat([x, x]), [ROWS], 0, "the first size of output_0 is not"),
        (lambda x: x @ x.T, [ROWS], 0, "another size of output_0 depends on the first"),
        (lambda x: (x, x.shape[0]), [ROWS], 0, "output_1 is a number"),
        (lambda x: x.sum(), [ROWS], 0, "output_0 has no dimensions"),
        (torch.relu, [FROM_2], 0, "no first size of 1"),
        (torch.relu, [GAP], 0, "no first size of 3"),
        (torch.relu, [NO_GAP], 8, ""),
    ],
)  # fmt: skip
def test_a_batch_is_the_first_size_of_everything(tmp_path, function, inputs, batch, reason):
    """And each number of rows up to the largest is accepted."""
    path = saved(tmp_path / "model.pt2", function, *inputs)

    interface = add_model(path, tmp_path / "repository").interface

    assert batch == interface.max_batch_size
    assert reason in interface.unbatched
    assert bool(reason) == bool(interface.unbatched)
    if reason:
        with pytest.raises(SettingsError, match="Triton cannot batch requests"):
            add_model(path, tmp_path, options=ServingOptions(dynamic_batching=True))
        assert {"model.pt2", "repository"} == {path.name for path in tmp_path.iterdir()}


class Counter(nn.Module):
    """A model that stores its last input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x):
        self.last.copy_(x[0])
        return x + 1


def test_a_model_that_remembers_has_no_batch(tmp_path):
    """Requests that run together would count as one call."""
    path = saved(tmp_path / "model.pt2", Counter(), ROWS)

    interface = add_model(path, tmp_path / "repository").interface

    assert 0 == interface.max_batch_size
    assert "the model writes to last" in interface.unbatched


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x + 1, ["output_0"]),
        (lambda x: [x + 1, None, x * 2], ["output_0", "output_1"]),
        (lambda x: {"a b": x + 1, "a_b": x * 2, 3: x * 3}, ["a_b", "a_b_2", "output_2"]),
        (lambda x: Pair(x + 1, {"inner": (x, x * 2)}), ["first", "second_inner_0", "second_inner_1"]),
        (lambda x: {"ä/ö": x + 1, "": x * 2, "1x": x * 3}, ["___", "output_1", "output_1x"]),
    ],
)  # fmt: skip
def test_outputs_have_the_names_of_their_containers(tmp_path, function, names):
    """With the characters of Python's names, each once."""
    path = saved(tmp_path / "model.pt2", function, torch.rand(2, 4))

    output_names = [
        output.name for output in add_model(path, tmp_path / "repository").interface.outputs
    ]

    assert len({*output_names}) == len(output_names)
    if "___" in names:
        assert all(name.isidentifier() and name.isascii() for name in output_names)
    else:
        assert names == output_names


@pytest.mark.parametrize(
    ("function", "example", "message"),
    [
        (lambda x: torch.fft.fft(x), torch.rand(4), "output_0.*complex64.*view_as_real"),
        (lambda x: x.real + 1, torch.rand(4, dtype=torch.complex64), "input.*complex64"),
        (lambda x: x.to(torch.float8_e4m3fn), torch.rand(4), "float8_e4m3fn"),
        (lambda x: None, torch.rand(4), "no tensor as an output"),
    ],
)
def test_a_model_that_triton_cannot_describe_is_refused(tmp_path, function, example, message):
    """And the repository is left alone."""
    path = saved(tmp_path / "model.pt2", function, example)

    with pytest.raises(UnsupportedProgramError, match=message):
        add_model(path, tmp_path / "repository")

    assert not (tmp_path / "repository").exists()


def test_a_new_version_keeps_the_configuration(relu, tmp_path):
    """The next number, or the one that is asked for."""
    first = add_model(relu, tmp_path, "relu")
    first.config.write_text(first.config.read_text() + "version_policy { all {} }\n")
    text = first.config.read_text()

    assert "2" == add_model(relu, tmp_path, "relu").folder.name
    assert "7" == add_model(relu, tmp_path, "relu", version=7).folder.name
    assert "8" == add_model(relu, tmp_path, "relu").folder.name
    assert text == first.config.read_text()
    with pytest.raises(UnwritableFileError, match="a version 7 already"):
        add_model(relu, tmp_path, "relu", version=7)
    names = sorted(path.name for path in (tmp_path / "relu").iterdir())
    assert ["1", "2", "7", "8", "config.pbtxt"] == names


def test_an_option_that_the_configuration_lacks_is_not_ignored(relu, tmp_path):
    """The same command adds version after version; another option does not pass unseen."""
    options = ServingOptions(instances=2, dynamic_batching=True)
    add_model(relu, tmp_path, "relu", options=options)
    add_model(relu, tmp_path, "relu", options=options)

    with pytest.raises(UnwritableFileError, match=r"(?s)exists without this option.*count: 3"):
        add_model(relu, tmp_path, "relu", options=ServingOptions(instances=3))


def test_the_refusal_of_another_model_shows_what_differs(relu, tmp_path):
    """The largest batch among it, which is not indented; not the options, which the model does not have."""
    more = torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(77, 4))
    other = saved(tmp_path / "other.pt2", nn.ReLU(), more)
    options = ServingOptions(instances=2, dynamic_batching=True)
    first = add_model(relu, tmp_path, "relu", options=options).interface.max_batch_size

    with pytest.raises(UnwritableFileError) as raised:
        add_model(other, tmp_path, "relu", options=options)

    _, *changes = str(raised.value).splitlines()
    assert [f"- max_batch_size: {first}", "+ max_batch_size: 77"] == changes


def test_another_model_of_the_name_is_left_alone(relu, tmp_path):
    """Whether torchtrt wrote it or not."""
    other = saved(tmp_path / "other.pt2", lambda x: x.relu().double(), ROWS)
    repository = tmp_path / "repository"
    add_model(relu, repository, "relu")
    (repository / "foreign").mkdir()
    (repository / "foreign" / "notes.txt").write_text("mine")
    (repository / "file").write_text("mine")
    (repository / "theirs").mkdir()
    (repository / "theirs" / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    before = sorted(map(str, repository.rglob("*")))

    with pytest.raises(UnwritableFileError, match=r"(?s)other inputs.*\+ .*TYPE_FP64"):
        add_model(other, repository, "relu")
    for name in ("foreign", "file"):
        with pytest.raises(UnwritableFileError, match="torchtrt did not write it"):
            add_model(relu, repository, name)
    with pytest.raises(UnwritableFileError, match="another backend"):
        add_model(relu, repository, "theirs")
    with pytest.raises(UnwritableFileError, match="folder of a model"):
        add_model(relu, repository / "relu", "relu")
    with pytest.raises(UnwritableFileError, match="is no path"):
        add_model(relu, Path(f"{repository}\0"), "relu")
    assert before == sorted(map(str, repository.rglob("*")))


def test_a_failed_write_leaves_nothing(relu, tmp_path):
    """As when the disk is full: here files of this process may have a hundred bytes."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(UnwritableFileError, match="File too large"):
            add_model(relu, tmp_path, "relu")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert [] == list(tmp_path.iterdir())
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UnwritableFileError, match="cannot be written"):
        add_model(relu, tmp_path / "taken", "relu")


@pytest.mark.parametrize(
    ("name", "version", "options", "message"),
    [
        (None, None, {}, "such as 'my_model'"),
        ("../up", None, {}, "such as 'up'"),
        ("a", 0, {}, "1 or more, not 0"),
        ("a", None, {"backend": "onnx"}, "no backend 'onnx'"),
        ("a", None, {"instances": 0}, "1 or more instances"),
        ("a", None, {"gpus": []}, "one number or several different ones"),
        ("a", None, {"gpus": [1, 1]}, "one number or several different ones"),
        ("a", None, {"gpus": [-1]}, "one number or several different ones"),
        ("a", None, {"gpus": [0]}, "has engines that run on the CPU"),
        ("a", None, {"max_queue_delay": 5}, "needs dynamic batching"),
        ("a", None, {"max_queue_delay": -1, "dynamic_batching": True}, "0 or more microseconds"),
        ("a", None, {"imports": ["os; import sys"]}, "no name of a module"),
    ],
)
def test_unusable_arguments_are_refused(relu, tmp_path, name, version, options, message):
    """With what to do."""
    with pytest.raises(SettingsError, match=message):
        add_model(relu, tmp_path, name, version=version, options=ServingOptions(**options))

    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_no_saved_model_is_refused(tmp_path):
    """An exported program among them."""
    (tmp_path / "text.pt2").write_text("text")
    program = torch.export.export(nn.ReLU(), (torch.rand(2),))
    torch.export.save(program, tmp_path / "program.pt2")

    with pytest.raises(UnreadableFileError, match="not a saved model"):
        add_model(tmp_path / "text.pt2", tmp_path)
    with pytest.raises(UnreadableFileError, match="Compile it"):
        add_model(tmp_path / "program.pt2", tmp_path)
    with pytest.raises(UnreadableFileError, match="no file"):
        add_model(tmp_path / "nothing.pt2", tmp_path)


def test_libraries_that_a_model_needs_are_imported_by_the_server_too(relu, tmp_path):
    """They register its operators, or have its containers."""
    options = ServingOptions(imports=["xml.dom", "colorsys"])

    text = (add_model(relu, tmp_path, "relu", options=options).folder / "model.py").read_text()

    assert "\nimport xml.dom\nimport colorsys\nimport torchtrt\n" in text
    compile(text, "model.py", "exec")


def test_a_missing_operator_is_named(tmp_path):
    """Its library is to be imported."""
    with torch.library._scoped_library("torchtrt_test_triton", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        path = saved(
            tmp_path / "m.pt2", lambda x: torch.ops.torchtrt_test_triton.twice(x), torch.rand(2)
        )
    torch.ops.__dict__.pop("torchtrt_test_triton", None)

    with pytest.raises(MissingOperatorError, match=r"torchtrt_test_triton\.twice"):
        add_model(path, tmp_path)


def test_the_command_adds_a_model(relu, tmp_path, capsys):
    """It prints what clients see, and why Python is needed."""
    repository = str(tmp_path / "repository")
    assert 0 == main(["triton", str(relu), repository, "--name", "relu", "--dynamic-batching"])
    text = capsys.readouterr().out
    assert "input input: TYPE_FP32 [4]" in text
    assert "A request has 1 to 16 rows." in text
    assert "Python backend runs it, because the engine is of reference@" in text

    flags = ["--name", "relu", "--version", "5", "--import", "colorsys", "--json"]
    assert 0 == main(["triton", str(relu), repository, *flags])
    answer = json.loads(capsys.readouterr().out)
    assert answer["folder"].endswith("/relu/5")
    assert 16 == answer["max_batch_size"]
    assert 2 == main(["triton", str(relu), repository])
    assert "such as 'my_model'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config.pbtxt", "a" * 256])
def test_a_name_that_no_folder_can_have_is_refused(name, tmp_path):
    """A folder of the configuration's name would turn the repository into a model."""
    with pytest.raises(SettingsError, match="cannot be the name of a model"):
        add_model(tmp_path / "model.pt2", tmp_path / "repository", name)
