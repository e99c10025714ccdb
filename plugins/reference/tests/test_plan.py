"""A plan is either the one that was built, or refused: damage never passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchtrt_reference as reference
from tests.support.processes import run_python
from torchtrt_reference.graphs.plan import UnreadablePlanError, decode


def _plan() -> bytes:
    trt = reference.load()
    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (1, 2, 5, 5))
    kernel = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
    layer = network.add_convolution_nd(x, 3, (3, 3), trt.Weights(kernel))
    network.mark_output(layer.get_output(0))
    return bytes(builder.build_serialized_network(network, builder.create_builder_config()))


PLAN = _plan()


def test_a_whole_plan_loads_with_its_constants_as_views() -> None:
    """The constants lie in the plan's own bytes, aligned, and are not copied."""
    description, owner = decode(PLAN, reference.DEFAULT_VERSION)
    (constant,) = description.graph.constants.values()
    assert constant.shape == (3, 2, 3, 3)
    start = owner.ctypes.data
    assert start <= constant.data_ptr() < start + len(PLAN)
    assert (constant.data_ptr() - start) % 64 == 0


def test_a_plan_survives_a_round_trip() -> None:
    """An engine serializes to the bytes it came from."""
    trt = reference.load()
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(PLAN)
    assert bytes(engine.serialize()) == PLAN


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(PLAN) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_noticed(position: int, change: int) -> None:
    """Any change of any byte is refused."""
    damaged = bytearray(PLAN)
    damaged[position] ^= change
    with pytest.raises(UnreadablePlanError):
        decode(bytes(damaged), reference.DEFAULT_VERSION)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(PLAN) - 1))
def test_a_truncated_plan_is_noticed(length: int) -> None:
    """A plan that ends early is refused."""
    with pytest.raises(UnreadablePlanError):
        decode(PLAN[:length], reference.DEFAULT_VERSION)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_plan(data: bytes) -> None:
    """Bytes from elsewhere are refused."""
    with pytest.raises(UnreadablePlanError):
        decode(data, reference.DEFAULT_VERSION)


def with_branches(n: Any) -> bytes:
    """A plan of ``exp(x) + 3`` or ``-x + 3``, the sum in a loop of three."""
    x = n.net.add_input("x", n.trt.float32, (3,))
    made = n.net.add_if_conditional()
    made.set_condition(n.net.add_input("choice", n.trt.bool, ()))
    inside = made.add_input(x).get_output(0)
    branches = [
        n.net.add_unary(inside, getattr(n.trt.UnaryOperation, kind)).get_output(0)
        for kind in ("EXP", "NEG")
    ]
    loop = n.net.add_loop()
    loop.add_trip_limit(n.const(3, np.int32), n.trt.TripLimit.COUNT)
    carried = loop.add_recurrence(made.add_output(*branches).get_output(0))
    following = n.net.add_elementwise(
        carried.get_output(0), n.const([1.0]), n.trt.ElementWiseOperation.SUM
    )
    carried.set_input(1, following.get_output(0))
    output = loop.add_loop_output(carried.get_output(0), n.trt.LoopOutput.LAST_VALUE)
    plan = n.plan(output.get_output(0))
    assert plan is not None, n.errors
    return bytes(plan)


ELSEWHERE = """
import sys
import torch
import torchtrt_reference as reference

for version, path in zip(sys.argv[1::2], sys.argv[2::2]):
    trt = reference.load(version)
    with open(path, "rb") as file:
        engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(file.read())
    context, x, result = engine.create_execution_context(), torch.tensor([0.0, 1, 2]), torch.empty(3)
    for taken in (True, False):
        choice = torch.tensor(taken)
        for name, tensor in (("x", x), ("choice", choice), ("o0", result)):
            context.set_tensor_address(name, tensor.data_ptr())
        assert context.execute_async_v3(0)
        torch.testing.assert_close(result, (x.exp() if taken else -x) + 3)
"""


def test_a_plan_runs_in_another_process(bench: Any, tmp_path: Path) -> None:
    """Conditionals, loops and constants are all in the plan, of every version."""
    arguments = []
    for version in reference.VERSIONS:
        path = tmp_path / version
        path.write_bytes(with_branches(bench(version)))
        arguments += [version, str(path)]
    done = run_python("-c", ELSEWHERE, *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_damaged_plan_gives_no_engine_and_an_error(version: str, bench: Any) -> None:
    """``deserialize_cuda_engine`` returns None and logs what to do."""
    n = bench(version)
    assert n.trt.Runtime(n.logger).deserialize_cuda_engine(PLAN[:-1]) is None
    assert "Build the engine again" in n.errors[-1]


def test_an_engine_outlives_the_bytes_it_came_from() -> None:
    """The engine keeps the plan's memory alive."""
    trt = reference.load()
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(bytes(bytearray(PLAN)))
    context = engine.create_execution_context()
    values, first, second = (
        torch.randn(1, 2, 5, 5),
        torch.empty(1, 3, 3, 3),
        torch.empty(1, 3, 3, 3),
    )
    for result in (first, second):
        context.set_tensor_address(engine.get_tensor_name(0), values.data_ptr())
        context.set_tensor_address(engine.get_tensor_name(1), result.data_ptr())
        assert context.execute_async_v3(0)
        _ = [bytes(len(PLAN)) for _ in range(50)]
    torch.testing.assert_close(first, second, rtol=0, atol=0)
