"""Models that torchao has quantized: weights that are subclasses of tensors."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_rtx
from torchtrt.errors import FullCompilationError
from torchtrt_reference import VERSIONS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchao = pytest.importorskip("torchao.quantization")
    from torchao.quantization.quant_primitives import MappingType

NEWER = [number for number in VERSIONS if number != "8.6.0"]
pytestmark = pytest.mark.filterwarnings("ignore")
GROUPS = torchao.PerGroup(32)
CONFIGS = {
    "int8": (torchao.Int8WeightOnlyConfig(), torch.float32, "int8", 1),
    "int8-half": (torchao.Int8WeightOnlyConfig(), torch.float16, "int8", 1),
    "int8-bfloat16": (torchao.Int8WeightOnlyConfig(), torch.bfloat16, "int8", 1),
    "int4-channels": (torchao.IntxWeightOnlyConfig(torch.int4), torch.float32, "int4", 0.5),
    "int4-groups": (torchao.IntxWeightOnlyConfig(torch.int4, GROUPS), torch.bfloat16, "int4", 0.5),
    "int4-half": (torchao.IntxWeightOnlyConfig(torch.int4, GROUPS), torch.float16, "int4", 0.5),
    "int8-groups": (torchao.IntxWeightOnlyConfig(torch.int8, GROUPS), torch.float32, "int8", 1),
    "float8": (torchao.Float8WeightOnlyConfig(), torch.bfloat16, "fp8", 1),
    "float8-float32": (torchao.Float8WeightOnlyConfig(), torch.float32, "fp8", 1),
}
"""For a name the configuration, the model's dtype, the format, and the bytes of a weight."""


class Model(nn.Module):
    """Linear layers of three-dimensional inputs."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(320, 512)
        self.second = nn.Linear(512, 256, bias=False)

    def forward(self, x):
        """``(n, length, 320)`` to ``(n, length, 256)``."""
        return self.second(torch.relu(self.first(x)))


def quantized(config, dtype):
    """Returns a model and an input for it."""
    torch.manual_seed(0)
    model = Model().eval().to(dtype).requires_grad_(False)
    torchao.quantize_(model, config)
    return model, torch.randn(2, 5, 320).to(dtype)


def plan_size(compiled):
    """Returns the bytes of all plans."""
    return sum(len(module.plan) for module in compiled.modules() if hasattr(module, "plan"))


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_stay_packed_and_results_are_torchaos(name, version):
    """Products are rounded once, in the model's dtype."""
    config, dtype, form, size = CONFIGS[name]
    model, x = quantized(config, dtype)
    expected = model(x).float()

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    counts = {row.op: row.count for row in compiled.report.converted}
    assert counts[f"torchtrt_quantization.dequantize_{form}.default"] == 2
    error = (compiled(x).float() - expected).norm() / expected.norm()
    assert error < {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    count = 320 * 512 + 512 * 256
    assert count * size < plan_size(compiled) < count * size * 1.3 + 12_000


@pytest.mark.parametrize("name", ["int8", "int8-half"])
def test_weights_of_int8_stay_packed_in_tensorrt_8(name):
    """Which has no other format."""
    config, dtype, _, _ = CONFIGS[name]
    model, x = quantized(config, dtype)
    expected = model(x).float()

    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    error = (compiled(x).float() - expected).norm() / expected.norm()
    assert error < {torch.float32: 1e-6, torch.float16: 1e-3}[dtype]
    assert plan_size(compiled) < (320 * 512 + 512 * 256) * 1.3 + 12_000


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("name", CONFIGS)
def test_nvidias_builder_accepts_the_networks(name):
    """For GPUs of compute capability 8.9."""
    model, x = quantized(*CONFIGS[name][:2])

    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            model, [x], require_full_compilation=True, target_compute_capabilities="8.9"
        )

    assert compiled.report.converted


