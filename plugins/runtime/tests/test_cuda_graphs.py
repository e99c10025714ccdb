"""Recorded calls give what plain ones give. Recording is played here by a tape, which works without a GPU."""

import contextlib
import copy
import functools
import pickle
import threading
import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import register_parametrization

import torchtrt
from torchtrt_runtime.executors import cuda_graphs
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs
from torchtrt_runtime.executors.inductor import InductorFallback

# Without a GPU the setting has no effect; here the tape gives it one.
pytestmark = pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning")


class Tape:
    """Records a call by keeping what it reads and writes; a replay calls again, and writes where the first wrote."""

    made = 0
    place = -1, 0  # no GPU, and the only stream of it

    def __init__(self, _, source):
        self.source = source
        self.lock, self.entries, self.latest = threading.Lock(), OrderedDict(), None

    @staticmethod
    def place_of(leaves):
        return "a stream" if all(isinstance(leaf, torch.Tensor) for leaf in leaves) else None

    @staticmethod
    def run(function, leaves):
        return function()

    @staticmethod
    def capture_graph(function):
        Tape.made += 1
        outputs = function()

        def replay():
            for output, value in zip(outputs, function(), strict=True):
                output.copy_(value)

        for output in outputs:
            if not output._is_view():
                output.fill_(-1)  # capturing computes nothing
        return replay, outputs


@pytest.fixture(autouse=True)
def tape(monkeypatch):
    """Counts captured graphs from 0, and says of the tape what PyTorch says of streams."""
    monkeypatch.setattr(Tape, "made", 0)
    for name, value in (("_device_in_use", -1), ("_stream_in_use", 0), ("_is_capturing", False)):
        monkeypatch.setattr(cuda_graphs, name, lambda *_, value=value: value)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, y):
        return torch.relu(self.linear(x)) + y, x.sum(-1)


def compiled_model(model=None, inputs=None, **settings):
    """Returns a compiled model on a tape."""
    model = (model or Model()).eval()
    if inputs is None:
        batch = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(99, 4))
        inputs = [batch, torchtrt.Input(shape=(3,))]
    compiled = torchtrt.compile(model, inputs, min_block_size=1, cuda_graphs=True, **settings)
    compiled.executor = CudaGraphs(capture=Tape)
    return model, compiled


def check(compiled, model, *inputs):
    """Calls both, and returns the compiled model's results."""
    with torch.no_grad():
        expected = model(*inputs)
    results = compiled(*inputs)
    torch.testing.assert_close(results, expected)
    return results


def captured_model():
    """Returns a model, compiled, and the inputs that calls of it were captured with."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, x, y)
    return model, compiled, x, y


def two_graphs():
    """Returns the graphs of two models, inputs, and what the second returns for them."""
    _, compiled = compiled_model()
    _, donor = compiled_model(Model())
    inputs = torch.randn(2, 4), torch.randn(3)
    return compiled.graph_module, donor.graph_module, inputs, list(donor(*inputs))


def test_the_same_memory_is_captured_once_and_read_in_place():
    """New values in the same tensors are seen; nothing is copied."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(6):
        check(compiled, model, x.normal_(), y.normal_())
    assert Tape.made == 1
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    assert not entry.moved


def test_inputs_that_move_are_copied_into_a_buffer():
    """Each call brings another tensor for one input, and the same for the other."""
    model, compiled = compiled_model()
    held, y = [], torch.randn(3)
    for _ in range(6):
        held.append(torch.randn(2, 4))
        check(compiled, model, held[-1], y)
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    assert entry.moved == {0}
    assert Tape.made <= 2
    check(compiled, model, torch.randn(2, 4), torch.randn(3))
    check(compiled, model, torch.randn(2, 4), torch.randn(3))


