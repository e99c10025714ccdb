"""Plans for other versions and streamed weights: what the flags need, and what they allow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import torchtrt_reference as reference

STREAMING = [
    v for v in reference.VERSIONS if hasattr(reference.load(v).BuilderFlag, "WEIGHT_STREAMING")
]


def plan_of(n: Any, *flags: str) -> Any:
    """The plan of ``x * 2`` over eight numbers, or None."""
    x = n.net.add_input("x", n.trt.float32, (8,))
    two = n.const(np.full(8, 2, np.float32))
    for flag in flags:
        n.config.set_flag(getattr(n.trt.BuilderFlag, flag))
    return n.plan(n.net.add_elementwise(x, two, n.trt.ElementWiseOperation.PROD).get_output(0))


def loaded(n: Any, plan: Any, allowed: bool) -> Any:
    """The engine in a plan, loaded by a runtime that may run code in plans."""
    runtime = n.trt.Runtime(n.logger)
    runtime.engine_host_code_allowed = allowed
    return runtime.deserialize_cuda_engine(plan)


def doubles(engine: Any) -> bool:
    """Whether an engine computes what it should."""
    context, x, result = engine.create_execution_context(), torch.rand(8), torch.empty(8)
    for name, tensor in (("x", x), ("o0", result)):
        context.set_tensor_address(name, tensor.data_ptr())
    assert context.execute_async_v3(0)
    return torch.equal(result, x * 2)


def test_a_version_compatible_plan_needs_trust(version: str, bench: Any) -> None:
    """It has code in it; without the lean runtime it has none."""
    n = bench(version)
    plan = bytes(plan_of(n, "VERSION_COMPATIBLE"))
    assert loaded(n, plan, False) is None
    assert "engine_host_code_allowed = True" in n.errors[-1]
    assert doubles(loaded(n, plan, True))
    other = bench(version)
    assert doubles(
        loaded(other, plan_of(other, "VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"), False)
    )


@pytest.mark.parametrize(
    "flags", [(), ("VERSION_COMPATIBLE",), ("VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME")], ids=str
)
def test_a_plan_loads_in_later_versions_only_with_its_runtime(
    flags: tuple[str, ...], bench: Any
) -> None:
    """Never in an earlier one."""
    versions = list(reference.VERSIONS)
    for built in versions:
        plan = bytes(plan_of(bench(built), *flags))
        for runs in versions:
            n = bench(runs)
            engine = loaded(n, plan, True)
            later = flags == ("VERSION_COMPATIBLE",) and versions.index(runs) > versions.index(
                built
            )
            assert (engine is not None) == (built == runs or later), (built, runs)
            if engine is None:
                assert f"built by TensorRT {built}, this is {runs}" in n.errors[-1]
            else:
                assert doubles(engine)


def test_hardware_compatibility_is_in_the_engine(version: str, bench: Any) -> None:
    """As it was asked for."""
    n = bench(version)
    n.config.hardware_compatibility_level = n.trt.HardwareCompatibilityLevel.AMPERE_PLUS
    engine = loaded(n, plan_of(n), False)
    assert engine.hardware_compatibility_level == n.trt.HardwareCompatibilityLevel.AMPERE_PLUS


@pytest.mark.parametrize("streaming", STREAMING)
def test_weights_stream_by_a_budget_that_is_set_before_contexts(streaming: str, bench: Any) -> None:
    """From nothing to all of them; what is not valid is logged and changes nothing."""
    n = bench(streaming)
    engine = loaded(n, plan_of(n, "WEIGHT_STREAMING"), False)
    size = engine.streamable_weights_size
    assert size == 32 == engine.weight_streaming_budget_v2
    assert 0 <= engine.get_weight_streaming_automatic_budget() <= size
    for budget, expected in ((16, 16), (0, 0), (1000, size)):
        engine.weight_streaming_budget_v2 = budget
        assert engine.weight_streaming_budget_v2 == expected
    engine.weight_streaming_budget_v2 = -1
    assert "0 or more" in n.errors[-1]
    engine.weight_streaming_budget_v2 = 8
    assert doubles(engine)
    context = engine.create_execution_context()
    engine.weight_streaming_budget_v2 = 16
    assert "while there are contexts" in n.errors[-1]
    assert engine.weight_streaming_budget_v2 == 8
    del context


@pytest.mark.parametrize("streaming", STREAMING)
def test_without_the_flag_no_weights_stream(streaming: str, bench: Any) -> None:
    """The budget cannot be set."""
    n = bench(streaming)
    engine = loaded(n, plan_of(n), False)
    assert engine.streamable_weights_size == 0
    engine.weight_streaming_budget_v2 = 8
    assert "WEIGHT_STREAMING" in n.errors[-1]


def test_only_strongly_typed_networks_stream_weights(bench: Any) -> None:
    """TensorRT 10 has networks of both kinds."""
    n = bench("10.16.1", flags=("EXPLICIT_BATCH",))
    assert plan_of(n, "WEIGHT_STREAMING") is None
    assert "strongly typed" in n.errors[-1]
