"""Models that compute with complex numbers on the way are real to TensorRT."""

import pytest
import torch

import torchtrt
from tests.support.modules import Function
from torchtrt.testing import run_compiled

X, ANGLES = torch.linspace(-2, 3, 48).reshape(2, 4, 6), torch.linspace(0, 3, 12).reshape(4, 3)


def rotary(x, angles):
    """Returns rotary embeddings as Llama's own code has them."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


FIXED_TURN = torch.polar(torch.ones_like(ANGLES), ANGLES)

FUNCTIONS = {
    "rotary": rotary,
    "rotary-constant": lambda x, a: torch.view_as_real(
        torch.view_as_complex(x.reshape(2, 4, 3, 2)) * FIXED_TURN.unsqueeze(0)
    ).flatten(-2),
    "magnitude": lambda x, a: torch.fft.rfft(x).abs(),
    "angle": lambda x, a: torch.fft.rfft(x * x)[..., 1:3].angle(),
    "parts": lambda x, a: (torch.fft.fft(x).real, torch.fft.fft(x, dim=1).imag),
    "there-and-back": lambda x, a: torch.fft.irfft(torch.fft.rfft(x)),
    "of-a-real-spectrum": lambda x, a: torch.fft.irfft(x),
    "integers": lambda x, a: torch.fft.irfft2(x.to(torch.int64)),
    "booleans": lambda x, a: torch.fft.fft(x > 0).real,
    "one-dimension-of-several": lambda x, a: torch.fft.irfftn(x, dim=(0, -1), norm="ortho"),
    "hermitian": lambda x, a: torch.fft.hfft(x, n=7, norm="forward"),
    "padded-spectrum": lambda x, a: torch.fft.irfft(torch.fft.rfft(x), n=12),
    "odd-length": lambda x, a: torch.fft.irfft(torch.fft.rfft(x, n=5), n=5),
    "padded": lambda x, a: torch.fft.rfft(x, n=9).abs(),
    "two-dimensions": lambda x, a: torch.view_as_real(torch.fft.rfft2(x)),
    "two-dimensions-back": lambda x, a: torch.fft.irfft2(torch.fft.rfft2(x) * 2),
    "normalized": lambda x, a: torch.fft.fftn(x, norm="ortho").abs(),
    "inverse": lambda x, a: torch.fft.ifft(torch.fft.fft(x)).real,
    "convolution": lambda x, a: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(x + 1).conj()),
    "mixing": lambda x, a: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    "arithmetic": lambda x, a: (
        (torch.complex(x, -x) + 1) / torch.complex(x, x + 9) - 2j * x
    ).abs(),
    "exponential": lambda x, a: torch.exp(1j * a).real,
    "short-time": lambda x, a: torch.stft(
        x.reshape(3, 16), 6, 4, window=torch.hann_window(6), return_complex=True
    ).abs(),
    "short-time-inside": lambda x, a: torch.view_as_real(
        torch.stft(x.reshape(48), 7, center=False, window=torch.hann_window(7), return_complex=True)
    ),
    "product": lambda x, a: (torch.complex(x, x) @ torch.complex(a, -a).T[:3].repeat(2, 1)).imag,
    "power": lambda x, a: (
        torch.fft.rfft(x)[..., 1:] * torch.fft.rfft(x)[..., 1:].conj()
    ).real.mean(-1),
}


@pytest.mark.parametrize("label", FUNCTIONS)
def test_what_is_complex_on_the_way_is_converted(label, version):
    """Everything is in engines, and agrees with PyTorch."""
    model = Function(FUNCTIONS[label]).eval()
    compiled = torchtrt.compile(model, [X, ANGLES], require_full_compilation=True, min_block_size=1)
    torch.testing.assert_close(
        run_compiled(compiled, X, ANGLES), model(X, ANGLES), rtol=1e-4, atol=1e-4
    )


VARYING = {
    "fourier": lambda x: torch.view_as_real(torch.fft.fft(x)),
    "there-and-back": lambda x: torch.fft.irfft(torch.fft.rfft(x), n=9),
    "two-dimensions": lambda x: torch.fft.rfft2(x.unflatten(1, (4, 6))).abs(),
    "short-time": lambda x: torch.stft(
        x, 6, 4, window=torch.hann_window(6), return_complex=True
    ).abs(),
}


@pytest.mark.parametrize("label", VARYING)
def test_transforms_take_batches_that_vary(label, version):
    """What is transformed is fixed, and how many of them there are is not."""
    model = Function(VARYING[label]).eval()
    batch = torch.export.Dim("batch", min=1, max=9)
    compiled = torchtrt.compile(
        model,
        (torch.randn(3, 24),),
        dynamic_shapes={"inputs": ({0: batch},)},
        require_full_compilation=True,
    )
    for count in (1, 3, 9):
        inputs = torch.randn(count, 24)
        torch.testing.assert_close(
            run_compiled(compiled, inputs), model(inputs), rtol=1e-4, atol=1e-4
        )


def test_rotary_embeddings_take_sizes_that_vary(version):
    """Batch and length are dynamic."""
    batch, length = (torch.export.Dim(name, min=1, max=9) for name in ("batch", "length"))
    shapes = {"inputs": ({0: batch, 1: length}, {0: length})}
    model = Function(rotary).eval()
    exported = torch.export.export(model, (X, ANGLES), dynamic_shapes=shapes, strict=False)
    compiled = torchtrt.compile(exported, require_full_compilation=True, min_block_size=1)
    for sizes in ((1, 1), (3, 9)):
        inputs = torch.rand(*sizes, 6), torch.rand(sizes[1], 3)
        torch.testing.assert_close(
            run_compiled(compiled, *inputs), model(*inputs), rtol=1e-5, atol=1e-5
        )


LEFT = {
    "unknown op": (lambda x, a: torch.linalg.eigvals(x[:, :, :4]).abs(), "no rule for this op"),
    "large prime": (lambda x, a: torch.fft.rfft(x.reshape(-1), 1031).abs(), "prime factor"),
    "double precision": (
        lambda x, a: torch.fft.rfft(x).sum((0, 1), dtype=torch.complex128).abs(),
        "whose parts are float64",
    ),
}


@pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning")
@pytest.mark.parametrize("label", LEFT)
def test_what_has_no_real_form_stays_in_pytorch_with_the_reason(label):
    """The rest is in engines, with the same result."""
    function, reason = LEFT[label]
    model = Function(function).eval()
    compiled = torchtrt.compile(model, [X, ANGLES], min_block_size=1)

    torch.testing.assert_close(
        run_compiled(compiled, X, ANGLES), model(X, ANGLES), rtol=1e-4, atol=1e-4
    )
    assert any(reason in row.reason for row in compiled.report.in_torch)
    assert compiled.report.blocks


def test_a_long_transform_is_made_of_short_ones(version):
    """2400 is 48 times 50: one matrix would have six million elements."""
    model = Function(lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=2400)).eval()
    x = torch.randn(2, 2400)
    compiled = torchtrt.compile(model, [x], require_full_compilation=True)

    torch.testing.assert_close(run_compiled(compiled, x), model(x), rtol=1e-4, atol=1e-4)
