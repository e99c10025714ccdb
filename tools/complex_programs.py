"""Compiles random programs over complex numbers and compares them with eager PyTorch.

``python -m tools.complex_programs --seconds 600 --first 0 --tensorrt reference@8.6.0 --tensorrt reference@11.4.0``

A program is a chain of random ops on complex and real tensors: arithmetic, functions, products, reductions, movement,
transforms, conversions, and ops that stay in PyTorch. Its number is its seed. Results that change much with a slightly
other input, as beside branch cuts, are not compared. The tool prints each difference with the source of the program.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import torchtrt
from torchtrt.errors import NoEngineWarning

VERSIONS = ("reference@8.6.0", "reference@10.16.1", "reference@11.4.0")
TOLERANCE = 2e-3
"""Of the largest magnitude of a result: chains of ops amplify the differences of single ones."""
LARGEST = 1e4
"""Programs with larger values in between are not compared: they differ by rounding alone."""

UNARY = (
    "{0}.exp()",
    "({0} + (0.3 + 0.013j)).log()",
    "({0} + (0.011 + 0.013j)).sqrt()",
    "{0}.sin()",
    "{0}.cos()",
    "{0}.tanh()",
    "{0}.sinh()",
    "{0}.cosh()",
    "({0} + (0.011 + 0.013j)).asin()",
    "({0} + (0.011 + 0.013j)).acos()",
    "({0} + (0.011 + 0.013j)).atan()",
    "({0} + (0.011 + 0.013j)).asinh()",
    "({0} + (0.011 + 0.013j)).acosh()",
    "({0} + (0.011 + 0.013j)).atanh()",
    "{0}.sgn()",
    "{0}.square()",
    "{0}.conj()",
    "-{0}",
    "{0}.conj_physical()",
    "torch.sigmoid({0})",
    "({0} + 2).reciprocal()",
    "({0} + (2 + 0.013j)).rsqrt()",
    "({0} + 0.013j).log1p()",
    "{0}.expm1()",
    "{0}.exp2()",
    "({0} + (2 + 0.013j)).log2()",
    "({0} + (2 + 0.013j)).log10()",
    "{0} ** 2",
    "{0} ** 3",
    "({0} + (2 + 0.013j)) ** 1.5",
    "({0} + (2 + 0.013j)) ** -2",
    "({0} + (2 + 0.013j)) ** (0.5 + 0.25j)",
    "2.0 ** {0}",
    "{0} * 1j",
    "{0} + (1 - 2j)",
    "1j - {0}",
    "{0} / (2 + 1j)",
    "(1 + 1j) / ({0} + 3)",
    "torch.resolve_conj({0}.conj())",
    "{0}.nan_to_num()",
    "torch.zeros_like({0}) + {0}",
    "torch.ones_like({0}) * {0}",
    "torch.full_like({0}, 2j) + {0}",
    "{0}.clone()",
    "{0}.contiguous()",
    "torch.view_as_complex(torch.view_as_real({0}) * 2)",
    "{0}.view(torch.float32).view(torch.complex64)",
)
"""Ops that keep the shape of a complex tensor."""
MOVES = (
    "{0}.T",
    "{0}.mT",
    "{0}.mH",
    "{0}.flip(0)",
    "{0}.roll(1, 1)",
    "{0}.reshape(-1, {0}.shape[0])",
    "{0}.tril()",
    "{0}.triu(1)",
    "{0}.unsqueeze(0).expand(2, -1, -1).sum(0)",
    "torch.cat([{0}, {0}.conj()], 0)[:{0}.shape[0]]",
    "{0}[:, torch.arange({0}.shape[1]).flip(0)]",
    "torch.stack([{0}, {0} * 2]).mean(0)",
    "{0}.repeat(2, 1)[::2]",
    "torch.where({0}.real > 0.1, {0}, 1j)",
    "{0}.masked_fill({0}.imag < -0.1, 2.0)",
    "torch.nn.functional.pad({0}, (1, 1))[:, 1:-1]",
    "{0}.cumsum(1)",
    "torch.chunk({0}, 2, 1)[0].repeat(1, 2)",
    "{0}.unbind(0)[-1].expand({0}.shape[0], -1)",
    "{0}.index_select(0, torch.tensor([0])).expand({0}.shape[0], -1)",
    "{0}.movedim(0, 1)",
    "{0}.gather(0, torch.zeros(1, {0}.shape[1], dtype=torch.int64)).expand({0}.shape[0], -1)",
    "{0}.slice_scatter({0}[:1] * 2, 0, 0, 1)",
    "torch.diag_embed({0}).sum(-1)",
    "{0}.index_put((torch.tensor([0]),), {0}[-1:])",
    "torch.rot90({0}, 2)",
    "torch.fft.fftshift({0})",
    "torch.fft.ifftshift({0}, 0)",
)
"""Ops that move elements of a complex matrix and return a complex matrix."""
TRANSFORMS = (
    "torch.fft.fft({0}, norm='ortho')",
    "torch.fft.ifft({0}, norm='ortho')",
    "torch.fft.fft({0}, dim=0, norm='ortho')",
    "torch.fft.fft2({0}, norm='ortho')",
    "torch.fft.ifft2({0}, norm='ortho')",
    "torch.fft.fftn({0}, norm='forward')",
    "torch.fft.rfft({0}.real, norm='ortho')",
    "torch.fft.ihfft({0}.imag, norm='ortho')",
    "torch.fft.irfft({0}, n=6, norm='ortho') + 0j",
    "torch.fft.hfft({0}, n=4, norm='ortho') * 1j",
    "torch.fft.fft({0}, n=5, norm='ortho')",
    "torch.fft.rfft2({0}.real, norm='ortho')",
    "torch.fft.irfft2({0}, norm='ortho') + 1j",
)
"""Fourier transforms of a complex matrix to a complex matrix."""
BINARY = (
    "{0} + {1}",
    "{0} - {1}",
    "{0} * {1}",
    "{0} / ({1} + 3)",
    "torch.addcmul({0}, {1}, {1}, value=0.5)",
    "torch.lerp({0}, {1}, 0.25)",
    "{0}.add({1}, alpha=2)",
    "{0}.sub({1}, alpha=1j)",
    "({0} + (2 + 0.013j)) ** ({1} * 0.1)",
    "torch.where({0}.abs() > 1, {0}, {1})",
)
"""Ops of two complex matrices of one shape."""
MIXED = (
    "{0} * {1}",
    "{0} + {1}",
    "{1} - {0}",
    "{1} / ({0} + 3)",
    "{0} / ({1}.abs() + 1)",
    "torch.complex({1}, {1} + 1) * {0}",
    "torch.polar({1}.abs(), {1}) + {0}",
    "{0} * ({1}.to(torch.int64) * 2 + 1)",
)
"""Ops of a complex and a real matrix of one shape."""
PRODUCTS = (
    "{0} @ {0}.mH",
    "torch.einsum('ij,kj->ik', {0}, {0}.conj())",
    "{0}.mT @ {0}",
    "torch.addmm({0} @ {0}.mT, {0}, {0}.mH, beta=0.5, alpha=2)",
    "torch.bmm({0}.unsqueeze(0), {0}.mH.unsqueeze(0)).squeeze(0)",
    "torch.nn.functional.linear({0}, {0})",
    "torch.outer({0}[0], {0}[:, 0])",
    "{0} @ {0}.real.mT.to(torch.complex64)",
    "torch.linalg.multi_dot([{0}, {0}.mH, {0}])",
    "torch.kron({0}[:1], {0}[:, :1])",
)
"""Products of a complex matrix with itself."""
REAL = (
    "{0}.real",
    "{0}.imag",
    "{0}.abs()",
    "({0} + (0.011 + 0.013j)).angle()",
    "{0}.conj().imag",
    "torch.view_as_real({0})[..., 0]",
    "{0}.abs() ** 2",
    "({0} * {0}.conj()).real",
    "({0} != 0).float()",
    "{0}.isfinite().float()",
    "{0}.abs().softmax(-1)",
    "torch.isclose({0}, {0} * 1.5).float()",
    "{0}.logical_not().float()",
    "{0}.view(torch.float32)[:, ::2]",
)
"""Functions from a complex to a real matrix of its shape."""
REDUCTIONS = (
    "{0}.sum()",
    "{0}.sum(1)",
    "{0}.mean(0, keepdim=True)",
    "{0}.mean()",
    "{0}.prod(1)",
    "{0}.cumprod(1)",
    "{0}.var(0, correction=0)",
    "{0}.std(1)",
    "{0}.norm()",
    "torch.linalg.vector_norm({0}, 1, dim=1)",
    "{0}.any(1)",
    "{0}.count_nonzero(0)",
    "torch.trace({0})",
    "torch.vdot({0}[0], {0}[-1])",
    "torch.dot({0}[0], {0}[-1])",
    "torch.linalg.vecdot({0}, {0} + 1)",
    "{0}.sum(0, dtype=torch.complex64)",
    "{0}.std()",
)
"""Reductions of a complex matrix."""
IN_PYTORCH = (
    "torch.linalg.matrix_exp({0} @ {0}.mH * 0.01)",
    "torch.linalg.svdvals({0}) + 0j",
    "({0}.to(torch.complex128) * 1j).to(torch.complex64)",
    "torch.linalg.eigvals({0} @ {0}.mH).abs().sort().values * 1j",
)
"""Ops without a rule."""


@dataclass
class Program:
    """A random program.

    Attributes:
        seed: Its number.
        lines: Its assignments.
        complex_names: The complex matrices so far.
        real_names: The real matrices so far.
        results: What it returns.
    """

    seed: int
    lines: list[str] = field(default_factory=list)
    complex_names: list[str] = field(default_factory=lambda: ["a", "b"])
    real_names: list[str] = field(default_factory=lambda: ["r"])
    results: list[str] = field(default_factory=list)

    def source(self) -> str:
        """Returns the program's function in Python."""
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"def forward(a, b, r, w):\n{body}    return ({', '.join(self.results)},)\n"

    def function(self) -> Callable[..., Any]:
        """Returns the program's function."""
        names: dict[str, Any] = {"torch": torch}
        exec(self.source(), names)
        return names["forward"]  # type: ignore[no-any-return]


