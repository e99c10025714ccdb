"""Models that torchao has quantized: weights that are subclasses of tensors."""

import warnings

import pytest
import torch
from torch import nn

import torchtrt
import torchtrt_rtx
from torchtrt_reference import VERSIONS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchao = pytest.importorskip("torchao.quantization")

NEWER = [each for each in VERSIONS if each != "8.6.0"]
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
    return sum(len(each.plan) for each in compiled.modules() if hasattr(each, "plan"))


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


def test_sizes_may_vary():
    """Of what is multiplied with quantized weights."""
    model, x = quantized(*CONFIGS["int8"][:2])
    shapes = ({0: torch.export.Dim("n", min=2, max=8)},)
    program = torch.export.export(model, (x,), dynamic_shapes=shapes, strict=False)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    x = torch.randn(7, 5, 320)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_dynamic_int8_computes_what_torchao_computes(version):
    """A scale for each row of the input, which the network computes."""
    model, x = quantized(torchao.Int8DynamicActivationInt8WeightConfig(), torch.float32)
    expected = model(x)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert (compiled(x) - expected).norm() / expected.norm() < 1e-3


@pytest.mark.parametrize("version", VERSIONS)
def test_asymmetric_weights_have_torchaos_values(version):
    """A zero point is no part of TensorRT's formats."""
    config = torchao.IntxWeightOnlyConfig(torch.int4, mapping_type=torchao.MappingType.ASYMMETRIC)
    model, x = quantized(config, torch.float32)
    expected = model(x)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert (compiled(x) - expected).norm() / expected.norm() < 1e-5


@pytest.mark.parametrize("name", ["int8", "int4-groups"])
def test_replaced_weights_are_packed_again(name):
    """Of a subclass, the tensors inside are the model's weights."""
    config, dtype, _, _ = CONFIGS[name]
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
