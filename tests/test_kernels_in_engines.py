"""Ops whose own kernels run in engines, as plugins that packs register: compiled, run, and refused."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same
from tests.support.kernels import (
    Blending,
    Tensor,
    above,
    blend,
    compiled,
    failing,
    noise,
    on_gpu,
    rank,
    rows,
    sparse,
    windows,
    wrong,
)
from tests.support.modules import Function
from torchtrt.errors import EngineError
from torchtrt.packs import ConverterPack
from torchtrt_cli import main
from torchtrt_kernels.tensorrt_plugins import take_kernel_error

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_op_computes_in_an_engine_what_it_does_in_pytorch(
    plugins: ConverterPack, dtype: torch.dtype
) -> None:
    """In each dtype, between layers of TensorRT."""
    x = torch.arange(24).reshape(3, 8).to(dtype)
    model, engine = compiled(lambda x: windows(x + 1, 3, 2) * 2, [x])

    assert_same(engine, model, x)
    assert_same(engine, model, x.flip(1))
    assert_same(engine, model, x.t().contiguous().t())


def test_sizes_vary_and_the_results_sizes_follow(plugins: ConverterPack) -> None:
    """By the expressions of the fake implementation, with several results of several dtypes."""

    def function(x: Tensor) -> Any:
        values, positions, positive = rank(windows(x, 4, 3).flatten(1) - 0.5, True, torch.float16)
        return values, positions + 1, positive

    model, engine = compiled(function, [rows(1, 5, 9, 12)])

    for count in (1, 2, 5, 9):
        assert_same(engine, model, torch.rand(count, 12))


def test_the_last_dimension_varies(plugins: ConverterPack) -> None:
    """A division of sizes is rounded down as in Python."""
    sizes = torchtrt.Input(min_shape=(2, 6), opt_shape=(2, 9), max_shape=(2, 20))
    model, engine = compiled(lambda x: windows(x, 3, 2).sum(-1), [sizes])

    for length in (6, 7, 8, 13, 20):
        assert_same(engine, model, torch.rand(2, length))


@pytest.mark.parametrize("mode", ["cat", "sum"])
def test_lists_texts_and_nothing_arrive_at_the_op(plugins: ConverterPack, mode: str) -> None:
    """Tensors in a list, of which one is there twice; infinite numbers too."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        parts = blend([x, y, x], [1.0, -0.5, 0.0], mode, None, [1])
        return blend([parts], [1.0], "sum", float("inf"))

    model, engine = compiled(function, [rows(1, 2, 4, 3), rows(1, 2, 4, 3)])

    for count in (1, 4):
        assert_same(engine, model, torch.rand(count, 3), torch.rand(count, 3))


def test_a_size_of_an_input_can_be_an_argument(plugins: ConverterPack) -> None:
    """The plugin computes it from the sizes of the call."""
    sizes = torchtrt.Input(min_shape=(2, 8), opt_shape=(3, 8), max_shape=(5, 8))
    model, engine = compiled(lambda x: windows(x, x.shape[0], 1).sum(1), [sizes])

    for count in (2, 3, 5):
        assert_same(engine, model, torch.rand(count, 8))


def test_weights_are_inputs_of_the_op(plugins: ConverterPack) -> None:
    """A refit reaches them."""
    model = Blending().eval()
    engine = torchtrt.compile(model, [torch.rand(3)], min_block_size=1, immutable_weights=False)
    assert_same(engine, model, torch.rand(3))

    other = Blending().eval()
    torchtrt.refit_module_weights(engine, other, in_place=True)

    assert_same(engine, other, torch.rand(3))


def test_an_op_with_random_results_is_computed_in_each_call(plugins: ConverterPack) -> None:
    """Of weights too, by PyTorch's tag for such ops."""

    class Noisy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.rand(4))

        def forward(self, x: Tensor) -> Tensor:
            return x + noise(self.scale)

    engine = torchtrt.compile(Noisy().eval(), [torch.rand(3, 4)], require_full_compilation=True)

    x = torch.zeros(3, 4)
    assert not torch.equal(engine(x), engine(x))


