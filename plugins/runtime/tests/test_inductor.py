"""What stays in PyTorch, compiled: the same values, whatever becomes of the model meanwhile."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import torchtrt
from torchtrt.errors import SettingsError
from torchtrt_compiler.exporting.export import TRACING
from torchtrt_runtime.executors.inductor import InductorFallback

pytestmark = pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning")
"""One list of ops is for several models."""
IN_TORCH = {"aten.layer_norm", "aten.mul", "aten.add", "aten.cat", "aten.split"}


class Model(nn.Module):
    """Two products, and between them what is left to PyTorch."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.relu(self.first(x))
        return torch.sigmoid(self.second(self.between(y))), y.transpose(0, 1)

    def between(self, y):
        left, right = (self.norm(y) * 2 + y).split(4, -1)
        return torch.cat((right, left), -1)


class Twice(nn.Module):
    """More of what is left to PyTorch, after an engine."""

    def forward(self, both):
        y = torch.sigmoid(both[0])
        return y * 2 + y


X = torch.rand(3, 6)
SIZES = 4, 7, 1, 64, 4


def compiled(model=None, inputs=(X,), **settings):
    """Returns a model whose parts in PyTorch are compiled."""
    settings = {"torch_executed_ops": IN_TORCH, "min_block_size": 1, **settings}
    return torchtrt.compile(model or Model().eval(), list(inputs), **{"inductor": True, **settings})


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


@pytest.fixture
def inductor():
    """Skips where Inductor finds no compiler."""
    cpp_builder = pytest.importorskip("torch._inductor.cpp_builder")
    try:
        cpp_builder.get_cpp_compiler()
    except RuntimeError as error:
        pytest.skip(str(error))


is_imported = pytest.mark.filterwarnings("ignore:`torch.jit")
"""PyTorch warns when Inductor is imported."""


@is_imported
def test_inductor_itself(inductor):
    """The same values from its own kernels, where it finds a compiler."""
    model, x = Model().eval(), torch.rand(3, 6)
    torch.testing.assert_close(compiled(model)(x), model(x))


def test_other_sizes(compilations):
    """A range of sizes takes no more compilations than ``torch.compile`` would."""
    model = Model().eval()
    rows = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(64, 6))
    fast = compiled(model, [rows])
    for count in SIZES:
        x = torch.rand(count, 6)
        torch.testing.assert_close(fast(x), model(x))
    ours = len(compilations)
    between = torch.compile(model.between)
    for count in SIZES:
        between(torch.rand(count, 8))
    assert ours == len(compilations) - ours < len(SIZES) - 1


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
    for module in (
        copy.deepcopy(fast),
        pickle.loads(pickle.dumps(fast)),
        torchtrt.load(tmp_path / "model.pt2"),
    ):
        before = len(compilations)
        torch.testing.assert_close(module(x), model(x))
        assert module.settings.inductor
        assert module.report.inductor
        assert len(compilations) == before + 1


@pytest.mark.usefixtures("no_compiler")
def test_what_cannot_be_compiled_runs_op_by_op():
    """With a warning that says why, once for all segments."""
    model, x = nn.Sequential(Model(), Twice()).eval(), torch.rand(3, 6)
    fast = compiled(model)
    with pytest.warns(UserWarning, match="InvalidCxxCompiler") as warned:
        torch.testing.assert_close(fast(x), model(x))
    assert [warning.filename for warning in warned] == [__file__]
    torch.testing.assert_close(fast(x), model(x))


def test_threads_compile_together(compilations):
    """The first thread compiles, and all get what is right."""
    model = Model().eval()
    fast = compiled(model)
    inputs = [torch.rand(3, 6) for _ in range(6)]
    with ThreadPoolExecutor(len(inputs)) as threads:
        results = list(threads.map(fast, inputs))
    torch.testing.assert_close(results, list(map(model, inputs)))
    assert len(compilations) == 1


def test_shapes_are_forgotten(compilations):
    """Nothing grows with the number of shapes."""
    rows = torchtrt.Input(min_shape=(1, 6), opt_shape=(4, 6), max_shape=(64, 6))
    fast = compiled(None, [rows])
    fast.executor = InductorFallback(shapes=2)
    for count in range(2, 9):
        fast(torch.rand(count, 6))
        assert len(fast.executor._called_keys) <= 2


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


