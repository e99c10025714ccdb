"""``torchtrt.profile``: where the time of a call goes."""

from __future__ import annotations

import json

import pytest
import torch

import torchtrt
from torchtrt.errors import InputError
from torchtrt_cli import main
from torchtrt_compiler.trial_calls import example_leaves
from torchtrt_runtime.modules.execution import Executor

VERSIONS = ("8.6.0", "10.16.1", "11.4.0")


class Counting(torch.nn.Module):
    """Two engines with an op in PyTorch between them, and a buffer that each call writes to."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, scale=None):
        """Returns a number for each row."""
        self.calls.add_(1)
        x = torch.relu(self.linear(x["rows"]))
        values = torch.linalg.svdvals(x)
        return torch.softmax(x if scale is None else x * scale, -1) + values.sum()


@pytest.fixture(params=VERSIONS)
def compiled(request):
    """The model, for each version of the reference."""
    with torchtrt.use_tensorrt(f"reference@{request.param}"):
        inputs = ({"rows": torch.rand(4, 6)},)
        keywords = {"scale": torch.ones(6)}
        return torchtrt.compile(Counting().eval(), inputs, kwarg_inputs=keywords, min_block_size=1)


def test_every_layer_and_every_op_in_pytorch_is_there(compiled):
    """With the engine that runs it and the nodes that it computes; the slowest first."""
    profile = torchtrt.profile(compiled, {"rows": torch.rand(4, 6)}, scale=torch.ones(6), calls=3)

    engines = {entry.runs_in for entry in profile.entries}
    nodes = {node for entry in profile.entries for node in entry.nodes}
    times = [entry.milliseconds for entry in profile.entries]
    assert {"block_0", "block_1", "PyTorch"} == engines
    assert {"linear", "relu", "softmax", "linalg_svdvals"} <= nodes
    assert sorted(times, reverse=True) == times
    assert min(times) >= 0 < profile.milliseconds
    assert (3, "cpu", compiled.report.tensorrt) == (profile.calls, profile.device, profile.tensorrt)
    in_torch = {entry.name for entry in profile.entries if entry.kind == "op"}
    assert {entry.op for entry in compiled.report.in_torch} <= in_torch
    json.dumps(profile.to_json())


def test_nothing_has_changed(compiled):
    """Buffers and inputs are as before, and the next call goes on from there."""
    rows = torch.rand(4, 6)
    before = rows.clone()
    compiled({"rows": rows}, scale=torch.ones(6))
    held = {name: value.clone() for name, value in compiled.graph_module.named_buffers()}

    torchtrt.profile(compiled, {"rows": rows}, scale=torch.ones(6), calls=2)

    assert torch.equal(before, rows)
    assert {"calls"} <= set(held)
    for name, value in compiled.graph_module.named_buffers():
        assert torch.equal(held[name], value), name


def test_every_call_starts_from_the_same_state():
    """A step over a cache is one step, however many calls are measured: no call runs out of the cache."""

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 4, 2))
            self.register_buffer("at", torch.tensor([0]))

        def forward(self, x, row):
            self.keys.index_copy_(1, self.at, x[:, row])
            self.at.add_(1)
            row.add_(1)
            return self.keys.sum(1)

    model, inputs = Step().eval(), (torch.rand(1, 3, 2), torch.tensor([0]))
    compiled = torchtrt.compile(model, inputs, min_block_size=1, torch_executed_ops={"aten.index"})

    assert torchtrt.profile(compiled, *inputs, calls=5).calls == 5
    assert (model.at.item(), model.keys.count_nonzero().item(), inputs[1].item()) == (0, 0, 0)


def test_a_whole_call_runs_as_any_other(compiled):
    """With Inductor and CUDA graphs where the model has them; only the parts are looked at without."""
    runs = []

    class Noting(Executor):
        def __call__(self, graph_module, inputs):
            runs.append(inputs)
            return super().__call__(graph_module, inputs)

    compiled.executor = Noting()
    assert not torchtrt.profile(compiled, calls=2).has_inductor
    assert len(runs) > 2


def test_ops_that_inductor_compiles_are_told(tmp_path, capsys):
    """They are measured one by one, and a call takes less than their sum."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    compiled = torchtrt.compile(
        model, [torch.rand(2, 4)], min_block_size=1, torch_executed_ops={"aten.relu"}, inductor=True
    )
    assert torchtrt.profile(compiled, calls=1).has_inductor
    torchtrt.save(compiled, tmp_path / "model.pt2")
    assert main(["profile", str(tmp_path / "model.pt2"), "--calls", "1"]) == 0
    assert "Inductor compiles what runs in PyTorch" in capsys.readouterr().out