def test_threads_run_an_engine_side_by_side(plugins: ConverterPack) -> None:
    """With different sizes."""
    model, engine = compiled(lambda x: windows(x, 3, 2) + 1, [rows(1, 4, 8, 64)])
    problems: list[BaseException] = []

    def call(count: int) -> None:
        try:
            for _ in range(10):
                assert_same(engine, model, torch.rand(count, 64))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=call, args=(count,)) for count in (1, 3, 5, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [] == problems


def reason(function: Any, inputs: list[Any]) -> str:
    """Returns why the one op of a function stays in PyTorch."""
    report = torchtrt.explain(Function(function).eval(), inputs, min_block_size=1)
    (row,) = [row for row in report.in_torch if row.op.startswith("engine_kernels")]
    return row.reason


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: above(x + 1), "a plugin cannot compute the size .* is no size of its inputs"),
        (lambda x: on_gpu(x + 1), "no implementation for CPU tensors"),
        (lambda x: windows((x + 1).double(), 3), "float64"),
        (lambda x: windows((x + 1).to(torch.uint8), 3), "uint8"),
        (lambda x: windows(x[(None,) * 7], 3), "its input has 9 dimensions, .* at most 8"),
        (lambda x: windows(x[(None,) * 6], 3), "its result has 9 dimensions"),
    ],
)
def test_what_no_plugin_can_do_stays_in_pytorch(
    plugins: ConverterPack, function: Any, expected: str
) -> None:
    """With the reason."""
    assert re.search(expected, reason(function, [torch.rand(3, 4)]))


def test_a_tensorrt_without_plugins_leaves_the_op_to_pytorch(kernels: ConverterPack) -> None:
    """The reason names the version that has them."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        message = reason(lambda x: windows(x + 1, 3), [torch.rand(3, 4)])

    assert "plugins of the interface IPluginV3" in message
    assert "TensorRT has from version 10.0 on" in message


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (wrong, r"float32 \(2, 4\), and its fake implementation gives torch\.float32 \(3, 4\)"),
        (failing, "ValueError: the kernel gave up"),
        (sparse, r"The result 0 of .*sparse is torch\.sparse_coo\. Return a tensor with strides"),
    ],
)
def test_a_kernel_that_fails_or_lies_is_an_error_of_the_call(
    plugins: ConverterPack, op: Any, expected: str
) -> None:
    """The op's own error is in the message, and nothing is broadcast."""
    _, engine = compiled(lambda x: op(x + 1), [torch.rand(3, 4)])

    with pytest.raises(EngineError, match=expected):
        engine(torch.rand(3, 4))


def test_the_error_of_a_kernel_is_the_cause(plugins: ConverterPack) -> None:
    """With its traceback; what fails for another reason afterwards has no such cause."""
    _, engine = compiled(lambda x: failing(x + 1), [torch.rand(3, 4)])

    with pytest.raises(EngineError) as caught:
        engine(torch.rand(3, 4))

    assert isinstance(caught.value.__cause__, ValueError)
    frames = []
    trace = caught.value.__cause__.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "failing" in frames
    assert take_kernel_error() is None


def test_an_error_is_reported_once(plugins: ConverterPack) -> None:
    """The next engine that fails reports its own error alone."""
    for op, mine, other in ((failing, "gave up", "fake"), (wrong, "fake", "gave up")):
        _, engine = compiled(lambda x, op=op: op(x + 1), [torch.rand(3, 4)])
        with pytest.raises(EngineError, match=mine) as caught:
            engine(torch.rand(3, 4))
        assert other not in str(caught.value)


@torch.library.custom_op("engine_kernels::on_cpu", mutates_args=(), device_types="cpu")
def on_cpu(x: Tensor) -> Tensor:
    """Has an implementation for CPUs alone."""
    return x + 1


on_cpu.register_fake(torch.empty_like)


def test_the_doctor_names_a_plugin_that_no_gpu_can_run(
    kernels: ConverterPack, capsys: pytest.CaptureFixture[str]
) -> None:
    """A laptop runs it, and the server would not."""
    kernels.plugin(on_cpu)

    assert main(["doctor", "--json"]) == 1

    answer = json.loads(capsys.readouterr().out)
    (problem,) = [row for row in answer["problems"] if row["code"] == "no-kernel"]
    assert problem["pack"] == "kernels"
    assert (
        "its plugin of engine_kernels::on_cpu: it has no implementation for CUDA" in problem["what"]
    )
    assert 'register_kernel("engine_kernels::on_cpu", "cuda")' in problem["hint"]
