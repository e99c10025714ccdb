"""Decompositions as PyTorch writes them: in place, with several outputs, with constants; and why one does not help."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import FullCompilationError, SettingsError
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Returns a function with everything in engines."""
    return torchtrt.compile(Function(function).eval(), inputs, require_full_compilation=True)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x: torch.nanmean(x, 1), (torch.randn(3, 4),)),  # writes in place
        (lambda x, y: F.poisson_nll_loss(x, y, full=True), (torch.randn(3, 4), torch.rand(3, 4))),
        (lambda x, y: F.cross_entropy(x, y), (torch.randn(3, 4), torch.tensor([0, 3, 1]))),
        (lambda x, y: torch.block_diag(x, y), (torch.randn(3, 4), torch.randn(2, 1))),
    ],
    ids=["in-place", "in-place-and-more", "several-outputs", "constants"],
)
def test_a_decomposition_is_used_however_it_is_written(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]
) -> None:
    """Writes become functional ops, unused outputs go, and constants are computed."""
    torch.testing.assert_close(compiled(function, *inputs)(*inputs), function(*inputs))


def test_the_reason_of_a_part_is_told() -> None:
    """For a decomposition that does not help, the reason names the part that is not converted, and why."""
    with pytest.raises(
        FullCompilationError, match=r"needs aten\.reshape\.default: .* 8 dimensions"
    ):
        compiled(lambda x: F.pixel_shuffle(x, 2), torch.randn(1, 1, 1, 1, 4, 2, 2))


def test_the_reason_of_a_decomposition_that_does_not_apply_is_told() -> None:
    """Where a pack's decomposition gives a reason, the report has it."""
    with pytest.raises(FullCompilationError, match="does not apply: new elements have no values"):
        compiled(lambda x: torch.ops.aten.resize.default(x, [100]), torch.randn(3))


IMAGES = torchtrt.Input(
    min_shape=(1, 3, 32, 32), opt_shape=(2, 3, 64, 64), max_shape=(4, 3, 128, 128)
)


