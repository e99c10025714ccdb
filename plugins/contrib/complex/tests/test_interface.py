"""Complex inputs, outputs, weights and buffers, and all that a compiled model may be put through."""

import copy

import pytest
import torch
from torch import nn
from torch.export import Dim

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import InputError
from torchtrt.testing import run_compiled
from torchtrt_runtime.modules.engine import EngineModule

C64 = torch.complex64
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def numbers(*shape):
    """Returns random complex numbers."""
    return torch.randn(*shape, dtype=C64)


def apply_rotary_emb(xq, xk, freqs_cis):
    """Returns turned queries and keys, as Llama's own code has it."""
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


class Attention(nn.Module):
    """Llama's attention, which receives the rotation as complex numbers."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, freqs_cis):
        parts = [w(x).unflatten(-1, (self.heads, -1)) for w in (self.wq, self.wk, self.wv)]
        query, key = apply_rotary_emb(parts[0], parts[1], freqs_cis)
        result = nn.functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), parts[2].transpose(1, 2), is_causal=True
        )
        return self.wo(result.transpose(1, 2).flatten(2))


def test_rotary_embeddings_given_as_complex_inputs_are_one_engine(version):
    """The view of the input splits nothing, and lengths vary."""
    model, length = Attention().eval(), Dim("length", min=2, max=9)
    inputs = torch.randn(2, 5, 16), torch.polar(torch.ones(5, 2), torch.randn(5, 2))
    shapes = {"x": {1: length}, "freqs_cis": {0: length}}
    compiled = torchtrt.compile(
        model, inputs, dynamic_shapes=shapes, require_full_compilation=True, min_block_size=1
    )

    assert 1 == len([module for module in compiled.modules() if isinstance(module, EngineModule)])
    for count in (2, 5, 9):
        operands = torch.randn(2, count, 16), numbers(count, 2)
        torch.testing.assert_close(run_compiled(compiled, *operands), model(*operands), **CLOSE)


FUNCTIONS = {
    "arithmetic": lambda a, b: a * b - 1j / (a + 3) + b.conj(),
    "products": lambda a, b: (a @ b.mH, torch.einsum("ij,kj->ik", a, b), torch.vdot(a[0], b[0])),
    "functions": lambda a, b: (
        a.exp(),
        a.log(),
        a.sqrt(),
        a.sin(),
        a.tan(),
        a.asin(),
        a**b,
        a**0.5,
    ),
    "reductions": lambda a, b: (a.sum(), a.mean(1), a.prod(0), a.cumprod(1), a.var(), a.norm()),
    "transforms": lambda a, b: (torch.fft.fftn(a), torch.fft.ifft(b), torch.fft.fftshift(a)),
    "movement": lambda a, b: (torch.cat([a, b]), torch.where(a.real > 0, a, b), a[1:, ::2], a.T),
    "to real": lambda a, b: (a.abs(), b.angle(), a.conj().imag, torch.view_as_real(a) + 1),
    "an input": lambda a, b: (a, a.real + b.imag),
}


@pytest.mark.parametrize("label", FUNCTIONS)
def test_complex_inputs_and_outputs(label, version):
    """All of it is in engines, except for the views."""
    model, inputs = Function(FUNCTIONS[label]).eval(), (numbers(3, 4), numbers(3, 4))
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True, min_block_size=1)

    torch.testing.assert_close(run_compiled(compiled, *inputs), model(*inputs), **CLOSE)


def test_sizes_that_vary_in_several_ranges(version):
    """The ranges are those of the complex tensor, and so are the messages."""
    ranges = [((1, 4), (2, 4), (4, 4)), ((16, 4), (32, 4), (64, 4))]
    model = Function(lambda x: x * 2j + x.conj()).eval()
    compiled = torchtrt.compile(
        model, [torchtrt.Input(ranges=ranges, dtype=C64)], require_full_compilation=True
    )

    for count in (1, 3, 16, 64):
        x = numbers(count, 4)
        torch.testing.assert_close(run_compiled(compiled, x), model(x), **CLOSE)
    with pytest.raises(InputError, match="is 8, but the model was compiled for 1 to 4"):
        compiled(numbers(8, 4))
    with pytest.raises(
        InputError, match=r"torch\.float32, but the model was compiled for torch.complex64"
    ):
        compiled(torch.randn(2, 4))


LAYOUTS = {
    "transposed": lambda: numbers(4, 3).T,
    "every second": lambda: numbers(3, 8)[:, ::2],
    "conjugated": lambda: numbers(3, 4).conj(),
    "negated": lambda: torch._neg_view(numbers(3, 4)),
    "both": lambda: torch._neg_view(numbers(4, 3).mH),
    "expanded": lambda: numbers(1, 4).expand(3, 4),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout):
    """What PyTorch has not conjugated or negated yet is."""
    model, x = Function(lambda x: x * 2 + 1j).eval(), LAYOUTS[layout]()
    compiled = torchtrt.compile(
        model, [numbers(3, 4)], require_full_compilation=True, min_block_size=1
    )

    torch.testing.assert_close(run_compiled(compiled, x), model(x).resolve_conj(), **CLOSE)


class Cache(nn.Module):
    """A complex weight, and a complex buffer that grows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(numbers(3, 3))
        self.register_buffer("seen", torch.zeros(4, 3, dtype=C64))

    def forward(self, x, position):
        self.seen.index_copy_(0, position, x @ self.weight)
        return (self.seen * 2).sum(0)