MIXED = {
    "int4-zero-points": (
        torchao.IntxWeightOnlyConfig(torch.int4, GROUPS, MappingType.ASYMMETRIC),
        {"dequantize_int4": 2},
    ),
    "int8-zero-points": (
        torchao.IntxWeightOnlyConfig(torch.int8, mapping_type=MappingType.ASYMMETRIC),
        {"dequantize_int8": 2},
    ),
    "int8-one-dynamic-scale": (
        torchao.Int8DynamicActivationInt8WeightConfig(granularity=torchao.PerTensor()),
        {"dequantize_int8": 2, "fake_quantize_int8": 2},
    ),
}
"""For a name the configuration, and the pack's ops in the network."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", MIXED)
def test_zero_points_and_one_scale_of_all_inputs_are_ordinary_layers(name, dtype):
    """The weights stay packed, and the batch may vary."""
    config, wanted = MIXED[name]
    model, x = quantized(config, dtype)
    shapes = {f"{kind}_shape": (n, 5, 320) for kind, n in (("min", 1), ("opt", 2), ("max", 4))}
    batch = torchtrt.Input(**shapes, dtype=dtype)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [batch], require_full_compilation=True)

    rows = (row for row in compiled.report.converted if "torchtrt_quantization" in row.op)
    assert wanted == {row.op.split(".")[1]: row.count for row in rows}
    for tensor in (x, x[:1] * 3):
        expected = model(tensor).float()
        error = (compiled(tensor).float() - expected).norm() / expected.norm()
        assert error < {torch.float32: 1e-6, torch.bfloat16: 8e-3}[dtype]


class Tied(nn.Module):
    """A table of embeddings, and a head with the same weights."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(96, 64)
        self.head = nn.Linear(64, 96, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        """Returns logits."""
        return self.head(self.table(ids))


@pytest.mark.parametrize(
    "config",
    [torchao.Int8WeightOnlyConfig(), torchao.IntxWeightOnlyConfig(torch.int4, GROUPS)],
    ids=["int8", "int4"],
)
def test_embeddings_stay_packed(config):
    """torch.export keeps the op of an embedding on a subclass whole."""
    torch.manual_seed(0)
    model, ids = Tied().eval().requires_grad_(False), torch.arange(12).reshape(2, 6)
    torchao.quantize_(model, config, filter_fn=lambda module, _: hasattr(module, "weight"))

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [ids], require_full_compilation=True)

    torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-5, atol=1e-5)
    assert plan_size(compiled) < 2 * 96 * 64 + 8_000


def test_zero_points_of_embeddings_are_left_to_pytorch_with_the_reason():
    """Only a linear layer has sums of its inputs."""
    config = torchao.IntxWeightOnlyConfig(torch.int4, GROUPS, MappingType.ASYMMETRIC)
    model, ids = nn.Sequential(nn.Embedding(96, 64)).eval(), torch.arange(6)
    torchao.quantize_(model, config, filter_fn=lambda module, _: hasattr(module, "weight"))

    with torchtrt.use_tensorrt("reference@11.4.0"):
        message = "no zero points, and ordinary layers compute those of linear layers"
        with pytest.raises(FullCompilationError, match=message):
            torchtrt.compile(model, [ids], require_full_compilation=True)


def test_sizes_may_vary():
    """Of what is multiplied with quantized weights."""
    model, x = quantized(*CONFIGS["int8"][:2])
    shapes = ({0: torch.export.Dim("n", min=2, max=8)},)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    x = torch.randn(7, 5, 320)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


def dynamic_float8(granularity, dtype=torch.float32):
    """Returns a model with the weights of ``Float8DynamicActivationFloat8WeightConfig``, which asks for a GPU."""
    workflow = pytest.importorskip("torchao.quantization.quantize_.workflows.float8.float8_tensor")
    torch.manual_seed(0)
    model = Model().eval().to(dtype).requires_grad_(False)
    options = {"granularity": granularity, "mm_config": workflow.Float8MMConfig()}
    for layer in (model.first, model.second):
        kwargs = workflow.QuantizeTensorToFloat8Kwargs(**options)
        made = workflow.Float8Tensor.from_hp(layer.weight, act_quant_kwargs=kwargs, **options)
        layer.weight = nn.Parameter(made, requires_grad=False)
    return model, torch.randn(2, 5, 320).to(dtype)


def quantizing(compiled):
    """Returns how many of the pack's ops there are of each kind."""
    rows = (row for row in compiled.report.converted if "torchtrt_quantization" in row.op)
    return {row.op.split(".")[1]: row.count for row in rows}


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
def test_dynamic_int8_computes_what_torchao_computes(version, dtype):
    """A scale for each row of the input, which the network computes, and a product of int8."""
    model, x = quantized(torchao.Int8DynamicActivationInt8WeightConfig(), dtype)
    expected = model(x).float()

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    assert quantizing(compiled) == {"dequantize_int8": 2, "fake_quantize_int8": 2}
    assert (compiled(x).float() - expected).norm() / expected.norm() < 1e-3


