"""Who watches: profilers, debug listeners, progress monitors, error recorders."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchtrt_reference import dtypes

NEWER = ["10.16.1", "11.4.0"]


def chain(n: Any) -> Any:
    """EXP, then NEG, then LOG of the absolute value, of three numbers."""
    tensor = n.input(torch.tensor([1.0, 2.0, 3.0]))
    for kind in ("EXP", "NEG", "ABS", "LOG"):
        layer = n.net.add_unary(tensor, getattr(n.trt.UnaryOperation, kind))
        layer.name = kind.lower()
        tensor = layer.get_output(0)
    return tensor


def profiler_of(trt: Any) -> Any:
    """A profiler that keeps what it receives."""

    class Kept(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.times: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times.append((layer_name, ms))

    return Kept()


def executed(n: Any, context: Any) -> None:
    """Executes a context of one output of three numbers."""
    result = torch.empty(3)
    context.set_tensor_address("o0", result.data_ptr())
    assert context.execute_async_v3(0), n.errors


def test_a_profiler_hears_of_every_layer_in_order(version: str, bench: Any) -> None:
    """Each execution reports the time of each layer; without a profiler nothing is measured."""
    n = bench(version)
    context = n.context(chain(n))
    executed(n, context)
    assert not context.report_to_profiler()
    context.profiler = profiler_of(n.trt)
    executed(n, context)
    assert [name for name, _ in context.profiler.times] == ["exp", "neg", "abs", "log"]
    assert all(milliseconds >= 0 for _, milliseconds in context.profiler.times)


def test_a_profile_can_be_asked_for_later(version: str, bench: Any) -> None:
    """With enqueue_emits_profile off, report_to_profiler reports the last execution, once."""
    n = bench(version)
    context = n.context(chain(n))
    context.profiler, context.enqueue_emits_profile = profiler_of(n.trt), False
    executed(n, context)
    assert context.profiler.times == []
    assert context.report_to_profiler()
    assert len(context.profiler.times) == 4
    assert not context.report_to_profiler()


@pytest.mark.parametrize("new", NEWER)
def test_a_debug_listener_sees_inner_tensors(new: str, bench: Any) -> None:
    """A marked tensor is kept by the build, and shown with its address, type, shape and name while its state is on."""
    n = bench(new)
    output = chain(n)
    inner = n.net[1].get_output(0)
    inner.name = "negative"
    assert n.net.mark_debug(inner)
    assert n.net.is_debug_tensor(inner)
    context = n.context(output)
    assert context.engine.is_debug_tensor("negative")
    assert not context.engine.is_debug_tensor("o0")
    seen: list[Any] = []

    class Listener(n.trt.IDebugListener):
        def process_debug_tensor(self, *args: Any) -> None:
            address, _, dtype, shape, name, _ = args
            cpu = torch.device("cpu")
            value = dtypes.tensor_at(address, dtypes.TORCH[dtype.name], tuple(shape), cpu)
            seen.append((name, value.clone()))

    context.set_debug_listener(Listener())
    executed(n, context)
    assert seen == []
    assert not context.set_tensor_debug_state("other", True)
    assert context.set_tensor_debug_state("negative", True)
    executed(n, context)
    assert [name for name, _ in seen] == ["negative"]
    torch.testing.assert_close(seen[0][1], -torch.tensor([1.0, 2.0, 3.0]).exp())
    assert context.set_all_tensors_debug_state(False)
    executed(n, context)
    assert len(seen) == 1


@pytest.mark.parametrize("new", NEWER)
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_progress_monitor_follows_a_build_and_may_end_it(
    new: str, goes_on: bool, bench: Any
) -> None:
    """Its phase starts, steps and finishes; a step that it answers with False is the last."""
    n = bench(new)
    events: list[Any] = []

    class Monitor(n.trt.IProgressMonitor):
        def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
            events.append(("start", num_steps))

        def step_complete(self, phase_name: str, step: int) -> bool:
            events.append(("step", step))
            return goes_on

        def phase_finish(self, phase_name: str) -> None:
            events.append(("finish",))

    n.config.progress_monitor = Monitor()
    plan = n.plan(chain(n))
    if goes_on:
        assert plan is not None
        assert events == [("start", 3), ("step", 0), ("step", 1), ("step", 2), ("finish",)]
    else:
        assert plan is None
        assert "cancelled" in n.errors[-1]
        assert events == [("start", 3), ("step", 0), ("finish",)]


def recorder_of(trt: Any) -> Any:
    """An error recorder that keeps code and description."""

    class Kept(trt.IErrorRecorder):
        def __init__(self) -> None:
            trt.IErrorRecorder.__init__(self)
            self.errors: list[tuple[Any, str]] = []

        def report_error(self, arg0: Any, arg1: str) -> bool:
            self.errors.append((arg0, arg1))
            return True

    return Kept()


def test_an_error_recorder_hears_what_the_logger_hears(version: str, bench: Any) -> None:
    """The network's before the builder's, the engine's before the runtime's; with TensorRT's error codes."""
    n = bench(version)
    on_builder, on_network, on_context = (recorder_of(n.trt) for _ in range(3))
    n.builder.error_recorder = on_builder
    assert n.plan() is None
    n.net.error_recorder = on_network
    assert n.builder.build_serialized_network(n.net, n.config) is None
    codes = n.trt.ErrorCodeTRT
    assert [code for code, _ in on_builder.errors] == [codes.INVALID_CONFIG]
    assert [code for code, _ in on_network.errors] == [codes.INVALID_CONFIG]
    assert "at least one output" in on_network.errors[0][1]
    context = n.context(chain(n))
    context.error_recorder = on_context
    assert not context.set_input_shape("unknown", (1,))
    assert [code for code, _ in on_context.errors] == [codes.INVALID_ARGUMENT]
    assert on_context.errors[0][1] == n.errors[-1]
