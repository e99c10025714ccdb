"""Which forms of DynamicQuantize NVIDIA's builder accepts: the pack `quantization` emits these, and no others."""

import numpy as np
import pytest

import torchtrt_rtx

pytestmark = pytest.mark.skipif(
    not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed"
)


def build(trt, capability, block, values, scales, dtype="FLOAT", double=None):
    """Returns a plan that quantizes a matrix and dequantizes it, or None, and what the builder wrote."""
    written = []

    class Logger(trt.ILogger):
        """Keeps errors."""

        def __init__(self):
            trt.ILogger.__init__(self)

        def log(self, severity, message):
            """Keeps an error."""
            if severity <= trt.ILogger.Severity.ERROR:
                written.append(message)

    kinds, logger = trt.DataType, Logger()
    builder = trt.Builder(logger)
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    x = network.add_input("x", getattr(kinds, dtype), (256, 256))
    types = getattr(kinds, values), getattr(kinds, scales)
    if isinstance(block, tuple):
        layer = network.add_dynamic_quantize_v2(x, block, *types)
    else:
        layer = network.add_dynamic_quantize(x, 1, block, *types)
    if layer is None:
        return None, str(written)
    result, step = layer.get_output(0), layer.get_output(1)
    if double:
        factor = network.add_constant((), trt.Weights(np.float32([0.5]))).get_output(0)
        if double != "FLOAT":
            factor = network.add_cast(factor, getattr(kinds, double)).get_output(0)
        layer.set_input(1, factor)
        step = network.add_dequantize(step, factor, getattr(kinds, dtype)).get_output(0)
    dequantize = network.add_dequantize(result, step, getattr(kinds, dtype))
    if dequantize is None:
        return None, str(written)
    if isinstance(block, tuple):
        dequantize.block_shape = block
    network.mark_output(dequantize.get_output(0))
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, capability), 0)
    return builder.build_serialized_network(network, config), str(written)


@pytest.mark.parametrize("dtype", ["FLOAT", "HALF", "BF16"])
def test_the_builder_accepts_what_the_pack_emits(dtype, rtx):
    """NVFP4 with a float32 factor, whatever the dtype of the values, and MXFP8."""
    for capability, case in (
        ("SM120", (16, "FP4", "FP8", dtype, "FLOAT")),
        ("SM120", (32, "FP8", "E8M0", dtype)),
        ("SM89", (32, "FP8", "E8M0", dtype)),
    ):
        plan, written = build(rtx, capability, *case)
        assert plan is not None, written


REFUSED = [
    ("SM120", (16, "FP4", "FP8", "FLOAT", "HALF"), "double_quant_type == myelinTypeFloat"),
    ("SM120", (16, "FP4", "FP8"), "with `scaleOutput` kFP8 requires two inputs"),
    ("SM120", ((1, 16), "FP4", "FP8", "FLOAT", "FLOAT"), "must have scalar block_size"),
    ("SM120", (64, "FP8", "E8M0"), "supports only 16 or 32 element blocks"),
    ("SM120", ((1, 32), "FP8", "FLOAT"), "Dynamic Quantization Op block_size 32 is not supported"),
    ("SM120", ((1, 128), "FP8", "FLOAT"), "Op block_size 128 is not supported"),
    ("SM120", ((1, 256), "FP8", "FLOAT"), "No blocked dimension found"),
    ("SM120", ((1, 16), "INT8", "FLOAT"), "has type Int8 but must have type FP8 or FP4"),
    ("SM89", (16, "FP4", "FP8", "FLOAT", "FLOAT"), "HW-specific datatypes: fp4_e2m1"),
    ("SM86", (32, "FP8", "E8M0"), "HW-specific datatypes: fp8_e4m3"),
]
"""A compute capability, a form, and what the builder writes."""


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_the_builder_refuses_other_forms(case, rtx):
    """Blocks of 128 and whole rows, so that the pack computes their scales with ordinary layers, and INT8."""
    capability, form, message = REFUSED[case]

    plan, written = build(rtx, capability, *form)

    assert plan is None
    assert message in written
