"""What TensorRT versions spell differently is decided by what they have."""

import pytest
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

        shims.allow_precisions(network, config)

        assert [False, True, False] == [x.precision_is_set for x in (before, between, after)]
        assert config.get_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)


def test_products_of_float16_are_computed_in_it_and_those_of_float32_in_that():
    """TensorRT 8.6 makes whole transformers float32, of twice the size, where nobody insists."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        builder = trt.Builder(trt.Logger())
        network, config = shims.create_network(builder), builder.create_builder_config()
        no_operation = trt.MatrixOperation.NONE
        products = []
        for place, dtype in enumerate((trt.float16, trt.float32)):
            x = network.add_input(f"x{place}", dtype, (2, 2))
            products.append(network.add_matrix_multiply(x, no_operation, x, no_operation))

        shims.allow_precisions(network, config)

        assert [trt.float16, trt.float32] == [product.precision for product in products]


class Mixed(torch.nn.Module):
    """Computes in float16, and in float32 what has never been anything else."""

    def __init__(self):
        super().__init__()
        self.narrow = torch.nn.Linear(3, 3, dtype=torch.float16)
        self.register_buffer("table", torch.rand(5, 3))

    def forward(self, x, indices):
        filled = torch.full_like(x, 1.0009)
        positions = torch.arange(x.shape[0]) * 0.1001
        return (
            self.narrow(x.half()),
            x * 1.0009 + filled,
            torch.softmax(x @ self.table.T, -1),
            self.table[indices] + x[indices],
            torch.sin(positions),
            torch.cumsum(x, 0),
            (indices + 4001).float() * 1.0009,
            x[:2].mean(-1),
        )


@pytest.mark.parametrize("varying", [False, True])
def test_float32_beside_float16_keeps_its_digits(varying):
    """Whatever a float32 tensor comes from: inputs, weights, numbers, sizes and integers."""
    model, x, indices = Mixed().eval(), torch.rand(4, 3), torch.tensor([3, 1, 2, 0])
    specs = [
        torchtrt.Input(min_shape=(2, 3), opt_shape=(4, 3), max_shape=(8, 3)) if varying else x,
        indices,
    ]
    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(model, specs, require_full_compilation=True)
    wanted = model(x, indices)
    torch.testing.assert_close(compiled(x, indices)[1:], wanted[1:], rtol=2e-6, atol=2e-6)