class Model(torch.nn.Module):
    """A program with a complex weight."""

    def __init__(self, function: Callable[..., Any], weight: Tensor) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(weight)

    def forward(self, a: Tensor, b: Tensor, r: Tensor) -> Any:
        """Calls the function."""
        return self.function(a, b, r, self.weight)


def inputs_of(seed: int, rows: int) -> tuple[Tensor, ...]:
    """Returns two complex matrices and a real one."""
    generator = torch.Generator().manual_seed(seed * 100 + rows)
    make = [
        torch.randn(rows, 4, generator=generator, dtype=dtype)
        for dtype in (torch.complex64,) * 2 + (torch.float32,)
    ]
    if seed % 5 == 1:
        make[0] = make[0].conj()
    if seed % 5 == 2:
        make[1] = make[1].T.contiguous().T
    return tuple(make)


def generate(seed: int, lines: int = 8) -> Program:
    """Returns the program of a number; each line is kept if eager PyTorch runs it with reasonable values."""
    chosen, program = random.Random(seed), Program(seed)
    values: dict[str, Any] = dict(zip("abr", inputs_of(seed, 3), strict=True))
    values["w"] = weight_of(seed)
    program.complex_names.append("w")
    values["torch"] = torch
    for number in range(lines * 4):
        if len(program.lines) == lines:
            break
        line, name = _line(chosen, program, values, f"v{number}")
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = eval(line, values)
        except Exception:
            continue
        if not _is_reasonable(value):
            continue
        values[name] = value
        program.lines.append(f"{name} = {line}")
        program.results.append(name)
        if value.dim() == 2:
            (program.complex_names if value.is_complex() else program.real_names).append(name)
    last = [complex_name for complex_name in program.complex_names[-3:] if complex_name != "w"]
    program.results = list(
        dict.fromkeys([*chosen.sample(program.results, min(3, len(program.results))), *last])
    )
    return program


