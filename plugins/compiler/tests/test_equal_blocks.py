"""Equal blocks are one engine, which is built once, saved once and called several times."""

import copy
import io

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import assert_same, engines_of
from torchtrt_runtime.serialization.archive import Archive
from torchtrt_runtime.serialization.inspection import inspect_file
from torchtrt_testing.faults import watched_tensorrt

X = torch.linspace(-1, 2, 24).reshape(3, 8)
VARYING = torchtrt.Input(min_shape=(1, 8), opt_shape=(3, 8), max_shape=(6, 8))


class Tied(nn.Module):
    """One layer, called three times, with a step that stays in PyTorch between."""

    def __init__(self, size=8):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size))

    def forward(self, x):
        for _ in range(3):
            x = self.layer(x).erfinv().nan_to_num(0.5, 2, -2)
        return x + 1


def compiled_for(model, *inputs, **settings):
    """Returns a model compiled with engines of any number of ops."""
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.erfinv"}, **settings}
    return torchtrt.compile(model.eval(), list(inputs), **settings)


@pytest.fixture
def built():
    """The builds of engines."""
    with watched_tensorrt() as tensorrt:
        yield tensorrt.builds


@pytest.mark.parametrize("layer_calls", [X, VARYING], ids=["fixed", "varying"])
def test_a_layer_that_is_called_again_is_one_engine(layer_calls, built):
    """The blocks between the calls differ from the first and the last one."""
    model = Tied()
    compiled = compiled_for(model, layer_calls)

    assert_same(compiled, model, X)
    calls = [(block.name, block.calls) for block in compiled.report.blocks]
    assert calls == [("block_0", 1), ("block_1", 2), ("block_2", 1)]
    assert len(built) == len(engines_of(compiled)) == 3
    targets = [str(n.target) for n in compiled.graph_module.graph.find_nodes(op="call_module")]
    assert targets == ["block_0", "block_1", "block_1", "block_2"]


def test_a_dry_run_counts_the_same_engines():
    """So ``explain`` says what ``compile`` does."""
    model = Tied().eval()
    settings = {"min_block_size": 1, "torch_executed_ops": {"aten.erfinv"}}
    planned = torchtrt.explain(model, [X], **settings).blocks
    made = compiled_for(model, X).report.blocks

    assert [(row.name, row.nodes, row.calls) for row in planned] == [
        (row.name, row.nodes, row.calls) for row in made
    ]


@pytest.mark.parametrize("calls", [X, VARYING], ids=["fixed", "varying"])
def test_a_file_has_the_engine_once(calls, tmp_path):
    """And the loaded model has one engine of it, also where PyTorch loads it."""
    model = Tied()
    compiled = compiled_for(model, calls)
    file = tmp_path / "tied.pt2"
    torchtrt.save(compiled, file)
    loaded = torchtrt.load(file)

    for module in (loaded, copy.deepcopy(loaded), torch.export.load(file).module()):
        assert_same(module, model, X)
    assert [engine.calls for engine in engines_of(loaded)] == [1, 2, 1]
    again = io.BytesIO()
    torchtrt.save(loaded, again)
    assert len(Archive(again).plans()) == 3
    assert [row["name"] for row in inspect_file(file)["engines"]] == [
        "block_0", "block_1", "block_2",
    ]  # fmt: skip


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("stripped", [True, False])
def test_other_weights_are_those_of_each_call(stripped, in_place):
    """The engine that is called twice gets them once."""
    model, other = Tied(), Tied().eval()
    settings = {"immutable_weights": False, "strip_engine_weights": stripped}
    compiled = compiled_for(model, X, **settings)
    assert [block.calls for block in compiled.report.blocks] == [1, 2, 1]

    assert_same(torchtrt.refit_module_weights(compiled, other, in_place=in_place), other, X)


@pytest.mark.parametrize("change", ["weights", "sizes", "numbers"])
def test_blocks_that_differ_have_engines_of_their_own(change):
    """In one weight of many, in their inputs' sizes, or in a number among their arguments."""
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight.data = first.weight.data.clone()
    if change == "weights":
        second.bias.data[-1] += 1
    else:
        second = first

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            x = self.first(x).clamp(-0.5, 0.5).erfinv()
            if change == "sizes":
                x = torch.cat([x, x])
            return self.second(x).clamp(-0.5, 0.4 if change == "numbers" else 0.5)

    model = Twice()
    compiled = compiled_for(model, X)
    assert_same(compiled, model, X)
    assert [block.calls for block in compiled.report.blocks] == [1, 1]


def test_tied_layers_behind_a_limit_of_weights_are_built_once(built):
    """``max_engine_bytes`` gives each of two layers that take turns an engine."""
    first, second = (nn.Sequential(nn.Linear(8, 8, bias=False), nn.Tanh()) for _ in range(2))
    model = nn.Sequential(first, second, first, second).eval()
    compiled = torchtrt.compile(model, [X], min_block_size=1, max_engine_bytes=300)

    assert_same(compiled, model, X)
    assert sum(block.calls for block in compiled.report.blocks) == 4
    assert len(built) == 2