def test_the_same_memory_seen_negative_is_another_input():
    """As the imaginary part of a conjugate is: its address, sizes and strides are those of the part itself."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4, dtype=torch.complex64), torch.randn(3)
    for _ in range(4):
        for part in (x.imag, x.conj().imag):
            check(compiled, model, part, y)
    assert x.conj().imag.is_neg()


def test_results_that_are_held_keep_their_values():
    """All of them, the last ones, or only a view of one."""
    model, compiled = compiled_model()
    inputs = [(torch.randn(2, 4), torch.randn(3)) for _ in range(8)]
    results = [compiled(*pair) for pair in inputs]
    views = [compiled(*pair)[0][0, 1:] for pair in inputs]
    with torch.no_grad():
        for pair, result, view in zip(inputs, results, views, strict=True):
            torch.testing.assert_close(result, model(*pair))
            torch.testing.assert_close(view, model(*pair)[0][0, 1:])


def test_a_loop_that_holds_the_last_result_alternates_between_two_graphs():
    """As ``result = model(x)`` does: the old one is dropped after the new one is there."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    result = None
    for _ in range(9):
        result = compiled(x.normal_(), y)
    assert Tape.made == 2
    with torch.no_grad():
        torch.testing.assert_close(result, model(x, y))


def test_without_counts_of_uses_results_are_copies(monkeypatch):
    """PyTorch's count of a storage's users has no public name."""
    monkeypatch.setattr("torchtrt_runtime.executors.cuda_graphs._use_count", None)
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    results = [check(compiled, model, x, y)[0] for _ in range(4)]
    assert Tape.made == 1
    assert len({result.data_ptr() for result in results}) == 4


def test_each_combination_of_shapes_has_graphs_and_the_longest_unused_go():
    """Twenty batch sizes, three rounds."""
    model, compiled = compiled_model()
    y = torch.randn(3)
    for _ in range(3):
        for batch in range(1, 21):
            check(compiled, model, torch.randn(batch, 4), y)
    (capture,) = compiled.executor._captures.values()
    assert len(capture.entries) == 8
    for _ in range(4):
        check(compiled, model, torch.randn(7, 4), y)
    for _ in range(3):
        check(compiled, model, torch.randn(4, 7).T, y)  # as many, in another order


def test_a_result_that_is_an_input_is_not_captured():
    """It would be the input of another call."""

    class Passing(nn.Module):
        def forward(self, x):
            return x.view(-1), x + 1

    model, compiled = compiled_model(
        Passing(), [torch.randn(2, 3)], torch_executed_ops={"aten.reshape"}
    )
    x = torch.randn(2, 3)
    check(compiled, model, x)
    message = "the model runs without, because a result is an input"
    with pytest.warns(UserWarning, match=message) as warned:
        check(compiled, model, x)
    assert [__file__] == [each.filename for each in warned]
    for _ in range(4):
        x = torch.randn(2, 3)
        results = check(compiled, model, x)
        assert results[0].data_ptr() == x.data_ptr()


def test_slices_of_what_grows_are_inputs_like_the_last():
    """As the last of the ids and masks of a text: its stride along a size of 1 is the text's length."""

    class Last(nn.Module):
        def forward(self, ids, mask):
            return ids * 2 + mask

    model, compiled = compiled_model(Last(), (torch.ones(1, 1), torch.ones(1, 1)))
    for length in range(2, 9):
        text = torch.rand(1, length)
        check(compiled, model, text[:, -1:], text[:, :1])
    assert Tape.made == 1
    (capture,) = compiled.executor._captures.values()
    assert len(capture.entries) == 1


