"""PyTorch's export quantization with torchao, placed for TensorRT."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt
import torchtrt_rtx
from torchtrt.testing import tensorrts
from torchtrt_runtime import EngineModule

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torchao")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from torchtrt_converters_quantization.pt2e import TensorRTQuantizer

pytestmark = pytest.mark.filterwarnings("ignore")


class Model(nn.Module):
    """Convolutions with a residual sum, attention as two products, and linear layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.projections = nn.Linear(16, 48)
        self.last = nn.Linear(16, 8)

    def forward(self, x):
        """``(n, 3, 8, 8)`` to ``(n, 64, 8)``."""
        y = F.relu(self.first(x))
        y = F.relu(self.second(y) + y).flatten(2).transpose(1, 2)
        query, key, value = self.projections(y).chunk(3, -1)
        scores = (query @ key.transpose(1, 2) / 4).softmax(-1)
        return self.last(scores @ value)


def quantized(dtype=torch.float32, **options):
    """Returns a calibrated program and its input."""
    torch.manual_seed(0)
    model, x = Model().eval().to(dtype), torch.randn(2, 3, 8, 8).to(dtype)
    prepared = prepare_pt2e(torch.export.export(model, (x,)).module(), TensorRTQuantizer(**options))
    prepared(x)
    return torch.export.export(convert_pt2e(prepared), (x,)), x


def counts(compiled):
    """Returns how many nodes of each op were converted."""
    return {row.op.split(".")[1]: row.count for row in compiled.report.converted}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["float32", "float16"])
@pytest.mark.parametrize("tensorrt", tensorrts())
def test_inputs_and_weights_of_products_are_int8(tensorrt, dtype):
    """Values within a step of PyTorch's, which differ where a half is rounded to the other side."""
    program, x = quantized(dtype)
    expected = program.module()(x)

    with torchtrt.use_tensorrt(tensorrt):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    counted = counts(compiled)
    assert counted["dequantize_per_channel"] == 4
    assert (
        counted["dequantize_per_tensor"] == 9
    )  # inputs of four products, of two more two each, a residual
    assert (compiled(x) - expected).norm() < 0.01 * expected.norm()


@pytest.mark.parametrize("tensorrt", tensorrts())
def test_autocast_lowers_what_is_not_quantized(tensorrt):
    """Products keep their int8, and no cast is between them and their Quantize and Dequantize."""
    program, x = quantized()
    expected = program.module()(x)

    with torchtrt.use_tensorrt(tensorrt):
        plain = torchtrt.compile(program, require_full_compilation=True)
        compiled = torchtrt.compile(program, require_full_compilation=True, autocast=torch.float16)

    assert counts(plain)["dequantize_per_tensor"] == counts(compiled)["dequantize_per_tensor"]
    assert (compiled(x) - expected).norm() < 0.02 * expected.norm()


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
@pytest.mark.parametrize("autocast", [None, torch.float16], ids=["float32", "autocast"])
def test_nvidias_builder_accepts_the_networks(autocast):
    """For GPUs of compute capability 8.9."""
    program, _ = quantized()

    with torchtrt.use_tensorrt("rtx"):
        compiled = torchtrt.compile(
            program,
            require_full_compilation=True,
            autocast=autocast,
            target_compute_capabilities="8.9",
        )

    assert any(isinstance(module, EngineModule) for module in compiled.modules())


def test_products_of_matrices_may_be_left_out():
    """Where int8 loses too much of attention."""
    program, x = quantized(matrix_products=False)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    assert counts(compiled)["dequantize_per_tensor"] == 5
    assert compiled(x).shape == (2, 64, 8)


def test_an_infinite_input_is_the_largest_or_smallest_number():
    """As PyTorch rounds it; NaN has no INT8 number, and PyTorch's depends on the processor."""
    program, x = quantized()
    x = x.clone()
    x[0, 0, 0, 0], x[1, 1, 2, 2] = torch.inf, -torch.inf
    expected = program.module()(x)
    compiled = torchtrt.compile(program, require_full_compilation=True)
    assert expected.isfinite().all()
    assert (compiled(x) - expected).norm() < 0.01 * expected.norm()