def test_a_decomposition_knows_the_ranges_of_sizes() -> None:
    """PyTorch caches from exporting that it could not decide whether a computed size is 1."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.AdaptiveAvgPool2d((2, 3))).eval()
    compiled = torchtrt.compile(model, [IMAGES], require_full_compilation=True)
    for shape in (IMAGES.bounds[0], (2, 3, 33, 100), IMAGES.bounds[2]):
        x = torch.rand(shape)
        torch.testing.assert_close(compiled(x), model(x), atol=1e-4, rtol=1e-4)


@contextlib.contextmanager
def decomposed(op: Any, function: Any) -> Iterator[None]:
    """Lets a pack decompose an op by a function in a ``with`` block."""
    pack = ConverterPack("decomposing")
    pack.decomposition(op)(function)
    with use_packs():
        add_pack(pack, PackInfo("decomposing", "their-decomposing", "1.2", "/packs"))
        yield


def test_a_question_that_a_decomposition_may_not_ask_is_told() -> None:
    """In the words of the model's sizes, without the compiler's own."""
    op = torch.ops.aten.igamma.default

    def asking(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y if x.shape[2] % 2 == 0 else x

    model = Function(lambda x: torch.igamma(x, x) * 2).eval()
    with decomposed(op, asking):
        compiled = torchtrt.compile(model, [IMAGES], min_block_size=1)

    (stayed,) = compiled.report.in_torch
    assert "its decomposition asks whether Eq(Mod(" in stayed.reason
    assert "NewAssumptionError" not in stayed.reason


DIFFERENT = {
    "dtype": (lambda x, y: (x + y).half(), "returns float16 of (3) where the op returns float32"),
    "rank": (lambda x, y: (x + y)[None], "returns float32 of (1, 3) where the op returns"),
    "sizes": (lambda x, y: (x + y)[:2], "returns float32 of (2) where the op returns"),
    "number": (lambda x, y: 2, "returns no tensor where the op returns float32 of (3)"),
}


@pytest.mark.parametrize("case", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("is_pytorch", [True, False], ids=["PyTorch", "pack"])
def test_a_decomposition_with_other_results_than_the_op_is_not_used(
    monkeypatch: pytest.MonkeyPatch, case: Any, is_pytorch: bool
) -> None:
    """What reads the results is converted for the dtype and sizes of the op."""
    function, reason = case
    op = torch.ops.aten.igamma.default
    if is_pytorch:
        monkeypatch.setitem(torch._decomp.decomposition_table, op, function)
    x = torch.rand(3) + 1

    model = Function(lambda x: torch.igamma(x, x) * 2).eval()
    with contextlib.nullcontext() if is_pytorch else decomposed(op, function):
        compiled = torchtrt.compile(model, (x,), min_block_size=1)

    torch.testing.assert_close(compiled(x), model(x))
    (stayed,) = compiled.report.in_torch
    assert reason in stayed.reason


ATTENTION = {
    "plain": lambda x: F.scaled_dot_product_attention(x, x, x),
    "causal": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "booleans": lambda x: F.scaled_dot_product_attention(x, x, x, x[0, 0] @ x[0, 0].T > 2),
    "added": lambda x: F.scaled_dot_product_attention(x, x, x, x[0, 0] @ x[0, 0].T, scale=0.3),
    "no-keys": lambda x: F.scaled_dot_product_attention(x, x, x, x[0, 0] @ x[0, 0].T > 99),
    "fewer-heads": lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_a_decomposition_that_is_asked_for_is_used(name: str, version: str) -> None:
    """Of attention, too, of which PyTorch chooses a kernel that is one op again."""
    x = torch.rand(2, 4, 8, 16)
    op = "aten.scaled_dot_product_attention.default"
    compiled = torchtrt.compile(
        Function(ATTENTION[name]).eval(),
        (x,),
        torch_enabled_decompositions={op},
        require_full_compilation=True,
    )

    ops = {row.op for row in compiled.report.converted}
    assert not [op for op in ops if "attention" in op]
    assert {"aten.bmm.default", "aten._softmax.default"} <= ops
    torch.testing.assert_close(compiled(x), ATTENTION[name](x))


def test_a_decomposition_that_is_asked_for_is_more_than_another_name(version: str) -> None:
    """``_scaled_dot_product_attention_math`` is no decomposition where the same converter takes it."""
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    x = torch.rand(2, 4, 8, 16)
    model = Function(lambda x: op(x, x, x)[0]).eval()
    compiled = torchtrt.compile(
        model, (x,), torch_enabled_decompositions={op}, require_full_compilation=True
    )

    assert "aten._softmax.default" in {row.op for row in compiled.report.converted}
    torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.parametrize(
    ("function", "op", "reason"),
    [
        (lambda x: F.conv2d(x, torch.ones(4, 4, 3, 3)), "aten.conv2d", "it is for integers"),
        (lambda x: torch.mm(x[0, 0], x[0, 0].T), "aten.mm", "neither a pack nor PyTorch has"),
    ],
    ids=["does-not-apply", "none"],
)
def test_a_decomposition_that_is_asked_for_and_cannot_be_used_is_an_error(
    function: Callable[..., Any], op: str, reason: str
) -> None:
    """The setting would have no effect."""
    with pytest.raises(SettingsError, match=reason):
        torchtrt.compile(
            Function(function).eval(), (torch.rand(2, 4, 8, 16),), torch_enabled_decompositions={op}
        )


class Counter(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the input times the number of calls."""
        self.calls.add_(x.abs().clamp(1, 1))
        return x * self.calls


def test_writing_results_back_is_no_computation() -> None:
    """A model that writes to its buffers can be compiled with everything in engines."""
    model = torchtrt.compile(
        Counter().eval(), (torch.randn(3),), require_full_compilation=True, min_block_size=1
    )
    x = torch.randn(3)
    torch.testing.assert_close(model(x), x)
    torch.testing.assert_close(model(x), x * 2)