@pytest.mark.parametrize("with_inductor", [False, True])
def test_where_pytorch_runs_a_part_all_strides_are_told_apart(monkeypatch, with_inductor):
    """What ops return may follow strides along a size of 1, and what was compiled for others compiles again."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))

    class Larger(nn.Module):
        def forward(self, x):
            larger = nn.functional.interpolate(x, scale_factor=2.0)
            return larger * 3, torch.relu(x)

    kept = {"aten.upsample_nearest2d", "aten.mul"}
    model, compiled = compiled_model(Larger(), [torch.rand(2, 3, 1, 1)], torch_executed_ops=kept)
    assert len(compiled.report.blocks) == 1
    compiled.executor = CudaGraphs(
        capture=Tape, inner=InductorFallback() if with_inductor else None
    )
    for strides in ((3, 1, 1, 1), (3, 1, 3, 3)) * 3:
        image = torch.rand(6).as_strided((2, 3, 1, 1), strides)
        larger, _ = check(compiled, model, image)
        assert larger.stride() == model(image)[0].stride()
    (capture,) = compiled.executor._captures.values()
    assert len(capture.entries) == 2


def test_a_first_call_that_fails_makes_nothing_ready():
    """The next one is not captured either, as it is the first that runs."""
    model, compiled = compiled_model()
    runner = compiled.executor
    plain = runner.inner

    def fail(*_):
        runner.inner = plain
        raise torch.OutOfMemoryError("no memory left")

    runner.inner = fail
    x, y = torch.randn(2, 4), torch.randn(3)
    with pytest.raises(torch.OutOfMemoryError):
        compiled(x, y)
    check(compiled, model, x, y)
    assert not Tape.made
    check(compiled, model, x, y)
    assert Tape.made == 1


def test_zeros_without_memory_are_not_captured():
    """They are nowhere; what comes after them is captured as ever."""
    model, compiled = compiled_model()
    y = torch.randn(3)
    for _ in range(3):
        check(compiled, model, torch._efficientzerotensor(2, 4), y)
    assert not Tape.made
    for _ in range(3):
        check(compiled, model, torch.randn(2, 4), y)
        check(compiled, model, torch._efficientzerotensor(2, 4), y)
    assert Tape.made


def test_a_model_that_takes_no_tensors_runs_as_without():
    """No input says where it runs, and PyTorch without CUDA knows no stream."""
    assert cuda_graphs.StreamCapture.place_of(()) is None
    assert cuda_graphs.StreamCapture.place_of((3, None)) is None


def test_what_cannot_be_captured_says_why_and_runs():
    """Sizes that depend on data, and writes to inputs."""

    class Chosen(nn.Module):
        def forward(self, x):
            return x[x > 0] * 2

    class Writing(nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    class WritingPart(nn.Module):
        def forward(self, x):
            x[:1].t()[1:] = 2
            return x * 2

    for kind, reason in (
        (Chosen, "depend on data"),
        (Writing, "writes to its input"),
        (WritingPart, "writes to its input"),
    ):
        model, compiled = compiled_model(kind(), [torch.randn(2, 3)])
        x = torch.randn(2, 3)
        expected = model(x.clone())
        with pytest.warns(UserWarning, match=reason):
            result = compiled(x.clone())
        torch.testing.assert_close(result, expected)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(compiled(x.clone()), expected)
    assert not Tape.made


def test_a_failure_to_capture_is_a_warning_with_its_reason(monkeypatch):
    """The model runs as without."""

    def fail(function):
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(Tape, "capture_graph", staticmethod(fail))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    model, compiled = compiled_model()
    inputs = torch.randn(2, 4), torch.randn(3)
    check(compiled, model, *inputs)
    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        check(compiled, model, *inputs)
    check(compiled, model, *inputs)


def test_every_range_of_sizes_is_captured():
    """In its own optimization profile, whichever was used before."""
    batch = torchtrt.Input(ranges=[((1, 4), (2, 4), (3, 4)), ((16, 4), (20, 4), (32, 4))])
    model, compiled = compiled_model(inputs=[batch, torchtrt.Input(shape=(3,))])
    for rows in (2, 2, 20, 20, 2, 32, 20, 1, 32, 1):
        check(compiled, model, torch.randn(rows, 4), torch.randn(3))
    assert Tape.made >= 4


def test_parts_of_a_buffer_are_written_by_a_graph():
    """A cache stays where it is, and gets what is new."""

    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", torch.zeros(8, 3))

        def forward(self, x, place):
            self.cache.index_copy_(0, place, x)
            self.cache[:1, 1:] = x[:, 1:]
            return self.cache.sum(0) + x

    model, compiled = compiled_model(Cache(), [torch.randn(1, 3), torch.tensor([1])])
    eager = copy.deepcopy(model)
    x, place = torch.randn(1, 3), torch.tensor([1])
    for number in range(6):
        check(compiled, eager, x.normal_(), place.fill_(number))
        torch.testing.assert_close(model.cache, eager.cache)
    assert Tape.made == 1


def test_new_weights_drop_what_was_captured():
    """Refitted in place, and buffers of the parts in PyTorch that are others now."""
    model, compiled = compiled_model(immutable_weights=False)
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, *inputs)
    other = Model().eval()
    torchtrt.refit_module_weights(compiled, other, in_place=True)
    for _ in range(3):
        check(compiled, other, *inputs)


class Left(nn.Module):
    """A model that stays in PyTorch, with its weights."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.randn(3))
        self.register_buffer("offset", torch.randn(3))

    def forward(self, x):
        return torch.sigmoid(x * self.inner.weight) + self.offset


