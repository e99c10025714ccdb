"""What PyTorch refuses when it runs is refused when it is compiled."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import torchtrt
from torchtrt.errors import UnsupportedProgramError

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
    """Exporting does not ask the kernels."""
    function, *inputs = case
    with pytest.raises(RuntimeError):
        function(*inputs)
    with pytest.raises(UnsupportedProgramError, match=r"PyTorch does not compute aten.* Cast one"):
        torchtrt.compile(Function(function).eval(), inputs, min_block_size=1, truncate_double=True)


def test_an_error_names_the_op_the_dtypes_and_the_line():
    """A model in half precision that is given float32, through both front doors."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval().half()
    expected = (
        r"aten\.linear\.default with float32 and float16, as linear would \(File .*linear\.py"
    )
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
