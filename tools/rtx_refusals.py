"""Prints what the builder of TensorRT for RTX refuses, in its own words: ``python -m tools.rtx_refusals``.

Each network has one layer. docs/rtx.md has the table, and a test of torchtrt-rtx compares it with the installed
version.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import torchtrt
from torchtrt.tensorrt.logging import ErrorLog, logger

Fill = Callable[[Any, Any, Any], Any]
"""Fills a network: takes TensorRT's module, the network and the builder configuration; returns its layer."""
_WEIGHTS = np.ones((8, 8), np.float32)
_LONGEST = 240
"""The maximum number of characters of a message."""


def _non_zero(trt: Any, network: Any, _: Any) -> Any:
    return network.add_non_zero(network.add_input("x", trt.bool, (2, 3)), trt.int64)


def _nms(trt: Any, network: Any, _: Any) -> Any:
    boxes = network.add_input("boxes", trt.float32, (1, 8, 4))
    scores = network.add_input("scores", trt.float32, (1, 8, 2))
    most = network.add_input("most", trt.int32, ())
    return network.add_nms(boxes, scores, most)


def _mixture_of_experts(trt: Any, network: Any, _: Any) -> Any:
    """Adds a mixture of 4 experts in float16, for 8 tokens that take 2 each."""
    hidden = network.add_input("hidden", trt.float16, (1, 8, 128))
    experts = network.add_input("experts", trt.int32, (1, 8, 2))
    scores = network.add_input("scores", trt.float16, (1, 8, 2))
    weights = [
        network.add_input(f"weight_{index}", trt.float16, shape)
        for index, shape in enumerate([(4, 128, 64), (4, 128, 64), (4, 64, 128)])
    ]
    layer = network.add_moe(hidden, experts, scores)
    layer.set_gated_weights(*weights, trt.MoEActType.SILU)
    return layer


def _deconvolution(trt: Any, network: Any, _: Any) -> Any:
    x = network.add_input("x", trt.bfloat16, (1, 4, 8, 8))
    kernel = network.add_input("kernel", trt.bfloat16, (4, 4, 2, 2))
    layer = network.add_deconvolution_nd(x, 4, (2, 2), trt.Weights(trt.bfloat16))
    layer.set_input(1, kernel)
    return layer


def _product(trt: Any, network: Any, dtype: Any) -> Any:
    x = network.add_input("x", dtype, (8, 8))
    return network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.NONE)


def _product_for_turing(dtype: str) -> Fill:
    def fill(trt: Any, network: Any, config: Any) -> Any:
        config.num_compute_capabilities = 1
        config.set_compute_capability(trt.ComputeCapability.SM75, 0)
        return _product(trt, network, getattr(trt, dtype))

    return fill


def _with_flag(name: str) -> Fill:
    def fill(trt: Any, network: Any, config: Any) -> Any:
        config.set_flag(getattr(trt.BuilderFlag, name))
        x = network.add_input("x", trt.float32, (8, 8))
        weights = network.add_constant((8, 8), trt.Weights(_WEIGHTS)).get_output(0)
        none = trt.MatrixOperation.NONE
        return network.add_matrix_multiply(x, none, weights, none)

    return fill


def _for_windows(trt: Any, network: Any, config: Any) -> Any:
    config.runtime_platform = trt.RuntimePlatform.WINDOWS_AMD64
    return _product(trt, network, trt.float32)


NETWORKS: dict[str, Fill] = {
    "a NonZero layer": _non_zero,
    "an NMS layer": _nms,
    "a mixture of experts": _mixture_of_experts,
    "a Deconvolution of bfloat16": _deconvolution,
    "a matrix product of float32 for 7.5": _product_for_turing("float32"),
    "a matrix product of bfloat16 for 7.5": _product_for_turing("bfloat16"),
    "the flag `REFIT` without a GPU": _with_flag("REFIT"),
    "the flag `STRIP_PLAN` without a GPU": _with_flag("STRIP_PLAN"),
    "the flag `VERSION_COMPATIBLE`": _with_flag("VERSION_COMPATIBLE"),
    "`RuntimePlatform.WINDOWS_AMD64`": _for_windows,
}


def words(fill: Fill) -> str:
    """Returns the first error that the builder of TensorRT for RTX gives for a network."""
    with torchtrt.use_tensorrt("rtx") as trt, ErrorLog() as log:
        builder = trt.Builder(logger())
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        config = builder.create_builder_config()
        with contextlib.suppress(RuntimeError):
            layer = fill(trt, network, config)
            for index in range(layer.num_outputs):
                network.mark_output(layer.get_output(index))
            builder.build_serialized_network(network, config)
        return shortened(log.text())


def shortened(text: str) -> str:
    """Returns the first message of a log without places in NVIDIA's code, and without the tensors of an operation."""
    first = text.partition("; [")[0].partition(" Install that library")[0].partition(" | ")[0]
    first = re.sub(r" In \w+ at /_src/[^\s)]+", "", " ".join(first.split()))
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]} …"


def table() -> Iterator[str]:
    """Yields the lines of the table."""
    yield "| network | message of the builder |"
    yield "|---|---|"
    for name, fill in NETWORKS.items():
        yield f"| {name} | `{words(fill)}` |"


if __name__ == "__main__":
    print("\n".join(table()))
