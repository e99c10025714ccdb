"""What stays in PyTorch, compiled: the same values, whatever becomes of the model meanwhile."""

import copy
import functools
import pickle
import threading

import pytest
import torch
from torch import nn

import torchtrt
from torchtrt.errors import SettingsError
from torchtrt_engines import torch_parts

IN_TORCH = {"aten.layer_norm", "aten.mul", "aten.add", "aten.cat", "aten.split"}


class Model(nn.Module):
    """Two products, and between them what is left to PyTorch."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.relu(self.first(x))
        left, right = (self.norm(y) * 2 + y).split(4, -1)
        return torch.sigmoid(self.second(torch.cat((right, left), -1))), y.transpose(0, 1)


class Twice(nn.Module):
    """More of what is left to PyTorch, after an engine."""

    def forward(self, both):
        y = torch.sigmoid(both[0])
        return y * 2 + y


@pytest.fixture
def compilations(monkeypatch):
    """The ops of each part that was compiled: traced as by ``torch.compile``, without a compiler of C++ or a GPU."""
    parts, really = [], torch.compile

    def compile_part(part, **settings):
        calls = [node for node in part.graph.nodes if node.op == "call_function"]
        parts.append({str(node.target) for node in calls})
        return really(part, backend="aot_eager", **settings)

    monkeypatch.setattr(torch, "compile", compile_part)
    return parts


X = torch.rand(3, 6)


def compiled(model=None, inputs=(X,), **settings):
    """Returns a model whose parts in PyTorch are compiled."""
    settings = {"torch_executed_ops": IN_TORCH, "min_block_size": 1, **settings}
    return torchtrt.compile(model or Model().eval(), list(inputs), inductor=True, **settings)


def test_one_part_between_two_engines(compilations):
    """It is all that lies there, and is compiled once."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    assert not compilations
    for _ in range(3):
        torch.testing.assert_close(fast(x), model(x))
    (part,) = compilations
    assert {"aten.layer_norm.default", "aten.cat.default"} <= part
    assert len(fast.report.blocks) == 2


@pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning"
)  # PyTorch's, when it is imported
def test_inductor_itself():
    """The same values from its own kernels, where it finds a compiler."""
    cpp_builder = pytest.importorskip("torch._inductor.cpp_builder")
    try:
        cpp_builder.get_cpp_compiler()
    except RuntimeError as error:
        pytest.skip(str(error))
    model, x = Model().eval(), torch.rand(3, 6)
    torch.testing.assert_close(compiled(model)(x), model(x))


def test_other_sizes(compilations):
    """A range of sizes takes no more compilations than ``torch.compile`` would."""
    model = Model().eval()
    rows = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(64, 6))
    fast = compiled(model, [rows])
    for count in (4, 7, 1, 64, 4):
        x = torch.rand(count, 6)
        torch.testing.assert_close(fast(x), model(x))
    assert len(compilations) == 1


def test_what_is_not_compiled(compilations):
    """Random numbers are those of PyTorch, and sizes that depend on data stay out."""

    class Random(nn.Module):
        def forward(self, x):
            y = torch.nn.functional.dropout(x.cumsum(0), 0.5, training=True)
            kept = y[y > 0]
            return (y.cumsum(0) * 2).cumsum(1), kept.cumsum(0)

    model, x = Random().eval(), torch.rand(5, 6)
    everything = {"aten.cumsum", "aten.mul", "aten.dropout", "aten.gt", "aten.index"}
    fast = compiled(model, [x], torch_executed_ops=everything)
    results = []
    for call in (fast, model):
        torch.manual_seed(3)
        results.append(call(x))
    torch.testing.assert_close(*results)
    ops = set().union(*compilations)
    assert "aten.cumsum.default" in ops
    assert not any("dropout" in op or "bernoulli" in op or "nonzero" in op for op in ops)


def test_writes_come_last(compilations):
    """What a model writes to is written by PyTorch, after everything has been read."""

    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(6))

        def forward(self, x):
            before = self.total * 2 + x.cumsum(0)
            self.total.add_(x.sum(0))
            return before, self.total.cumsum(0) + before

    model = Counter().eval()
    ours = copy.deepcopy(model)
    fast = compiled(
        ours, [torch.rand(3, 6)], torch_executed_ops={"aten.cumsum", "aten.add", "aten.mul"}
    )
    for _ in range(3):
        x = torch.rand(3, 6)
        torch.testing.assert_close(fast(x), model(x))
    assert compilations
    (total,) = fast.buffers()
    torch.testing.assert_close(total, model.total)


def test_other_weights_are_those_of_the_next_call(compilations):
    """Refitting replaces weights of PyTorch's parts as well, and compiles nothing again."""
    x = torch.rand(3, 6)
    fast = compiled(immutable_weights=False)
    fast(x)
    other = Model().eval()
    nn.init.uniform_(other.norm.weight)
    torchtrt.refit_module_weights(fast, other, in_place=True)
    torch.testing.assert_close(fast(x), other(x))
    assert len(compilations) == 1


def test_copies_and_files_compile_their_own(compilations, tmp_path):
    """A file holds the ops, and the setting."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    torchtrt.save(fast, tmp_path / "model.pt2")
    for each in (
        copy.deepcopy(fast),
        pickle.loads(pickle.dumps(fast)),
        torchtrt.load(tmp_path / "model.pt2"),
    ):
        before = len(compilations)
        torch.testing.assert_close(each(x), model(x))
        assert each.settings.inductor
        assert each.report.inductor
        assert len(compilations) == before + 1


def test_what_cannot_be_compiled_runs_op_by_op(monkeypatch):
    """With a warning that says why, once."""
    failed = []

    def broken(graph_module, inputs):
        failed.append(graph_module)
        raise RuntimeError("no compiler is installed")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=broken))
    model, x = nn.Sequential(Model(), Twice()).eval(), torch.rand(3, 6)
    fast = compiled(model)
    with pytest.warns(UserWarning, match="no compiler is installed") as warned:
        torch.testing.assert_close(fast(x), model(x))
    assert len(failed) == 2
    assert [each.filename for each in warned] == [__file__]
    torch.testing.assert_close(fast(x), model(x))


def test_threads_compile_together(compilations):
    """Whoever comes first compiles, and all get what is right."""
    model, results = Model().eval(), [None] * 6
    fast = compiled(model)
    inputs = [torch.rand(3, 6) for _ in results]

    def call(index):
        results[index] = fast(inputs[index])

    threads = [threading.Thread(target=call, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(results, list(map(model, inputs)))
    assert len(compilations) == 1


def test_shapes_are_forgotten(compilations, monkeypatch):
    """Nothing grows with the number of shapes."""
    monkeypatch.setattr(torch_parts, "_SHAPES", 2)
    rows = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(64, 6))
    fast = compiled(None, [rows])
    for count in range(2, 9):
        fast(torch.rand(count, 6))
        assert len(fast._runner._known) <= 2


def test_inference_mode_and_gradients(compilations):
    """Calls in one and with the other, as of any compiled model."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    with torch.inference_mode():
        torch.testing.assert_close(fast(x), model(x))
    torch.testing.assert_close(fast(x), model(x))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))


def test_the_setting_is_a_switch():
    """Nothing else is taken for one."""
    with pytest.raises(SettingsError, match="inductor"):
        torchtrt.compile(Model().eval(), [torch.rand(3, 6)], inductor="yes")