def test_casts_come_also_where_all_stays_in_pytorch():
    """Nothing else is rewritten for TensorRT then; the setting holds."""
    model, x = nn.Sequential(nn.Linear(6, 8), nn.GELU()).eval(), torch.rand(3, 6)
    everything = {"aten.linear", "aten.gelu"}
    half = compiled(
        model, [x], torch_executed_ops=everything, autocast=torch.bfloat16, inductor=False
    )
    assert half.report.passes == ["autocast of aten_core 0.1.0"]
    torch.testing.assert_close(half(x), model(x), rtol=0.02, atol=0.02)
    assert not torch.equal(half(x), model(x))


def test_an_edited_graph_is_compiled_anew(compilations):
    """The next call runs what is there, as without the setting."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    before = fast(x)
    for node in fast.graph_module.graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor:
            node.args = (node.args[0], 5)
    fast.graph_module.recompile()
    torch.testing.assert_close(fast(x), tuple(fast.graph_module(x)))
    assert not torch.allclose(fast(x)[0], before[0])
    assert len(compilations) == 2


@pytest.mark.parametrize("is_warm", [False, True])
def test_others_may_trace_meanwhile(compilations, is_warm):
    """``torch.compile`` refuses all calls while FX traces in any thread; ours run op by op then."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    if is_warm:
        fast(x)
    is_tracing, is_done = threading.Event(), threading.Event()

    def traced(value):
        is_tracing.set()
        is_done.wait(60)
        return value + 1

    tracing = threading.Thread(target=make_fx(traced), args=(x,))
    tracing.start()
    is_tracing.wait(60)
    try:
        torch.testing.assert_close(fast(x), model(x))
    finally:
        is_done.set()
        tracing.join()


def test_others_may_compile_meanwhile(compilations):
    """A backend of theirs may compile a model by torchtrt: a first call waits for it, and not the other way."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    is_compiling, is_called = threading.Event(), threading.Event()
    has_lock = []

    def backend(graph_module, inputs):
        is_compiling.set()
        is_called.wait(60)
        has_lock.append(TRACING.acquire(timeout=5))
        if has_lock[0]:
            TRACING.release()
        return graph_module

    def call():
        is_called.set()
        results.append(fast(x))

    theirs = torch.compile(lambda value: value * 2 + 1, backend=backend)
    results: list[object] = []
    threads = [threading.Thread(target=theirs, args=(x,)), threading.Thread(target=call)]
    threads[0].start()
    is_compiling.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert has_lock == [True]
    torch.testing.assert_close(results, [model(x)])
    assert (
        len(compilations) == 1
    )  # PyTorch would never compile a part that is made while they compile


@pytest.mark.usefixtures("no_compiler")
def test_warnings_as_errors_come_once():
    """The next call runs op by op."""
    model, x = Model().eval(), torch.rand(3, 6)
    fast = compiled(model)
    with pytest.raises(UserWarning, match="InvalidCxxCompiler"):
        fast(x)
    torch.testing.assert_close(fast(x), model(x))


@is_imported
def test_errors_are_those_of_pytorch(inductor):
    """What the ops refuse is refused in their words."""

    class Rows(nn.Module):
        def forward(self, x, index):
            return nn.functional.embedding(index, x * 2 + 1) * 2

    x, everything = torch.rand(3, 6), {"aten.embedding", "aten.mul", "aten.add"}
    fast = compiled(Rows().eval(), [x, torch.tensor([0, 2])], torch_executed_ops=everything)
    with pytest.raises(IndexError):
        fast(x, torch.tensor([0, 9]))


class Attention(nn.Module):
    """Attention, with rows that an index chooses."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.dropout = dropout
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, x):
        y = torch.cumsum(x, 0)[self.order].view(1, 3, 2, 3).transpose(1, 2)
        seen = nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=self.dropout)
        return torch.cumsum(seen, -1) * 2


ATTENTION = "aten.scaled_dot_product_attention.default"


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
def test_attention_without_dropout_ends_no_stretch(compilations, dropout):
    """Nor does an index of whole numbers: both are only tagged as what may draw numbers, or sizes."""
    model, x = Attention(dropout).eval(), torch.rand(3, 6)
    fast = compiled(model, [x], min_block_size=50)
    results = []
    for call in (fast, model):
        torch.manual_seed(3)
        results.append(call(x))
    torch.testing.assert_close(*results)
    assert len(compilations) == (2 if dropout else 1)
    assert (ATTENTION in set().union(*compilations)) == (not dropout)
    assert "aten.index.Tensor" in set().union(*compilations)