class Doubled(nn.Module):
    def forward(self, x):
        return x * 2


def moved(module):
    """Gives a weight other memory."""
    module.inner.weight.data = torch.randn(3)


def moved_buffer(module):
    """Gives a buffer other memory."""
    module.offset.data = torch.randn(3)


def replaced(module):
    """Puts another buffer in its place."""
    module.offset = torch.randn(3)


def replaced_around(module):
    """Puts another module in the place of a weight's."""
    module.inner = Left().inner


def edited(module):
    """Changes the graph."""
    (add,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)
    add.target = torch.ops.aten.sub.Tensor
    module.recompile()


@pytest.mark.parametrize("change", [moved, moved_buffer, replaced, replaced_around, edited])
def test_what_is_another_or_elsewhere_drops_what_was_captured(change):
    """A captured graph reads where weights were: memory that may be another's by now."""
    ops = {"aten.sigmoid", "aten.mul", "aten.add"}
    _, compiled = compiled_model(Left(), [torch.randn(2, 3)], torch_executed_ops=ops)
    graph_module, x = compiled.graph_module, torch.randn(2, 3)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert Tape.made == 1
    change(graph_module)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert Tape.made == 2


def test_another_engine_drops_what_was_captured():
    """It runs from the next call on."""
    model, compiled = compiled_model()
    other = Model().eval()
    _, donor = compiled_model(other)
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(4):
        check(compiled, model, *inputs)
    for name, engine in donor.graph_module.named_children():
        setattr(compiled.graph_module, name, engine)
    made = Tape.made
    for _ in range(3):
        check(compiled, other, *inputs)
    assert Tape.made == made + 1


def test_a_weight_that_is_computed_is_never_replayed():
    """Its module computes it anew whenever it is asked."""
    ops = {"aten.sigmoid", "aten.mul", "aten.add"}
    _, compiled = compiled_model(Left(), [torch.randn(2, 3)], torch_executed_ops=ops)
    graph_module, x = compiled.graph_module, torch.randn(2, 3)
    register_parametrization(graph_module.inner, "weight", Doubled())
    for _ in range(4):
        torch.testing.assert_close(compiled(x), graph_module(x)[0])
    graph_module.inner.parametrizations.weight.original.data = torch.randn(3)
    torch.testing.assert_close(compiled(x), graph_module(x)[0])
    assert not Tape.made


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own copying
def test_copies_record_for_themselves():
    """Neither deepcopy nor pickle takes a captured graph along."""
    model, compiled = compiled_model()
    inputs = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, *inputs)
    twin = copy.deepcopy(compiled)
    assert not twin.executor._captures
    check(twin, model, *inputs)
    assert isinstance(pickle.loads(pickle.dumps(CudaGraphs())), CudaGraphs)


def test_inputs_of_other_kinds_have_graphs_of_their_own():
    """Strides, and negative bits, are of the memory that a captured graph reads."""
    model, compiled = compiled_model()
    x, y = torch.rand(4, 4), torch.rand(3)
    turned, negative = x.t(), torch.complex(x, -x).conj().imag
    assert negative.is_neg()
    for _ in range(3):
        for given in (x, turned, negative, x):
            check(compiled, model, given, y)
    assert len(compiled.executor._captures["a stream"].entries) == 3
    captured = Tape.made
    for given in (x, turned, negative):
        check(compiled, model, given, y)
    assert Tape.made == captured


def test_gradients_and_inference_mode_are_as_without():
    """Results of inference mode are no results of another."""
    _, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        with torch.inference_mode():
            assert compiled(x, y)[0].is_inference()
        assert not compiled(x, y)[0].is_inference()
        moving = torch.randn(2, 4, requires_grad=True)
        result = compiled(moving, y)[0]
        assert result.requires_grad
        with pytest.raises(torchtrt.errors.EngineError, match="compute no gradients"):
            result.sum().backward()


