"""Scripted and traced models from end to end, on every TensorRT."""

import importlib.util
import io
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import torchtrt
import torchtrt_torchscript as torchscript
from docs.demo.models import ResNet18
from tests.support.processes import run_python
from torchtrt.errors import ExportError, FullCompilationError, InputError
from torchtrt_torchscript import _frontend
from torchtrt_torchscript.node_evaluators import RaisedError

from .helpers import assert_same, quiet, script

BATCH = torch.export.Dim("batch", min=1, max=4)


class Encoder(nn.Module):
    """A BERT-style encoder layer over embedded tokens."""

    def __init__(self, width: int = 16, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.tokens, self.positions = nn.Embedding(30, width), nn.Embedding(16, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Maps int64 tokens and a mask ``(N, L)`` to ``(N, L, width)``."""
        batch, length = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(length))
        parts = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) / parts.shape[-1] ** 0.5
        hidden = mask[:, None, None, :] == 0
        attended = scores.masked_fill(hidden, -1e9).softmax(-1) @ parts[2]
        attended = attended.transpose(1, 2).reshape(batch, length, -1)
        x = self.norm1(x + self.dropout(self.out(attended)))
        return self.norm2(x + self.dropout(self.down(functional.gelu(self.up(x)))))


def tokens(batch, length):
    """Returns tokens and a mask."""
    torch.manual_seed(batch)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 :] = 0
    return torch.randint(0, 30, (batch, length)), mask


def test_a_traced_resnet_takes_batches_of_every_size(version):
    """A trace, compiled whole; its weights keep their names."""
    torch.manual_seed(0)
    model = ResNet18(classes=10).eval()
    traced = quiet(torch.jit.trace, model, torch.randn(2, 3, 32, 32))

    shapes = [
        torchtrt.Input(min_shape=(1, 3, 32, 32), opt_shape=(2, 3, 32, 32), max_shape=(4, 3, 32, 32))
    ]
    compiled = torchscript.compile(traced, shapes, require_full_compilation=True)

    for batch in (1, 2, 4):
        assert_same(compiled, model, torch.randn(batch, 3, 32, 32))


def test_a_scripted_encoder_takes_sequences_of_every_length(version):
    """Sizes that the code reads stay symbolic."""
    torch.manual_seed(0)
    model = Encoder().eval()
    length = torch.export.Dim("length", min=2, max=16)

    compiled = torchscript.compile(
        script(model),
        tokens(2, 8),
        dynamic_shapes=({0: BATCH, 1: length}, {0: BATCH, 1: length}),
        require_full_compilation=True,
    )

    for batch, size in ((1, 2), (2, 8), (4, 16)):
        assert_same(compiled, model, *tokens(batch, size))


class Recurrent(nn.Module):
    """An LSTM over a sequence, and its last states."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 6, num_layers=2, bidirectional=True)

    def forward(self, sequence: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps ``(L, N, 5)`` to the outputs and the last states."""
        outputs, (hidden, memory) = self.lstm(sequence)
        return outputs, hidden, memory


def test_a_scripted_lstm_stays_whole(version):
    """It is one op, converted as a loop over sequences of every length."""
    torch.manual_seed(0)
    model = Recurrent().eval()
    length = torch.export.Dim("length", min=1, max=9)

    compiled = torchscript.compile(
        script(model),
        (torch.randn(4, 2, 5),),
        dynamic_shapes=({0: length, 1: BATCH},),
        require_full_compilation=True,
    )

    for size, batch in ((1, 1), (4, 2), (9, 4)):
        assert_same(compiled, model, torch.randn(size, batch, 5))


class Controlled(nn.Module):
    """Loops and branches: known when compiled, by size, and by data."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor, rounds: int = 2) -> Tensor:
        """Doubles x until its sum is 50 or it has been done five times, and so on."""
        for index in range(rounds):
            if index % 2 == 0:  # noqa: SIM108
                x = x + index
            else:
                x = x * self.scale
        if bool(x.sum() > 4):
            x = torch.sin(x) + self.scale
        else:
            if bool(x.max() > 1):  # noqa: SIM108
                x = x.exp()
            else:
                x = x - 1
        count = 0
        while bool(x.sum() < 50) and count < 5:
            x = x * 2 + self.scale
            count += 1
        return x


def test_control_flow_that_depends_on_data_runs_in_the_engine(version):
    """Every way through the model gives PyTorch's values, from one engine."""
    model = script(Controlled().eval())

    compiled = torchscript.compile(
        model, (torch.ones(2, 3),), dynamic_shapes=({0: BATCH},), require_full_compilation=True
    )

    for value in (-3.0, -0.2, 0.1, 1.0, 30.0):
        for batch in (1, 2, 4):
            assert_same(compiled, model, torch.full((batch, 3), value))


class Nested(nn.Module):
    """Lists and dictionaries of tensors, in and out."""

    def forward(self, features: dict[str, Tensor], extra: list[Tensor]) -> dict[str, Tensor]:
        """Adds what is in the list to what is in the dictionary."""
        result: dict[str, Tensor] = {}
        for name, feature in features.items():
            total = feature
            for tensor in extra:
                total = total + tensor
            result[name + "_sum"] = total
        parts = [value.mean(dim=1) for value in result.values()]
        result["all"] = torch.stack(parts)
        return result


def test_lists_and_dictionaries_of_tensors_go_in_and_come_out(version):
    """They nest as the model's do."""
    model = script(Nested().eval())
    inputs = ({"a": torch.randn(2, 3), "b": torch.randn(2, 3)}, [torch.randn(2, 3), torch.ones(3)])

    compiled = torchscript.compile(model, inputs, require_full_compilation=True)

    assert_same(compiled, model, *inputs)


def silero():
    """Returns the file of a published model of voice activity, with its weights."""
    spec = importlib.util.find_spec("silero_vad")
    if spec is None:
        pytest.skip("needs the package silero-vad")
    return Path(spec.submodule_search_locations[0]) / "data" / "silero_vad.jit"


def test_a_published_model_runs_over_a_recording(version):
    """Silero VAD: its states go from window to window, and the probabilities are PyTorch's."""
    model = quiet(torch.jit.load, silero()).eval()._model
    compiled = torchscript.compile(
        model,
        (torch.randn(2, 576), torch.zeros(2, 2, 128)),
        dynamic_shapes=({0: BATCH}, {1: BATCH}),
        require_full_compilation=True,
    )
    time = torch.arange(16000) / 16000
    voice = torch.sin(6.28 * 140 * time) * (1 + torch.sin(6.28 * 4 * time)) * (time > 0.3)
    torch.manual_seed(0)
    recording = 0.3 * voice + 0.01 * torch.randn(16000)

    ours = theirs = torch.zeros(2, 1, 128)
    for start in range(0, 16000 - 576, 512):
        window = recording[None, start : start + 576]
        actual, ours = compiled(window, ours)
        expected, theirs = model(window, theirs)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_model_that_keeps_state_is_refused_with_what_to_do():
    """The published model as a whole stores its state in attributes."""
    model = quiet(torch.jit.load, silero()).eval()

    with pytest.raises(InputError, match="stores a tensor in its attribute '_context'") as caught:
        torchscript.compile(model, (torch.randn(1, 512), 16000))

    assert "compile the submodule" in str(caught.value)


# What stays in PyTorch, and what cannot be


def test_an_op_without_converter_runs_in_pytorch_between_engines():
    """The report has the model's line in its reason when nothing may stay in PyTorch."""

    def model(x):
        y = torch.tanh(torch.relu(x) * 0.3)
        y = torch.igamma(y + 2, y + 3)
        return torch.sigmoid(torch.relu(y)) + x

    scripted = script(model)
    x = torch.randn(2, 3)

    compiled = torchscript.compile(scripted, (x,), min_block_size=1)

    assert_same(compiled, model, x)
    assert ["aten.igamma.default"] == [entry.op for entry in compiled.report.in_torch]
    with pytest.raises(FullCompilationError, match="igamma") as caught:
        torchscript.compile(scripted, (x,), require_full_compilation=True)
    assert "y = torch.igamma(y + 2, y + 3)" in str(caught.value)


def test_everything_without_evaluator_is_in_one_error():
    """Each schema once, with the lines of the model that use it."""

    def model(x: Tensor) -> Tensor:
        numbers: list[float] = x[0].tolist()
        first, _ = {"first": 1.0}.popitem()
        second, _ = {"second": 1.0}.popitem()
        return x * numbers[0] * len(first) * len(second)

    with pytest.raises(ExportError, match="no evaluator for what the model uses") as caught:
        torchscript.compile(script(model), (torch.rand(2, 3),))

    text = str(caught.value)
    assert (1, 1) == (text.count("prim::tolist"), text.count("aten::popitem"))
    assert all(f'{{"{name}": 1.0}}.popitem()' in text for name in ("first", "second"))


def test_a_check_of_data_is_taken_to_hold():
    """A branch that only raises is not compiled."""

    def model(x: Tensor) -> Tensor:
        if bool((x < 0).any()):
            raise ValueError("negative")
        return x.sqrt()

    x = torch.rand(2, 3)
    compiled = torchscript.compile(script(model), (x,), require_full_compilation=True)

    assert_same(compiled, model, x)


def test_a_check_that_fails_for_the_given_inputs_is_an_error():
    """The model's own message is shown."""

    def model(x: Tensor) -> Tensor:
        if x.dim() != 3:
            raise ValueError("expected three dimensions")
        return x.sqrt()

    with pytest.raises(RaisedError, match="expected three dimensions"):
        torchscript.compile(script(model), (torch.rand(2, 3),))


def test_a_branch_that_makes_a_list_is_an_error_with_its_line():
    """What depends on data is a tensor or a number."""

    def model(x: Tensor) -> Tensor:
        parts = [x]
        if bool(x.sum() > 0):
            parts.append(x * 2)
        return torch.cat(parts)

    with pytest.raises(ExportError, match="changes a list") as caught:
        torchscript.compile(script(model), (torch.rand(2, 3),))
    assert "parts.append(x * 2)" in str(caught.value)


def test_a_condition_on_sizes_is_decided_when_the_engine_runs(version):
    """Where it is not the same for all sizes it becomes a branch of the engine."""

    def model(x: Tensor) -> Tensor:
        if x.size(0) > 2:
            return x.sum(0) * 2
        return x.sum(0) - 1

    shapes = ({0: torch.export.Dim("batch", min=2, max=5)},)
    compiled = torchscript.compile(
        script(model), (torch.rand(2, 3),), dynamic_shapes=shapes, require_full_compilation=True
    )

    for batch in (2, 3, 5):
        assert_same(compiled, model, torch.rand(batch, 3))


def test_only_torchscript_is_compiled_here():
    """A module is for torchtrt.compile; a method must exist."""
    with pytest.raises(InputError, match=r"torchtrt\.compile takes modules"):
        torchscript.compile(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(InputError, match="has no method 'encode'"):
        torchscript.compile(script(nn.Linear(2, 2).eval()), (torch.ones(1, 2),), method="encode")


class TwoMethods(nn.Module):
    """Has a method besides forward."""

    @torch.jit.export
    def encode(self, x: Tensor, factor: float = 2.0) -> Tensor:
        """Another method, with a default."""
        return x.tanh() * factor

    def forward(self, x: Tensor) -> Tensor:
        """Not what is compiled."""
        return x


def test_any_method_can_be_compiled_from_a_file(tmp_path):
    """Defaults of the method are taken; keyword inputs work."""
    path, x = tmp_path / "model.pt", torch.randn(2, 3)
    quiet(torch.jit.save, script(TwoMethods().eval()), path)

    compiled = torchscript.compile(path, (x,), method="encode", require_full_compilation=True)
    named = torchscript.compile(path, kwarg_inputs={"x": x}, method="encode", min_block_size=1)

    torch.testing.assert_close(compiled(x), x.tanh() * 2)
    torch.testing.assert_close(named(x=x), x.tanh() * 2)


def test_compiled_torchscript_can_be_saved_and_loaded():
    """As every compiled module can."""
    model = script(nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval())
    x = torch.randn(2, 3)
    buffer = io.BytesIO()

    quiet(torch.save, torchscript.compile(model, (x,), min_block_size=1), buffer)
    buffer.seek(0)
    loaded = quiet(lambda: torch.load(buffer, weights_only=False))

    assert_same(loaded, model, x)


PROGRAM = """
import sys
import torch
import torchtrt_torchscript as torchscript

path = sys.argv[1]
assert torchscript.check_method_op_support(path)
compiled = torchscript.compile(path, (torch.ones(2, 3),), min_block_size=1)
with open(path, "rb") as file:
    torchscript.export(file, (torch.ones(2, 3),))
print(compiled(torch.ones(2, 3)).shape)
"""


def test_compiling_torchscript_prints_no_deprecations(tmp_path):
    """PyTorch's notes about TorchScript stay out of the user's terminal, and raise nothing where warnings do."""
    path = tmp_path / "model.pt"
    quiet(torch.jit.save, script(Controlled().eval()), path)
    command = ["-W", "error", "-c", PROGRAM, str(path)]

    done = run_python(*command)

    assert ("torch.Size([2, 3])\n", "") == (done.stdout, done.stderr)


@pytest.mark.parametrize("is_traced", [True, False])
def test_weights_of_a_scripted_model_are_watched(is_traced):
    """Its modules keep them in PyTorch's own containers."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, 8)
    scripted = quiet(torch.jit.trace, model, x) if is_traced else script(model)
    compiled = torchtrt.compile(scripted, [x], require_full_compilation=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        dict(scripted.named_parameters())["0.weight"].add_(1)
    with pytest.raises(torchtrt.errors.EngineError, match="has changed since"):
        compiled(x)


class Scaled(nn.Module):
    """A model with a default."""

    def forward(self, x: Tensor, scale: float = 2.0) -> Tensor:
        """Returns a tensor of the shape of ``x``."""
        return torch.relu(x) * scale


def test_a_compiled_scripted_model_takes_its_arguments_as_the_scripted_one_does():
    """By place, by name, and with defaults; what is compiled in has its name in the error."""
    model, x = Scaled(), torch.randn(2, 3)
    compiled = torchtrt.compile(script(model), [x], require_full_compilation=True)

    for result in (compiled(x), compiled(x=x), compiled(x, 2.0), compiled(x, scale=2.0)):
        torch.testing.assert_close(result, model(x))
    with pytest.raises(InputError, match="'scale' was not given when the model was compiled"):
        compiled(x, 3.0)


def test_a_front_end_is_asked_once_whether_it_takes_a_model(monkeypatch):
    """The answer may take it a look at the whole model."""
    asked, accepts = [], _frontend.accepts
    monkeypatch.setattr(_frontend, "accepts", lambda model: asked.append(model) or accepts(model))
    scripted = script(Scaled())
    for model in (scripted, Scaled().eval()):
        torchtrt.compile(model, [torch.rand(2)], dryrun=True)
        assert 1 == sum(candidate is model for candidate in asked)