def test_a_model_writes_to_a_complex_buffer():
    """Only what is new is written."""
    model = Cache().eval()
    same = copy.deepcopy(model)
    compiled = torchtrt.compile(
        model, [numbers(1, 3), torch.tensor([1])], require_full_compilation=True, min_block_size=1
    )

    for start in (0, 2):
        inputs = numbers(1, 3), torch.tensor([start])
        torch.testing.assert_close(compiled(*inputs), same(*inputs).detach(), **CLOSE)
    torch.testing.assert_close(model.seen, same.seen.detach(), **CLOSE)
    assert "aten.index_copy_.default" in {row.op for row in compiled.report.in_torch}


def test_a_model_writes_to_a_complex_input():
    """The caller's tensor changes as in eager PyTorch."""

    class Model(nn.Module):
        def forward(self, x):
            x.mul_(2j)
            return x + 1

    model, x = Model().eval(), numbers(3)
    same = x.clone()
    compiled = torchtrt.compile(model, [numbers(3)], min_block_size=1)

    torch.testing.assert_close(compiled(x), model(same), **CLOSE)
    torch.testing.assert_close(x, same, **CLOSE)


def test_complex_weights_are_refitted():
    """Both parts follow from the weight."""
    before, after = (nn.Linear(4, 3, dtype=C64).eval() for _ in range(2))
    x = numbers(2, 4)
    compiled = torchtrt.compile(before, [x], min_block_size=1, immutable_weights=False)

    refitted = torchtrt.refit_module_weights(compiled, torch.export.export(after, (x,)))

    torch.testing.assert_close(refitted(x), after(x).detach(), **CLOSE)


def test_a_saved_model_takes_complex_inputs(tmp_path):
    """Both for torchtrt.load and for torch.export.load."""
    model, x = Function(lambda x: (x @ x.mH, x.abs())).eval(), numbers(3, 4)
    compiled = torchtrt.compile(model, [x], require_full_compilation=True, min_block_size=1)
    torchtrt.save(compiled, tmp_path / "model.pt2")

    for loaded in (
        torchtrt.load(tmp_path / "model.pt2"),
        torch.export.load(tmp_path / "model.pt2").module(),
    ):
        for tensor in (x, x.conj()):
            torch.testing.assert_close(loaded(tensor), model(tensor), **CLOSE)


def test_the_backend_of_torch_compile():
    """Dynamo's graphs have complex inputs and outputs as well."""
    model = Function(lambda x, w: ((x @ w) * 1j, torch.fft.fft(x).real.sum())).eval()
    compiled = torch.compile(model, backend="torchtrt", options={"min_block_size": 1})
    x, w = numbers(3, 4), numbers(4, 2)

    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w), model(x, w), **CLOSE)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
def test_double_precision_is_truncated_only_on_request(truncate):
    """complex128 consists of float64."""
    model, x = Function(lambda x: (x * 2j).abs() + 1).eval(), numbers(3).to(torch.complex128)
    compiled = torchtrt.compile(model, [x], min_block_size=1, truncate_double=truncate)

    torch.testing.assert_close(compiled(x), model(x), **CLOSE)
    assert truncate == bool(compiled.report.blocks)


def test_half_precision():
    """complex32 consists of float16; its products are computed in float32, as PyTorch does."""
    model = Function(
        lambda a: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(a))
    ).eval()
    x = torch.randn(3, 2).half()
    compiled = torchtrt.compile(model, [x], require_full_compilation=True, min_block_size=1)

    torch.testing.assert_close(run_compiled(compiled, x), model(x), rtol=1e-2, atol=1e-2)


def test_an_op_that_settings_keep_stays_whole():
    """The rule of an op is not used where PyTorch is to run the op."""
    model, x = Function(lambda x: (x * 2j).exp() + 1).eval(), numbers(3)
    compiled = torchtrt.compile(
        model, [x], min_block_size=1, torch_executed_ops={"aten.exp.default"}
    )

    torch.testing.assert_close(compiled(x), model(x), **CLOSE)
    (row,) = [row for row in compiled.report.in_torch if row.op == "aten.exp.default"]
    assert ("user-excluded",) == row.codes


def test_control_flow_over_complex_numbers_stays_in_pytorch():
    """With the reason, and the same result."""

    class Model(nn.Module):
        def forward(self, condition, x):
            y = x * 2
            return torch.cond(condition, lambda x: x * 2j, lambda x: x.conj() + 1, (y,)).abs() + 1

    model, x = Model().eval(), numbers(3)
    exported = torch.export.export(model, (torch.tensor(True), x), strict=False)
    compiled = torchtrt.compile(exported, min_block_size=1)

    for condition in (True, False):
        inputs = torch.tensor(condition), x
        torch.testing.assert_close(compiled(*inputs), model(*inputs), **CLOSE)
    assert any("complex" in row.reason for row in compiled.report.in_torch)