def test_a_call_like_the_last_one_is_replayed_unchecked(monkeypatch):
    """What was captured passed the checks; other inputs are checked."""
    model, compiled, x, y = captured_model()
    monkeypatch.setattr(compiled.checks, "check", lambda _: pytest.fail("checked"))
    check(compiled, model, x.normal_(), y.normal_())
    with pytest.raises(pytest.fail.Exception, match="checked"):
        compiled(torch.randn(3, 4), y)


def forward_mode():
    """Gradients from the inputs on."""
    return torch.autograd.forward_ad.dual_level()


def half_autocast():
    """Casts that the model was not compiled with."""
    return torch.autocast("cpu", dtype=torch.float16)


@contextlib.contextmanager
def elsewhere_autocast():
    """Casts on a device that no input is on."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (forward_mode, "compute no gradients"),
        (half_autocast, "inside another"),
        (elsewhere_autocast, "inside another"),
    ],
)
@pytest.mark.parametrize("compiled_in_autocast", [False, True])
def test_a_replay_is_refused_where_a_call_is(mode, message, compiled_in_autocast):
    """In modes that the model was not compiled for, though its inputs are like those before."""
    x, y = torch.randn(2, 4), torch.randn(3)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=compiled_in_autocast):
        _, compiled = compiled_model()
        for _ in range(3):
            compiled(x, y)
        assert Tape.made == 1
        with mode(), pytest.raises(torchtrt.errors.EngineError, match=message):
            compiled(x, y)
        compiled(x, y)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_replays_refuse_what_calls_refuse():
    """Weights that have changed, nested tensors, other values of what is no tensor, and too few inputs."""
    model, compiled, x, y = captured_model()
    nested = torch.nested.nested_tensor([torch.randn(2, 4)])
    for inputs, message in (
        ((nested, y), "nested|strided"),
        ((x, None), "must be a tensor"),
        ((x, y.double()), "float64"),
        ((x,), "Missing"),
    ):
        with pytest.raises(torchtrt.errors.InputError, match=message):
            compiled(*inputs)
    check(compiled, model, x, y)
    with torch.no_grad():
        model.linear.weight.mul_(2)
    with pytest.raises(torchtrt.errors.EngineError, match="has changed"):
        compiled(x, y)


def test_what_writes_is_checked_in_each_call():
    """The memory of inputs that are like those before may be the model's own."""

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3))

        def forward(self, x):
            self.last.copy_(x)
            return self.last * 2

    model, compiled = compiled_model(Keeping(), [torch.randn(3)])
    eager = copy.deepcopy(model)
    held = [torch.randn(3) for _ in range(4)]
    for x in held:  # each elsewhere, so what is captured reads a copy
        check(compiled, eager, x)
    with pytest.raises(torchtrt.errors.InputError, match="shares memory"):
        compiled(model.last)


def test_another_graph_is_never_replayed_from_the_old_ones_graph():
    """Not even where it is put in its place while the old one is captured, which ends later."""
    old, new, inputs, expected = two_graphs()
    calls = []

    def run(graph_module, leaves):
        calls.append(graph_module)
        if calls == [old, old]:
            for _ in range(3):
                runner(new, inputs)
        return graph_module.forward(*leaves)

    runner = CudaGraphs(capture=Tape, inner=run)
    runner(old, inputs)
    runner(old, inputs)
    replayed = runner.replay(new, inputs)
    torch.testing.assert_close(replayed or runner(new, inputs), expected)