def test_inputs_are_made_where_none_are_given():
    """Of the sizes that engines are optimized for."""
    sizes = torchtrt.Input(min_shape=(1, 6), opt_shape=(5, 6), max_shape=(8, 6))
    model = torchtrt.compile(
        torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh()).eval(),
        (sizes,),
        min_block_size=1,
    )

    (leaf,) = example_leaves(model)

    assert ((5, 6), torch.float32) == (tuple(leaf.shape), leaf.dtype)
    assert torchtrt.profile(model, calls=1).entries


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.nn.ReLU(), torch.rand(2)), "compile it first"),
        ((None, torch.rand(3, 7)), "input 'x'|dimension"),
    ],
)
def test_what_cannot_be_profiled_says_so(arguments, message):
    """A model that was not compiled, inputs that do not fit, no calls at all."""
    compiled = torchtrt.compile(torch.nn.Linear(6, 6).eval(), (torch.rand(2, 6),), min_block_size=1)
    model, *inputs = arguments

    with pytest.raises(InputError, match=message):
        torchtrt.profile(model or compiled, *inputs)
    for calls in (0, True, 1.5):
        with pytest.raises(InputError, match="at least one call"):
            torchtrt.profile(compiled, torch.rand(2, 6), calls=calls)


def test_a_program_and_a_saved_model_from_the_command_line(tmp_path, capsys):
    """A program is compiled with the settings that are given, and its lines are shown."""
    exported = torch.export.export(Counting().eval(), ({"rows": torch.rand(4, 6)},))
    program, saved = tmp_path / "program.pt2", tmp_path / "saved.pt2"
    torch.export.save(exported, program)
    torchtrt.save(torchtrt.compile(exported, min_block_size=1), saved)

    assert 0 == main(
        ["profile", str(program), "--set", "min_block_size=1", "--calls", "2", "--json"]
    )
    data = json.loads(capsys.readouterr().out)
    assert 0 == main(["profile", str(saved), "--calls", "2"])
    text = capsys.readouterr().out

    (relu,) = (entry for entry in data["entries"] if entry["nodes"] == ["relu"])
    assert any("torch.relu(self.linear" in line for line in relu["lines"])
    assert "aten.linalg_svdvals.default" in text
    assert "median of 2" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.pt2"], "no file"),
        (["{program}", "--set", "autocast"], "NAME=VALUE"),
        (["{program}", "--set", "autokast=float16"], "autocast"),
        (["{program}", "--set", "min_block_size=1", "--calls", "0"], "at least one call"),
        (["{saved}", "--set", "min_block_size=1"], "holds engines already"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, capsys, arguments, message):
    """Each is a sentence and status 2."""
    exported = torch.export.export(torch.nn.Linear(6, 6).eval(), (torch.rand(2, 6),))
    files = {"program": tmp_path / "program.pt2", "saved": tmp_path / "saved.pt2"}
    torch.export.save(exported, files["program"])
    torchtrt.save(torchtrt.compile(exported, min_block_size=1), files["saved"])

    assert 2 == main(["profile", *(argument.format(**files) for argument in arguments)])

    assert message in capsys.readouterr().err
