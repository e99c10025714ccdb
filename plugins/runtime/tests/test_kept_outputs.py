"""Engines that write into the memory of the last results, where the runtime settings ask for it."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from torchtrt.errors import SettingsError
from torchtrt_runtime.modules.kept_outputs import KeptOutputs

ROWS = torchtrt.Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(16, 4))
OVERWRITE = torchtrt.RuntimeSettings(overwrite_results=True)


class Model(nn.Module):
    """Two engines, and PyTorch between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.second(hidden.cumsum(0)) + 1, hidden * 2


@pytest.fixture
def pair(every_tensorrt):
    """A model, and the same compiled."""
    model = Model().eval()
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1, torch_executed_ops={"aten.cumsum"})
    assert len(engines_of(compiled)) == 2
    return model, compiled


def rows(count, seed=0):
    return torch.rand(count, 4, generator=torch.Generator().manual_seed(seed))


def addresses(results):
    return [result.data_ptr() for result in results]


def assert_equal(results, expected):
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_results_are_new_memory_without_the_setting(pair):
    _, compiled = pair
    results = [compiled(rows(3)) for _ in range(3)]
    assert len({*addresses(pair[0] for pair in results)}) == 3


def test_results_of_smaller_sizes_stay_at_their_addresses(pair):
    """And those of larger ones move once."""
    model, compiled = pair
    compiled.runtime_settings = OVERWRITE
    first = compiled(rows(8))
    kept = addresses(first)
    for seed, count in enumerate((8, 3, 1, 5, 8)):
        results = compiled(rows(count, seed))
        assert addresses(results) == kept
        assert_equal(results, model(rows(count, seed)))
    assert_equal(compiled(rows(16)), model(rows(16)))
    larger = addresses(compiled(rows(2)))
    assert larger != kept
    assert addresses(compiled(rows(16))) == larger


def test_the_last_results_are_overwritten(pair):
    model, compiled = pair
    with torchtrt.runtime_settings(compiled, overwrite_results=True):
        held = compiled(rows(3))
        compiled(rows(3, seed=1))
        assert_equal(held, model(rows(3, seed=1)))
    compiled(rows(3, seed=2))
    assert_equal(held, model(rows(3, seed=1)))


def test_a_result_that_is_the_next_input_is_read_before_it_is_overwritten(pair):
    model, compiled = pair
    compiled.runtime_settings = OVERWRITE
    result, expected = compiled(rows(3)), model(rows(3))
    for _ in range(4):
        before = result[0].clone()
        result, expected = compiled(result[0]), model(expected[0])
        assert_equal(result, expected)
        assert_equal(result, model(before))


def test_the_sizes_of_a_result_may_be_changed_in_place(pair):
    model, compiled = pair
    compiled.runtime_settings = OVERWRITE
    compiled(rows(3))[0].t_()
    assert_equal(compiled(rows(3)), model(rows(3)))


def test_threads_do_not_overwrite_the_results_of_each_other(pair):
    model, compiled = pair
    compiled.runtime_settings = OVERWRITE
    barrier = threading.Barrier(4)
    wrong = []

    def call(seed):
        expected = model(rows(3, seed))
        kept = set()
        for _ in range(20):
            results = compiled(rows(3, seed))
            barrier.wait()  # all threads hold their results
            kept.update(addresses(results))
            if not all(map(torch.allclose, results, expected)):
                wrong.append(seed)
            barrier.wait()
        if len(kept) != 2:
            wrong.append(kept)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class EqualBlocks(nn.Module):
    """The same engine three times, each time over the last one's result."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        results = []
        for _ in range(3):
            results.append(torch.relu(self.linear(x)))
            x = results[-1].cumsum(0)
        return results


def test_an_engine_that_a_call_runs_several_times_has_memory_for_each_time():
    model = EqualBlocks().eval()
    compiled = torchtrt.compile(
        model, [rows(3)], min_block_size=1, torch_executed_ops={"aten.cumsum"}
    )
    (engine,) = engines_of(compiled)
    assert engine.calls == 3
    compiled.runtime_settings = OVERWRITE
    for seed in range(3):
        assert_equal(compiled(rows(3, seed)), model(rows(3, seed)))


def test_a_copy_has_memory_of_its_own(pair):
    _, compiled = pair
    compiled.runtime_settings = OVERWRITE
    copied = copy.deepcopy(compiled)
    held = compiled(rows(3))
    before = [result.clone() for result in held]
    copied(rows(3, seed=1))
    assert_equal(held, before)


@pytest.mark.parametrize("cuda_graphs", [True, "overwrite"])
def test_captured_calls_have_a_setting_of_their_own(cuda_graphs):
    with pytest.raises(SettingsError, match="overwrite_results=True excludes cuda_graphs"):
        torchtrt.RuntimeSettings(overwrite_results=True, cuda_graphs=cuda_graphs)


def test_each_stream_has_memory_of_its_own():
    kept = KeptOutputs()
    layouts = [("output", ((2, 3), (3, 1), torch.float32))]

    def address(stream):
        return kept.take(("cpu", stream), 1, layouts, _empty)["output"].data_ptr()

    def _empty(sizes, strides, dtype):
        return torch.empty_strided(sizes, strides, dtype=dtype)

    assert address(0) == address(0) != address(1)
    assert address(1) == address(1)


def test_memory_that_a_program_frees_is_replaced():
    """Engines would write into memory of others."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    compiled.runtime_settings = OVERWRITE
    compiled(rows(3)).untyped_storage().resize_(0)

    torch.testing.assert_close(compiled(rows(3)), model(rows(3)))


def test_results_outside_of_inference_mode_are_none_of_it():
    """Autograd could not save them for a backward pass of something else."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval()
    compiled = torchtrt.compile(model, [ROWS], min_block_size=1)
    compiled.runtime_settings = OVERWRITE
    with torch.inference_mode():
        assert compiled(rows(3)).is_inference()

    assert not compiled(rows(3)).is_inference()