def _is_reasonable(value: Any) -> bool:
    if (
        not isinstance(value, Tensor)
        or not value.numel()
        or value.numel() > 4096
        or value.dtype is torch.complex128
    ):
        return False
    numbers = value.abs() if value.is_complex() else value.to(torch.float32)
    return bool(numbers.isfinite().all()) and float(numbers.abs().max()) < LARGEST


def weight_of(seed: int) -> Tensor:
    """Returns the program's weight."""
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.complex64)


def _line(
    chosen: random.Random, program: Program, values: dict[str, Any], name: str
) -> tuple[str, str]:
    """Returns a random expression over the values so far."""
    kinds = (
        UNARY,
        UNARY,
        MOVES,
        MOVES,
        BINARY,
        BINARY,
        MIXED,
        TRANSFORMS,
        PRODUCTS,
        REAL,
        REAL,
        REDUCTIONS,
    )
    table = IN_PYTORCH if chosen.random() < 0.04 else chosen.choice(kinds)
    first = chosen.choice(program.complex_names[-4:])
    shape = values[first].shape
    others = program.real_names if table is MIXED else program.complex_names
    second = chosen.choice(
        [candidate for candidate in others if values[candidate].shape == shape] or [first]
    )
    return chosen.choice(table).format(first, second), name


