"""Recorded calls give what plain ones give. Recording is played here by a tape, which works without a GPU."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.recording import Model, Tape, check, compiled_model
from torchtrt_runtime.executors import captured_graphs
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs, StreamCapture
from torchtrt_runtime.executors.inductor import InductorFallback

# Without a GPU the setting has no effect; here the tape gives it one.
pytestmark = [
    pytest.mark.usefixtures("tape"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning"),
]


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


def test_an_input_that_stays_after_it_has_moved_is_read_in_place_once_more():
    """As after a warm-up with other tensors. One that moves again then, is copied for good."""
    model, compiled = compiled_model()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(3):
        check(compiled, model, torch.randn(2, 4), y)  # the warm-up
    held = [torch.randn(2, 4) for _ in range(2)]  # so that no other tensor takes their place
    for _ in range(captured_graphs._STAYS + 3):
        check(compiled, model, x.normal_(), y.normal_())
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    assert not entry.moved
    made = Tape.made
    for _ in range(2 * captured_graphs._STAYS):
        check(compiled, model, held[0].normal_(), y)
    assert entry.moved == {0}
    assert Tape.made == made + 1


@pytest.mark.parametrize("holds", [False, True])
def test_an_input_is_read_in_place_after_as_many_calls_as_the_page_says(holds):
    """Each call counts once, no matter how many captured graphs cannot serve it because their results are held."""
    model, compiled = compiled_model()
    y = torch.randn(3)
    others = [torch.randn(2, 4) for _ in range(6)]  # none takes the place of another one
    held = [check(compiled, model, other, y) for other in others]
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    x = torch.randn(2, 4)
    for _ in range(captured_graphs._STAYS):
        held.append(check(compiled, model, x.normal_(), y))
        if not holds:
            held.clear()
        assert entry.moved == {0}
    check(compiled, model, x.normal_(), y)
    assert not entry.moved


def test_inputs_that_move_by_turns_stay_copied():
    """Each of two tensors comes every other call, and never often enough in a row."""
    model, compiled = compiled_model()
    both, y = [torch.randn(2, 4) for _ in range(2)], torch.randn(3)
    for call in range(3 * captured_graphs._STAYS):
        check(compiled, model, both[call % 2].normal_(), y)
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    assert entry.moved == {0}
    assert Tape.made <= 2


def test_calls_that_are_dropped_move_no_input():
    """Calls before had other tensors: those that follow are read in place."""
    model, compiled = compiled_model()
    for _ in range(4):
        check(compiled, model, torch.randn(2, 4), torch.randn(3))
    compiled.executor.drop_calls()
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(4):
        check(compiled, model, x.normal_(), y.normal_())
    (capture,) = compiled.executor._captures.values()
    (entry,) = capture.entries.values()
    assert not entry.moved


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
    monkeypatch.setattr("torchtrt_runtime.executors.captured_graphs.storage_use_count", None)
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
    assert [check.__code__.co_filename] == [warning.filename for warning in warned]
    for _ in range(4):
        x = torch.randn(2, 3)
        results = check(compiled, model, x)
        assert results[0].data_ptr() == x.data_ptr()


@pytest.mark.parametrize("with_inductor", [False, True])
def test_where_pytorch_runs_a_part_all_strides_are_told_apart(compilations, with_inductor):
    """What ops return may follow strides along a size of 1, and what was compiled for others compiles again."""

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


def test_strides_along_a_size_of_1_do_not_matter_to_engines():
    """As the last id of a text, whose stride is the length of the text, beside an op that stays in PyTorch."""

    class Doubled(nn.Module):
        def forward(self, ids):
            return torch.relu(ids * 2)

    model, compiled = compiled_model(
        Doubled(), [torch.ones(1, 1)], torch_executed_ops={"aten.relu"}
    )
    assert len(compiled.report.blocks) == 1
    compiled.executor = CudaGraphs(capture=Tape)
    for length in range(2, 9):
        check(compiled, model, torch.rand(1, length)[:, -1:])
    (capture,) = compiled.executor._captures.values()
    assert len(capture.entries) == 1


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
    """No input has a device, and PyTorch without CUDA has no stream."""
    assert StreamCapture.place_of(()) is None
    assert StreamCapture.place_of((3, None)) is None


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


def test_a_failure_to_capture_is_a_warning_with_its_reason():
    """The model runs as without."""

    class Failing(Tape):
        @staticmethod
        def capture_graph(function):
            raise RuntimeError("operation not permitted when stream is capturing")

    model, compiled = compiled_model()
    compiled.executor = CudaGraphs(capture=Failing)
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


def test_results_are_overwritten_where_that_is_asked_for():
    """One captured graph serves all calls, even while its results are in use; they are the same memory each time."""
    model, compiled = compiled_model()
    compiled.executor = CudaGraphs(overwrites=True, capture=Tape)
    x, y = torch.randn(2, 4), torch.randn(3)
    for _ in range(2):
        check(compiled, model, x, y)
    first = check(compiled, model, x, y)
    seen = [tensor.clone() for tensor in first]
    second = check(compiled, model, x.normal_(), y.normal_())
    assert Tape.made == 1
    assert [tensor.data_ptr() for tensor in first] == [tensor.data_ptr() for tensor in second]
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
    for module in (compiled, *others):
        assert module.settings.cuda_graphs == wanted
        assert module.executor._overwrites == (wanted == "overwrite")


@pytest.mark.parametrize("wrong", ["yes", 1, None])
def test_other_values_are_refused(wrong):
    """And the message says which there are."""
    with pytest.raises(
        torchtrt.errors.SettingsError, match="True, False, 'overwrite' or 'runtime'"
    ):
        torchtrt.CompilationSettings(cuda_graphs=wrong)


@pytest.mark.parametrize("overwrites", [False, True])
def test_what_inductor_compiles_is_captured(compilations, overwrites):
    """With the engines around it, for each shape, and anew with other weights."""

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
