"""What TensorRT versions spell differently is decided by what they have."""

import torch

import torchtrt
from torchtrt import trt
from torchtrt.tensorrt import shims


def test_what_is_cast_to_float32_is_computed_in_float32_beside_float16():
    """On a weakly typed TensorRT that may compute in float16, layers behind such a cast insist on float32."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        logger = trt.Logger()
        builder = trt.Builder(logger)
        network, config = shims.create_network(builder), builder.create_builder_config()
        half = network.add_input("x", trt.float16, (2,))
        before = network.add_unary(half, trt.UnaryOperation.EXP)
        single = shims.add_cast(network, before.get_output(0), torch.float32)
        between = network.add_unary(single, trt.UnaryOperation.EXP)
        narrow = shims.add_cast(network, between.get_output(0), torch.float16)
        after = network.add_unary(narrow, trt.UnaryOperation.ABS)

        shims.allow_precisions(network, config, half=True)

        assert [False, True, False] == [x.precision_is_set for x in (before, between, after)]
        assert config.get_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
