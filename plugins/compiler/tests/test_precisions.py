"""The precisions that layers of weakly typed networks require."""

import pytest
import torch

import torchtrt
from torchtrt import trt
from torchtrt.tensorrt import shims
from torchtrt_compiler.building.precisions import allow_precisions
from torchtrt_testing.faults import watched_tensorrt


def test_each_side_of_a_cast_is_computed_in_its_own_precision():
    """On a weakly typed TensorRT that may compute in either."""
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

        allow_precisions(network, config)

        expected = [trt.float16, trt.float32, trt.float16]
        assert expected == [x.precision for x in (before, between, after)]
        assert config.get_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)


def test_products_of_float16_are_computed_in_it_and_those_of_float32_in_that():
    """TensorRT 8.6 makes whole transformers float32, of twice the size, where no layer requires its type."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        builder = trt.Builder(trt.Logger())
        network, config = shims.create_network(builder), builder.create_builder_config()
        no_operation = trt.MatrixOperation.NONE
        products = []
        for index, dtype in enumerate((trt.float16, trt.float32)):
            x = network.add_input(f"x{index}", dtype, (2, 2))
            products.append(network.add_matrix_multiply(x, no_operation, x, no_operation))

        allow_precisions(network, config)

        assert [trt.float16, trt.float32] == [product.precision for product in products]


def test_what_does_not_build_in_float16_may_be_float32():
    """Myelin of TensorRT 8.6 compiles some networks in one of the two alone; products stay as they are."""

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.relu(x @ x + 1)

    precisions = []
    with torchtrt.use_tensorrt("reference@8.6.0"), watched_tensorrt() as tensorrt:

        class Builder(tensorrt.module.Builder):
            def build_serialized_network(self, network, config):
                held = [layer for layer in network if layer.precision_is_set]
                precisions.append([layer.precision for layer in held])
                is_built = [layer.type.name for layer in held] == ["MATRIX_MULTIPLY"]
                return super().build_serialized_network(network, config) if is_built else None

        tensorrt.module.Builder = Builder
        x = torch.rand(3, 3, dtype=torch.float16)
        compiled = torchtrt.compile(Model().eval(), [x], require_full_compilation=True)
        torch.testing.assert_close(compiled(x), Model()(x))
        held, left = precisions
        assert len(held) > len(left) == 1
        assert set(held + left) == {trt.float16}


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


def test_what_lies_between_int8_and_int8_requires_no_precision():
    """TensorRT 8.6 fuses a product, a sum, an activation and a Quantize where none of them does."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        builder = trt.Builder(trt.Logger())
        network, config = shims.create_network(builder), builder.create_builder_config()
        x = network.add_input("x", trt.float16, (1, 2))
        step = network.add_constant((), trt.Weights(torch.ones(()).numpy())).get_output(0)

        def int8(tensor):
            quantized = network.add_quantize(tensor, step).get_output(0)
            return network.add_dequantize(quantized, step).get_output(0)

        left, right = int8(x), int8(x)
        no_operation, transpose = trt.MatrixOperation.NONE, trt.MatrixOperation.TRANSPOSE
        product = network.add_matrix_multiply(left, no_operation, right, transpose)
        added = network.add_elementwise(
            product.get_output(0), product.get_output(0), trt.ElementWiseOperation.SUM
        )
        relu = network.add_activation(added.get_output(0), trt.ActivationType.RELU)
        last = network.add_activation(int8(relu.get_output(0)), trt.ActivationType.RELU)
        network.mark_output(last.get_output(0))

        allow_precisions(network, config, {left.name, right.name})

        free = product, added, relu
        assert not any(layer.precision_is_set or layer.output_type_is_set(0) for layer in free)
        assert config.get_flag(trt.BuilderFlag.INT8)
        assert config.get_flag(trt.BuilderFlag.FP16)
