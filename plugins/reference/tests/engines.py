"""Engines of small networks."""

from __future__ import annotations

from typing import Any

import numpy as np


def engine_of(n: Any, *outputs: Any, profiles: int = 1) -> Any:
    """The engine of a network with (1..4, 3) as the range of ``x``, in each of some profiles."""
    for index, output in enumerate(outputs):
        output.name = f"y{index}"
        n.net.mark_output(output)
    for index in range(profiles):
        profile = n.builder.create_optimization_profile()
        profile.set_shape("x", (1 + index, 3), (2 + index, 3), (4 + index, 3))
        assert n.config.add_optimization_profile(profile) == index
    plan = n.builder.build_serialized_network(n.net, n.config)
    assert plan is not None, n.errors
    return n.trt.Runtime(n.logger).deserialize_cuda_engine(plan)


def linear(bench: Any, version: str) -> Any:
    """A bench with ``x @ weight + bias`` where both weights have names, and its output."""
    n = bench(version)
    x = n.net.add_input("x", n.trt.float32, (-1, 3))
    n.weight, n.bias = np.eye(3, dtype=np.float32), np.zeros((1, 3), np.float32)
    weight, bias = n.trt.Weights(n.weight), n.trt.Weights(n.bias)
    w, b = n.net.add_constant((3, 3), weight), n.net.add_constant((1, 3), bias)
    assert n.net.set_weights_name(weight, "weight")
    assert n.net.set_weights_name(bias, "bias")
    none = n.trt.MatrixOperation.NONE
    product = n.net.add_matrix_multiply(x, none, w.get_output(0), none).get_output(0)
    return n, n.net.add_elementwise(
        product, b.get_output(0), n.trt.ElementWiseOperation.SUM
    ).get_output(0)