def test_engines_of_several_profiles_are_not_shared_where_contexts_do_not_share_them():
    """In TensorRT 8.6, each execution context would need an engine of its own."""
    sizes = torchtrt.Input(ranges=[[(1, 8), (2, 8), (3, 8)], [(4, 8), (5, 8), (6, 8)]])
    model = Tied()
    for version, calls in (("8.6.0", [1, 1, 1, 1]), ("11.4.0", [1, 2, 1])):
        with torchtrt.use_tensorrt(f"reference@{version}"):
            compiled = compiled_for(model, sizes)
            assert [block.calls for block in compiled.report.blocks] == calls
            assert_same(compiled, model, X)


def test_random_numbers_of_equal_blocks_differ():
    """An engine that draws numbers is no other block's."""

    class Noise(nn.Module):
        def forward(self, x):
            first = (x + torch.rand_like(x)).sigmoid().erfinv()
            return first, (first + torch.rand_like(x)).sigmoid()

    compiled = compiled_for(Noise(), X)
    for engine in engines_of(compiled):
        assert engine.calls == 1 or not any("rand" in name for name in engine.converted_by)


def large(build):
    """Returns why TensorRT refuses a network of more than three ops."""
    ops = {layer.rpartition("/")[0] for layer in build.layers if layer.startswith("aten")}
    return "too large" if len(ops) > 3 else ""


def test_equal_blocks_that_cannot_be_built_are_divided_together():
    """Each of them becomes the same two engines."""
    model = Tied()
    with watched_tensorrt(refuses=large) as tensorrt:
        compiled = compiled_for(model, X)

    assert_same(compiled, model, X)
    rows = compiled.report.blocks
    assert sum(row.calls for row in rows) > len(rows)
    refused = [build for build in tensorrt.builds if large(build)]
    assert len(refused) == len(compiled.report.splits) > 0


def test_equal_blocks_of_a_single_op_stay_in_pytorch_together():
    """If TensorRT builds no engine of it."""

    def norm(build):
        return "no norms" if any("layer_norm" in layer for layer in build.layers) else ""

    model = Tied()
    with watched_tensorrt(refuses=norm):
        compiled = compiled_for(model, X, torch_executed_on_failure=False)

    assert_same(compiled, model, X)
    assert "no norms" in str(compiled.report.in_torch)


def test_each_call_of_a_compared_engine_is_checked():
    """Its results are compared with PyTorch's wherever it runs."""
    calls = []

    def wrong_third(execution):
        calls.append(execution.layers)
        if len(calls) == 3:
            assert calls[1] == calls[2]  # the same engine, called again
            next(iter(execution.outputs.values())).add_(1)

    model = Tied()
    with watched_tensorrt(changes=wrong_third):
        compiled = compiled_for(model, X, verify="engines")

    assert_same(compiled, model, X)
    assert "computes something else than PyTorch" in compiled.report.splits[0]


def test_a_profile_counts_each_call():
    """The times of an engine are those of its calls together."""
    model = Tied()
    compiled = compiled_for(model, X)
    profile = torchtrt.profile(compiled, X, calls=2)

    counts = {
        entry.runs_in: entry.calls for entry in profile.entries if entry.runs_in.startswith("block")
    }
    assert counts["block_1"] == 2 * counts["block_0"] == 2


def test_each_call_has_an_execution_context_of_its_own():
    """A CUDA graph of the caller's keeps them, and the calls after it find none of them."""
    model = Tied()
    compiled = compiled_for(model, X)
    (shared,) = [engine for engine in engines_of(compiled) if engine.calls == 2]
    seen = []

    for _ in range(3):
        assert_same(compiled, model, X)
        (idle,) = shared._idle.values()
        seen.append([id(engine) for engine in idle])

    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) == 2
    (loaded,) = shared._loaded.values()
    (idle,) = shared._idle.values()
    assert all(engine.loaded is loaded and engine.shapes is not None for engine in idle)
    kept = [shared._to_record(X.device, [X.shape], 0) for _ in range(2)]
    assert {id(engine) for engine in kept} == set(seen[0])


def test_a_recording_keeps_the_context_of_each_call():
    """The calls of an engine may have inputs of different sizes, which a recorded context has no time to take."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x, y):
            return self.layer(y + self.layer(x).sum())

    model, inputs = Two(), (X, torch.rand(6, 8))
    compiled = compiled_for(model, VARYING, VARYING, torch_executed_ops={"aten.add", "aten.sum"})
    assert_same(compiled, model, *inputs)
    (engine,) = engines_of(compiled)
    assert engine.calls == 2
    for input_ in inputs:
        kept = engine._to_record(input_.device, [input_.shape], 0)
        assert kept.shapes == [input_.shape]


def test_the_report_shows_how_often_an_engine_runs():
    """In a column that other reports do not have."""
    rich = pytest.importorskip("rich.console")
    for model, words in ((Tied(), True), (nn.Linear(8, 8), False)):
        console = rich.Console(file=io.StringIO(), width=200)
        console.print(
            compiled_for(model, X, torch_executed_ops=["aten.erfinv"] if words else []).report
        )
        assert ("calls" in console.file.getvalue()) == words