@pytest.mark.parametrize(
    "granularity", [torchao.PerRow(), torchao.PerTensor()], ids=["row", "tensor"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_dynamic_float8_computes_what_torchao_computes(granularity, dtype):
    """A number between two of E4M3 may go to either."""
    model, x = dynamic_float8(granularity, dtype)
    expected = model(x).float()

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    assert quantizing(compiled) == {"dequantize_fp8": 2, "fake_quantize_fp8": 2}
    error = (compiled(x).float() - expected).norm() / expected.norm()
    assert error < {torch.float32: 2e-3, torch.bfloat16: 2e-2}[dtype]


def test_tensorrt_8_leaves_dynamic_float8_to_pytorch():
    """With the version that has the format."""
    model, x = dynamic_float8(torchao.PerRow())

    with torchtrt.use_tensorrt("reference@8.6.0"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    reasons = {row.op.split(".")[1]: row.reason for row in compiled.report.in_torch}
    assert "from version 10.0 on" in reasons["fake_quantize_fp8"]
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_dynamic_inputs_with_zero_points_are_computed_by_ordinary_layers(dtype):
    """With integers that stay floating point, beside weights that stay packed."""
    config = torchao.Int8DynamicActivationIntxWeightConfig(torch.int4, GROUPS)
    model, x = quantized(config, dtype)
    expected = model(x).float()

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    assert quantizing(compiled) == {"dequantize_int4": 2}
    error = (compiled(x).float() - expected).norm() / expected.norm()
    assert error < {torch.float32: 1e-3, torch.bfloat16: 2e-2}[dtype]


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("name", ["int8", "row", "tensor"])
def test_nvidias_builder_accepts_dynamic_inputs(name):
    """For GPUs of compute capability 8.9."""
    config = torchao.Int8DynamicActivationInt8WeightConfig()
    granularity = {"row": torchao.PerRow(), "tensor": torchao.PerTensor()}
    is_int8 = name == "int8"
    model, x = (
        quantized(config, torch.bfloat16)
        if is_int8
        else dynamic_float8(granularity[name], torch.bfloat16)
    )

    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            model, [x], require_full_compilation=True, target_compute_capabilities="8.9"
        )

    assert sum(quantizing(compiled).values()) == 4


def test_rows_of_a_dynamic_input_may_vary():
    """Each has its scale."""
    model, x = quantized(torchao.Int8DynamicActivationInt8WeightConfig(), torch.float32)
    shapes = ({0: torch.export.Dim("n", min=2, max=8)},)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    x = torch.randn(7, 5, 320)
    assert (compiled(x) - model(x)).norm() < 1e-3 * model(x).norm()


def test_a_product_of_integers_that_no_quantization_made_is_left_to_pytorch():
    """TensorRT's int8 is what its layers have quantized."""

    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randint(-100, 100, (64, 32), dtype=torch.int8))

        def forward(self, x):
            return torch._int_mm(x.to(torch.int8), self.weight).to(torch.float32)

    model, x = Product(), torch.randint(-100, 100, (32, 64)).float()

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert "aten._int_mm.default" in {row.op for row in compiled.report.in_torch}
    assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize("version", VERSIONS)
def test_asymmetric_weights_have_torchaos_values(version):
    """A zero point is no part of TensorRT's formats."""
    config = torchao.IntxWeightOnlyConfig(torch.int4, mapping_type=torchao.MappingType.ASYMMETRIC)
    model, x = quantized(config, torch.float32)
    expected = model(x)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert (compiled(x) - expected).norm() / expected.norm() < 1e-5


DYNAMIC = (torchao.Int8DynamicActivationInt8WeightConfig(), torch.float32, "int8", 1)


@pytest.mark.parametrize("name", ["int8", "int4-groups", "int8-dynamic"])
def test_replaced_weights_are_packed_again(name):
    """Of a subclass, the tensors inside are the model's weights."""
    config, dtype, _, _ = {**CONFIGS, "int8-dynamic": DYNAMIC}[name]
    model, x = quantized(config, dtype)
    other = Model().eval().to(dtype).requires_grad_(False)
    torchao.quantize_(other, config)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            model, [x], require_full_compilation=True, immutable_weights=False
        )

    refitted = torchtrt.refit_module_weights(compiled, other)

    expected = other(x).float()
    assert (refitted(x).float() - expected).norm() / expected.norm() < 8e-3
    assert abs(plan_size(refitted) - plan_size(compiled)) < 100


@pytest.mark.parametrize("version", VERSIONS)
def test_tables_of_int8_that_are_no_weights_keep_their_values(version):
    """With factors that are no scales: negative ones, and zeros."""

    class Tables(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("row", torch.randint(-100, 100, (300,), dtype=torch.int8))
            self.register_buffer("table", torch.randint(-100, 100, (8, 8), dtype=torch.int8))
            self.register_buffer("factors", torch.tensor([1.0, -2, 0, 3, 0.5, -1, 0, 7]))

        def forward(self, x):
            scaled = (self.row.to(torch.float32) * -0.5)[:8]
            return x * scaled + self.table.to(x.dtype) * self.factors + self.table.float().t() @ x

    model, x = Tables(), torch.randn(8, 8)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    torch.testing.assert_close(compiled(x), model(x))
