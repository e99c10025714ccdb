"""What PyTorch refuses when it runs is refused when it is compiled."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import torchtrt
from torchtrt.errors import UnsupportedProgramError
from torchtrt.testing import run_compiled

from .test_pack import Function

HALF = torch.float16


def one(*sizes, dtype=torch.float32):
    """Returns ones."""
    return torch.ones(sizes, dtype=dtype)


REFUSED = {
    "linear": (functional.linear, one(2, 3), one(4, 3, dtype=HALF)),
    "bias": (functional.linear, one(2, 3), one(4, 3), one(4, dtype=HALF)),
    "integers": (torch.matmul, one(2, 3), one(3, 4, dtype=torch.int32)),
    "double": (torch.mm, one(2, 3), one(3, 4, dtype=torch.float64)),
    "addmm": (torch.addmm, one(2, 4, dtype=HALF), one(2, 3), one(3, 4)),
    "mv": (torch.mv, one(2, 3), one(3, dtype=HALF)),
    "convolution": (functional.conv2d, one(1, 2, 4, 4), one(2, 2, 3, 3, dtype=HALF)),
    "transposed": (functional.conv_transpose1d, one(1, 2, 4), one(2, 2, 3, dtype=HALF)),
    "layer_norm": (lambda x, w: functional.layer_norm(x, (3,), w), one(2, 3), one(3, dtype=HALF)),
    "index_put": (lambda x, v: x.index_put((torch.tensor([0]),), v), one(3), one(1, dtype=HALF)),
    "index_add": (lambda x, v: x.index_add(0, torch.tensor([0]), v), one(3), one(1, dtype=HALF)),
    "grid": (
        lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
        one(1, 1, 3, 3, dtype=HALF),
        one(1, 2, 2, 2),
    ),
    "cdist": (torch.cdist, one(2, 3), one(2, 3, dtype=HALF)),
    "cross": (torch.linalg.cross, one(2, 3), one(2, 3, dtype=HALF)),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_operands_of_several_dtypes_are_refused_where_pytorch_refuses_them(case):
    """Exporting does not call the kernels."""
    function, *inputs = case
    with pytest.raises(RuntimeError):
        function(*inputs)
    with pytest.raises(UnsupportedProgramError, match=r"PyTorch does not compute aten.* Cast one"):
        torchtrt.compile(Function(function).eval(), inputs, min_block_size=1, truncate_double=True)


OTHERS = {
    "huber_loss": (functional.huber_loss, one(3, dtype=HALF), one(3)),
    "soft_margin_loss": (functional.soft_margin_loss, one(3, dtype=torch.bfloat16), one(3)),
}


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_an_op_that_exports_in_another_dtype_than_it_computes_is_refused(case):
    """Whatever reads its result would be converted for the wrong dtype."""
    function, first, second = case
    assert function(first, second).dtype is first.dtype
    with pytest.raises(UnsupportedProgramError, match=r"exports it as float32.* Cast one"):
        torchtrt.compile(Function(function).eval(), (first, second), min_block_size=1)
    compiled = torchtrt.compile(Function(function).eval(), (second, first), min_block_size=1)
    torch.testing.assert_close(compiled(second, first), function(second, first))


PROMOTED = {
    "integer-half": (torch.int64, HALF),
    "half-single": (HALF, torch.float32),
    "single-half": (torch.float32, HALF),
    "bool-half": (torch.bool, HALF),
    "integer-bfloat16": (torch.int64, torch.bfloat16),
    "integers": (torch.int32, torch.int64),
}


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")  # TensorRT 8.6 and bfloat16
@pytest.mark.parametrize("function", [torch.atan2, torch.copysign], ids=["atan2", "copysign"])
@pytest.mark.parametrize("dtypes", PROMOTED.values(), ids=PROMOTED)
def test_operands_of_several_dtypes_are_promoted_as_pytorch_promotes_them(
    version, function, dtypes
):
    """Integers beside half precision are half precision; integers alone are the default dtype."""
    operands = [
        torch.tensor(numbers).to(to) for numbers, to in zip(([1, 0], [-2, 1]), dtypes, strict=True)
    ]
    compiled = torchtrt.compile(Function(function).eval(), operands, min_block_size=1)
    torch.testing.assert_close(run_compiled(compiled, *operands), function(*operands))
    assert version == "reference@8.6.0" or not compiled.report.in_torch


def test_the_sign_of_a_number_goes_to_the_smallest_integer(version):
    """Its magnitude is no integer."""
    numbers = torch.tensor([-(2**31), 5], dtype=torch.int32)
    model = Function(lambda x: torch.copysign(x, 1.0)).eval()
    compiled = torchtrt.compile(model, (numbers,), require_full_compilation=True)
    torch.testing.assert_close(run_compiled(compiled, numbers), model(numbers))


def _filled(x, value):
    result = x * 1
    result[x > 0] = value
    return result


FILLED = {
    "integer": (one(3) * 2 - 1, torch.tensor(5)),
    "one-element": (one(3) * 2 - 1, torch.tensor([5])),
    "half": (one(3), torch.tensor(2.5, dtype=HALF)),
    "into-integers": (torch.tensor([1, -1, 2]), torch.tensor(2.7)),
    "bool": (one(3), torch.tensor(True)),
}


@pytest.mark.parametrize("case", FILLED.values(), ids=FILLED)
def test_a_mask_is_filled_with_an_element_of_another_dtype(version, case):
    """PyTorch casts one element, where it refuses several."""
    compiled = torchtrt.compile(Function(_filled).eval(), case, min_block_size=1)
    torch.testing.assert_close(run_compiled(compiled, *case), _filled(*case))


def test_what_pytorch_does_not_compute_of_constants_is_refused():
    """It is computed when the model is compiled, and eager PyTorch raises the same."""
    mask = torch.ones(3, dtype=torch.bool)
    with pytest.raises(UnsupportedProgramError, match=r"does not compute aten\.abs\.default"):
        torchtrt.compile(Function(lambda x: torch.abs(mask) + x).eval(), (one(3),))
    model = Function(lambda x: torch.copysign(torch.isfinite(one(3)), x)).eval()
    compiled = torchtrt.compile(model, (-one(3),), min_block_size=1)
    torch.testing.assert_close(compiled(-one(3)), model(-one(3)))


def test_an_error_names_the_op_the_dtypes_and_the_line():
    """A model in half precision that is given float32, through both front ends."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval().half()
    expected = r"aten\.linear\.default with float32 and float16, as the node linear would \(File .*linear\.py"
    with pytest.raises(UnsupportedProgramError, match=expected):
        torchtrt.compile(model, [one(2, 3)])
    with pytest.raises(Exception, match=r"does not compute aten\.addmm"):
        torch.compile(model, backend="torchtrt")(one(2, 3))


class Regions(nn.Module):
    """Autocast in one part of a model, and parameters in float32 beside an input in half precision."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            y = self.linear(x)
        return self.norm(y).float() + functional.batch_norm(
            y, torch.zeros(8, dtype=torch.float32), torch.ones(8, dtype=torch.float32)
        )


@pytest.mark.usefixtures("version")
def test_what_pytorch_computes_is_compiled():
    """Casts of autocast, and normalizations whose parameters are float32."""
    torch.manual_seed(0)
    model, x = Regions().eval().requires_grad_(False), torch.randn(4, 8)
    compiled = torchtrt.compile(model, [x], min_block_size=1)
    torch.testing.assert_close(compiled(x), model(x), rtol=2e-3, atol=2e-3)


def test_the_setting_autocast_casts_what_differs():
    """As ``torch.autocast`` around the model does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4).half(), nn.Linear(4, 2)).eval().requires_grad_(False)
    x = torch.rand(2, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        expected = model(x)
    compiled = torchtrt.compile(model, [x], min_block_size=1, autocast=torch.float16)
    torch.testing.assert_close(compiled(x).float(), expected.float(), rtol=2e-3, atol=2e-3)