def test_a_call_that_another_graph_overtakes_is_captured_for_neither(monkeypatch):
    """Between its look at the graph and at the captured graphs, another thread puts a new one in its place."""
    old, new, inputs, expected = two_graphs()
    runner = CudaGraphs(capture=Tape)
    for _ in range(3):
        runner(old, inputs)

    def overtaken(self):
        monkeypatch.setattr(CudaGraphs, "refusal", "")
        runner(new, inputs)
        return ""

    del runner.refusal
    monkeypatch.setattr(CudaGraphs, "refusal", property(overtaken), raising=False)
    runner(old, inputs)
    for _ in range(3):
        results = runner.replay(new, inputs) or runner(new, inputs)
        torch.testing.assert_close(list(results), expected)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_replay_that_fails_leaves_the_next_call_alone(error):
    """Nothing stays locked."""
    model, compiled, x, y = captured_model()
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    replay = entry.graphs[0].replay

    def fail():
        entry.graphs[0].replay = replay
        raise error

    entry.graphs[0].replay = fail
    with pytest.raises(error):
        compiled(x, y)
    check(compiled, model, x, y)


def test_threads_may_share_a_compiled_model():
    """Each result belongs to its call."""
    model, compiled = compiled_model()
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(30):
            x = torch.randn(1 + seed % 2, 4, generator=generator)
            y = torch.randn(3, generator=generator)
            result = compiled(x, y)
            with torch.no_grad():
                if not torch.allclose(result[0], model(x, y)[0], atol=1e-5):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_results_are_overwritten_where_that_is_asked_for():
    """One captured graph serves all calls, whoever holds its results; they are the same memory each time."""
    model, compiled = compiled_model()
    compiled.executor = CudaGraphs(overwrites=True, capture=Tape)
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(2):
        check(compiled, model, x, y)
    first = check(compiled, model, x, y)
    seen = [each.clone() for each in first]
    second = check(compiled, model, x.normal_(), y.normal_())
    assert Tape.made == 1
    assert [each.data_ptr() for each in first] == [each.data_ptr() for each in second]
    torch.testing.assert_close(first, second)
    assert not torch.equal(seen[0], first[0])
    held = [check(compiled, model, torch.randn(2, 4), y) for _ in range(4)]
    assert Tape.made == 2  # one that reads x from a buffer
    assert len({results[0].data_ptr() for results in held[1:]}) == 1


@pytest.mark.parametrize("wanted", [True, "overwrite"])
def test_copies_and_files_keep_what_was_asked_for(wanted, tmp_path):
    """Whether results are overwritten is a setting like any other."""
    compiled = torchtrt.compile(
        Model().eval(), [torch.randn(2, 4), torch.randn(3)], min_block_size=1, cuda_graphs=wanted
    )
    torchtrt.save(compiled, tmp_path / "model.pt2")
    others = [
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),
        torchtrt.load(tmp_path / "model.pt2"),
    ]
    for each in (compiled, *others):
        assert each.settings.cuda_graphs == wanted
        assert each.executor._overwrites == (wanted == "overwrite")


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_other_values_are_refused(wrong):
    """And the message says which there are."""
    with pytest.raises(
        torchtrt.errors.SettingsError, match="True, False, 'overwrite' or 'runtime'"
    ):
        torchtrt.CompilationSettings(cuda_graphs=wrong)


@pytest.mark.parametrize("overwrites", [False, True])
def test_what_inductor_compiles_is_captured(monkeypatch, overwrites):
    """With the engines around it, for each shape, and anew with other weights."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))

    def make():
        layers = nn.Linear(6, 8), nn.LayerNorm(8), nn.Softplus(), nn.Linear(8, 4)
        return nn.Sequential(*layers).eval()

    model, other = make(), make()
    compiled = torchtrt.compile(
        model,
        [torchtrt.Input(min_shape=(1, 6), opt_shape=(3, 6), max_shape=(9, 6))],
        min_block_size=1,
        torch_executed_ops={"aten.layer_norm", "aten.softplus"},
        immutable_weights=False,
    )
    compiled.executor = CudaGraphs(overwrites=overwrites, capture=Tape, inner=InductorFallback())
    before = Tape.made
    for count in (3, 3, 3, 5, 5, 3, 1):
        x = torch.rand(count, 6)
        torch.testing.assert_close(compiled(x), model(x))
    assert len(compiled.report.blocks) == 2
    assert Tape.made > before
    torchtrt.refit_module_weights(compiled, other, in_place=True)
    for count in (3, 3, 5):
        x = torch.rand(count, 6)
        torch.testing.assert_close(compiled(x), other(x))
