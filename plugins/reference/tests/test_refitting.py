"""Weights of an engine that are replaced, marked and stripped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.engines import engine_of, linear


def assert_doubles(engine: Any, bias: int) -> None:
    """Runs an engine, and compares its result with twice the input and a bias."""
    context = engine.create_execution_context()
    values, result = torch.randn(2, 3), torch.empty(2, 3)
    context.set_input_shape("x", (2, 3))
    context.set_tensor_address("x", values.data_ptr())
    context.set_tensor_address("y0", result.data_ptr())
    assert context.execute_async_v3(0)
    torch.testing.assert_close(result, 2 * values + bias)


def test_named_weights_can_be_refitted(version: str, bench: Any) -> None:
    """After a refit the engine computes with the new weights, and so does a copy made from its bytes."""
    n, y = linear(bench, version)
    n.config.set_flag(n.trt.BuilderFlag.REFIT)
    engine = engine_of(n, y)
    assert engine.refittable
    refitter = n.trt.Refitter(engine, n.logger)
    assert refitter.get_all_weights() == ["bias", "weight"]
    assert not refitter.set_named_weights("nobody", n.trt.Weights(n.bias))
    assert not refitter.set_named_weights("bias", n.trt.Weights(n.weight))
    assert refitter.set_named_weights("bias", n.trt.Weights(np.full((1, 3), 5, np.float32)))
    assert refitter.set_named_weights("weight", n.trt.Weights(2 * n.weight))
    assert refitter.refit_cuda_engine()
    reloaded = n.trt.Runtime(n.logger).deserialize_cuda_engine(bytes(engine.serialize()))
    for candidate in (engine, reloaded):
        assert_doubles(candidate, 5)


def test_weights_can_be_refitted_by_layer_and_role(version: str, bench: Any) -> None:
    """A convolution has a kernel and a bias, a constant layer its values."""
    n = bench(version)
    kernel, bias, shift = np.ones((1, 1, 1, 1)), np.zeros(1), np.full((1, 1, 1, 1), 3)
    kernel, bias, shift = (tensor.astype(np.float32) for tensor in (kernel, bias, shift))
    x = n.input(torch.ones(1, 1, 2, 2))
    convolution = n.net.add_convolution_nd(x, 1, (1, 1), kernel, bias)
    constant = n.net.add_constant(shift.shape, shift)
    convolution.name, constant.name = "convolution", "constant"
    y = n.net.add_elementwise(
        convolution.get_output(0), constant.get_output(0), n.trt.ElementWiseOperation.SUM
    ).get_output(0)
    n.config.set_flag(n.trt.BuilderFlag.REFIT)
    context = n.context(y)
    refitter, role = n.trt.Refitter(context.engine, n.logger), n.trt.WeightsRole
    positions = dict.fromkeys(zip(*refitter.get_all(), strict=True), True)
    assert set(positions) == {
        ("convolution", role.KERNEL),
        ("convolution", role.BIAS),
        ("constant", role.CONSTANT),
    }
    assert refitter.get_missing() == ([], [])
    assert refitter.set_weights("convolution", role.KERNEL, n.trt.Weights(2 * kernel))
    assert refitter.set_weights("constant", role.CONSTANT, n.trt.Weights(shift + 1))
    assert not refitter.set_weights("convolution", role.SCALE, n.trt.Weights(kernel))
    assert "SCALE weights of layer 'convolution'" in n.errors[-1]
    assert refitter.refit_cuda_engine()
    result = torch.empty(1, 1, 2, 2)
    context.set_tensor_address("o0", result.data_ptr())
    assert context.execute_async_v3(0)
    torch.testing.assert_close(result, torch.full_like(result, 6))


@pytest.mark.parametrize("individual", ["10.16.1", "11.4.0"])
def test_only_marked_weights_can_be_refitted_individually(individual: str, bench: Any) -> None:
    """REFIT_INDIVIDUAL takes the marks of the network."""
    n, y = linear(bench, individual)
    assert n.net.mark_weights_refittable("bias")
    n.config.set_flag(n.trt.BuilderFlag.REFIT_INDIVIDUAL)
    refitter = n.trt.Refitter(engine_of(n, y), n.logger)
    assert refitter.get_all_weights() == ["bias"]
    assert [role.name for role in refitter.get_all()[1]] == ["CONSTANT"]


@pytest.mark.parametrize("flags", [["STRIP_PLAN"], ["STRIP_PLAN", "REFIT"]])
def test_a_stripped_engine_runs_only_after_a_refit(flags: list[str], bench: Any) -> None:
    """Its plan lacks the named weights: a refit takes all of them or fails, and without one there is no context."""
    n, y = linear(bench, "10.16.1")
    for flag in flags:
        n.config.set_flag(getattr(n.trt.BuilderFlag, flag))
    engine = engine_of(n, y)
    assert engine.get_engine_stat(n.trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == 48
    assert engine.create_execution_context() is None
    assert "no values for the weights bias, weight" in n.errors[-1]
    refitter = n.trt.Refitter(engine, n.logger)
    assert refitter.get_missing_weights() == ["bias", "weight"]
    assert refitter.set_named_weights("weight", n.trt.Weights(2 * n.weight))
    assert refitter.get_missing_weights() == ["bias"]
    assert not refitter.refit_cuda_engine()
    assert "Stripped weights are missing: bias" in n.errors[-1]
    assert refitter.set_named_weights("bias", n.trt.Weights(n.bias + 1))
    assert refitter.refit_cuda_engine()
    assert refitter.get_missing_weights() == []
    config = engine.create_serialization_config()
    assert config.get_flag(n.trt.SerializationFlag.EXCLUDE_WEIGHTS)
    runtime = n.trt.Runtime(n.logger)
    again = runtime.deserialize_cuda_engine(bytes(engine.serialize_with_config(config)))
    assert again.create_execution_context() is None
    config.clear_flag(n.trt.SerializationFlag.EXCLUDE_WEIGHTS)
    whole = runtime.deserialize_cuda_engine(bytes(engine.serialize_with_config(config)))
    for candidate in (engine, whole):
        assert_doubles(candidate, 1)


def test_a_stripped_plan_keeps_weights_that_cannot_be_replaced(bench: Any) -> None:
    """With REFIT_INDIVIDUAL, only the marked weights are left out."""
    n, y = linear(bench, "11.4.0")
    assert n.net.mark_weights_refittable("bias")
    n.config.set_flag(n.trt.BuilderFlag.REFIT_INDIVIDUAL)
    n.config.set_flag(n.trt.BuilderFlag.STRIP_PLAN)
    refitter = n.trt.Refitter(engine_of(n, y), n.logger)
    assert refitter.get_missing_weights() == ["bias"]
    assert [role.name for role in refitter.get_missing()[1]] == ["CONSTANT"]


def test_an_engine_built_without_refit_has_no_refitter(version: str, bench: Any) -> None:
    """Making one is a TypeError, as in TensorRT."""
    n, y = linear(bench, version)
    engine = engine_of(n, y)
    with pytest.raises(TypeError, match="nullptr"):
        n.trt.Refitter(engine, n.logger)
    assert "BuilderFlag.REFIT" in n.errors[-1]
