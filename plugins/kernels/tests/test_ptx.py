"""What the PTX of a kernel must be for TensorRT to launch it, and what becomes of parameters that it never reads."""

from __future__ import annotations

import re

import pytest

from torchtrt.expressions.data import InexpressibleError
from torchtrt_kernels.ptx import Parameters, fitted

GIVEN = Parameters(inputs=1, scalars=1, outputs=1)
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def ptx(*parameters: str, body: str = "ld.param.u64 %rd1, [p0];", after: str = "") -> str:
    """Returns a kernel ``k`` with these parameters."""
    declared = ", ".join(parameters)
    return f"{HEAD}// .entry other(\n.visible .entry k({declared}){after}\n{{\n{body}\nret;\n}}\n"


GOOD = (".param .u64 .ptr .global .align 16 p0", ".param .b32 p1", ".param .u64 p2")
SCRATCH = (".param .u64 .ptr .global .align 1 p3", ".param .u64 .ptr .global .align 1 p4")


def test_a_kernel_with_the_parameters_that_tensorrt_gives_stays_as_it_is() -> None:
    """Comments and quotes are no kernels; text and bytes do, and a final zero is none of it."""
    code = ptx(*GOOD, body='.file 1 "//.entry k(p9)"')

    assert fitted("k", code, GIVEN, (32, 1, 1)) == code.encode()
    assert fitted("k", code.encode() + b"\0", GIVEN, (32, 1, 1)) == code.encode()


def test_trailing_parameters_that_no_instruction_reads_are_removed() -> None:
    """Triton appends two; ``p30`` is another name than ``p3``."""
    body = "ld.param.u64 %rd1, [p0]; mov.b32 %p30, 1;"

    made = fitted("k", ptx(*GOOD, *SCRATCH, body=body), GIVEN, (32, 1, 1)).decode()

    assert made.count(".param") == 3 + 1  # and the instruction
    assert "p3)" not in made
    assert "p4" not in made
    assert "// .entry other(" in made
    assert "%p30" in made
    assert re.search(r"\.param \.u64 p2\s*\)", made)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (b"\x7fELF\x02", "binary, and TensorRT takes PTX"),
        (b"\xff\xfe", "no text, and TensorRT takes PTX"),
        (HEAD, "has no entry k, but no kernel"),
        (ptx(*GOOD).replace("entry k", "entry kk"), "has no entry k, but kk"),
        (ptx(*GOOD).replace(".entry k", ".func k"), "has no entry k, but no kernel"),
        (ptx(*GOOD[:2]), "has 2 parameters, and TensorRT gives 3: 1 address of an input"),
        (ptx(GOOD[0], ".param .f32 p1", GOOD[2]), "parameter 1 of its kernel k is .f32"),
        (ptx(GOOD[0], ".param .u64 p1", GOOD[2]), "an integer of 32 bits there"),
        (ptx(GOOD[1], *GOOD[1:]), "parameter 0 of its kernel k is .b32"),
        (ptx(GOOD[0], GOOD[1], ".param .align 8 .b8 p2[16]"), "parameter 2 of its kernel k is .b8"),
        (ptx(GOOD[0], ".param .b32 p1[2]", GOOD[2]), "parameter 1 of its kernel k is .b32"),
        (
            ptx(*GOOD, *SCRATCH, body="ld.param.u64 %rd2, [p4];"),
            "reads 5 parameters, and TensorRT gives 3",
        ),
        (ptx(*GOOD, after="\n.reqntid 128, 1, 1"), r"blocks of \(128, 1, 1\) threads"),
        (ptx(*GOOD, after="\n.reqntid 32, 2"), r"blocks of \(32, 2, 1\) threads"),
        (ptx(*GOOD, after="\n.maxntid 16"), r"blocks of at most \(16, 1, 1\) threads"),
    ],
)  # fmt: skip
def test_other_code_is_refused(code: str | bytes, reason: str) -> None:
    """With what TensorRT takes."""
    with pytest.raises(InexpressibleError, match=reason):
        fitted("k", code, GIVEN, (32, 1, 1))


@pytest.mark.parametrize("after", ["\n.reqntid 32", "\n.maxntid 64, 1, 1\n.minnctapersm 2", ""])
def test_a_block_that_the_kernel_was_compiled_for_is_taken(after: str) -> None:
    """A dynamic size of a block is not compared."""
    code = ptx(*GOOD, after=after)

    assert fitted("k", code, GIVEN, (32, 1, 1)) == fitted("k", code, GIVEN, (["symbol"], 1, 1))


def test_a_kernel_without_parameters_is_refused() -> None:
    """Parentheses may be missing."""
    with pytest.raises(InexpressibleError, match="has 0 parameters"):
        fitted("k", f"{HEAD}.entry k {{ ret; }}", GIVEN, (1, 1, 1))