def check(program: Program, tensorrt: str, varying: bool) -> str:
    """Compiles a program and compares it with eager PyTorch.

    Returns:
        ``"agrees"``, or the reason why there is nothing to compare.

    Raises:
        Exception: The compilation failed, or a result differs.
    """
    model = Model(program.function(), weight_of(program.seed)).eval()
    inputs = inputs_of(program.seed, 3)
    rows = torch.export.Dim("rows", min=2, max=6)
    shapes = {name: {0: rows} for name in "abr"} if varying else None
    with torch.no_grad(), warnings.catch_warnings(), torchtrt.use_tensorrt(tensorrt):
        warnings.simplefilter("ignore")
        try:
            exported = torch.export.export(model, inputs, dynamic_shapes=shapes, strict=False)
        except Exception:
            return "not exportable"
        compiled = torchtrt.compile(exported, min_block_size=1)
        broken = [row.reason for row in compiled.report.in_torch if "rule raised" in row.reason]
        assert not broken, broken
        for count in (3, 2, 6) if varying else (3,):
            arguments = inputs_of(program.seed, count)
            try:
                expected = model(*arguments)
            except Exception:
                return "not for all sizes"
            near = [tensor * (1 + 1e-6 * torch.randn(tensor.shape)) for tensor in arguments]
            _compare(compiled(*arguments), expected, model(*near))
    return "agrees" if compiled.report.blocks else "agrees without an engine"


def _compare(
    actual: Sequence[Tensor], expected: Sequence[Tensor], nearby: Sequence[Tensor]
) -> None:
    """Compares results with eager ones, except those that differ for inputs nearby."""
    for mine, theirs, near in zip(actual, expected, nearby, strict=True):
        assert mine.dtype is theirs.dtype, f"{mine.dtype} is not {theirs.dtype}"
        assert mine.shape == theirs.shape, f"{mine.shape} is not {theirs.shape}"
        plain = theirs.resolve_conj()
        size = float(plain.abs().max()) if plain.numel() and plain.dtype is not torch.bool else 1.0
        is_steep = not torch.allclose(
            near, plain, TOLERANCE / 10, TOLERANCE / 10 * max(size, 1.0), equal_nan=True
        )
        if size < LARGEST and not is_steep:
            torch.testing.assert_close(
                mine, plain, rtol=TOLERANCE, atol=TOLERANCE * max(size, 1.0), equal_nan=True
            )


def run(seeds: Iterator[int], versions: Sequence[str], until: float) -> Counter[str]:
    """Checks programs until a moment, and returns how many had each outcome."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        if time.monotonic() > until:
            break
        program = generate(seed)
        tensorrt, varying = versions[seed % len(versions)], seed % 4 == 3
        try:
            outcomes[check(program, tensorrt, varying)] += 1
        except Exception as error:
            outcomes[f"{type(error).__name__}"] += 1
            print(
                f"--- {seed} on {tensorrt}{' varying' if varying else ''}: {type(error).__name__}: {str(error)[:1200]}"
            )
            print(program.source(), flush=True)
            if not isinstance(error, AssertionError):
                print("".join(traceback.format_exception(error)[-3:])[-1500:], flush=True)
    return outcomes


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.complex_programs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--first", type=int, default=0, help="the number of the first program")
    parser.add_argument("--only", type=int, help="the number of the only program")
    parser.add_argument("--tensorrt", action="append", choices=VERSIONS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NoEngineWarning)
    first = options.first if options.only is None else options.only
    last = 10**9 if options.only is None else first + 1
    outcomes = run(
        iter(range(first, last)), options.tensorrt or VERSIONS, time.monotonic() + options.seconds
    )
    print(", ".join(f"{count} {name}" for name, count in outcomes.most_common()))


if __name__ == "__main__":
    main()
