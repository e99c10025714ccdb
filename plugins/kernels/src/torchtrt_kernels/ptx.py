"""PTX, the text of a compiled kernel: its entry, and the parameters that TensorRT gives a kernel in a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torchtrt.expressions.data import InexpressibleError

_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Comments, and names of files in quotes, which may look like them."""
_ENTRY = re.compile(
    r"\.entry\s+(?P<name>[\w$%]+)\s*(?:\((?P<parameters>[^)]*)\))?(?P<directives>[^{;]*)"
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(?P<type>[a-z]+\d+)\b.*?(?P<name>[\w$%]+)\s*(?P<length>\[[^\]]*\])?\s*$",
    re.DOTALL,
)
_INTEGERS = {64: ("u64", "s64", "b64"), 32: ("u32", "s32", "b32")}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters that TensorRT gives a kernel in a plan, in this order.

    Attributes:
        inputs: The number of inputs: addresses of 64 bits.
        scalars: The number of 32-bit integers.
        outputs: The number of outputs: addresses of 64 bits.
    """

    inputs: int
    scalars: int
    outputs: int

    @property
    def widths(self) -> list[int]:
        """The bits of each parameter."""
        return [64] * self.inputs + [32] * self.scalars + [64] * self.outputs

    def __str__(self) -> str:
        counted = (
            (self.inputs, "address of an input", "addresses of inputs"),
            (self.scalars, "32-bit integer", "32-bit integers"),
            (self.outputs, "address of an output", "addresses of outputs"),
        )
        return ", ".join(f"{n} {one if n == 1 else several}" for n, one, several in counted if n)


def fitted(name: str, code: str | bytes, parameters: Parameters, block: Sequence[object]) -> bytes:
    """Returns the PTX of a kernel that takes the parameters that TensorRT gives.

    Compilers such as Triton append parameters for memory that few kernels need. Those that the kernel never reads are
    removed, as TensorRT gives no value for them.

    Args:
        name: The name of the kernel.
        code: PTX with this kernel.
        parameters: What TensorRT gives.
        block: The threads of a block in each dimension; an expression is no ``int``.

    Raises:
        InexpressibleError: The code is no such PTX; the text is the reason.
    """
    if isinstance(code, bytes):
        if code.startswith((b"\x7fELF", b"\x50\xed\x55\xba")):
            message = "the code of its kernel is binary, and TensorRT takes PTX, which is text"
            raise InexpressibleError(message)
        try:
            code = code.decode()
        except UnicodeDecodeError as error:
            message = "the code of its kernel is no text, and TensorRT takes PTX"
            raise InexpressibleError(message) from error
    code = code.rstrip("\0")
    text = _COMMENT.sub(lambda matched: " " * len(matched[0]), code)
    entries = {entry["name"]: entry for entry in _ENTRY.finditer(text)}
    if name not in entries:
        there = ", ".join(sorted(entries)) or "no kernel"
        message = f"the PTX of its kernel has no entry {name}, but {there}"
        raise InexpressibleError(message)
    entry = entries[name]
    declarations = [part.strip() for part in (entry["parameters"] or "").split(",") if part.strip()]
    widths, count = parameters.widths, len(declarations)
    if len(declarations) < len(widths):
        message = f"its kernel {name} has {count} parameters, and TensorRT gives {len(widths)}: {parameters}"
        raise InexpressibleError(message)
    for number, (declared, width) in enumerate(zip(declarations, widths, strict=False)):
        _check_parameter(name, number, declared, width, parameters)
    _check_block(name, entry["directives"], block)
    for declared in declarations[len(widths) :]:
        matched = _PARAMETER.match(declared)
        named = rf"(?<![\w$%]){re.escape(matched['name'])}\b" if matched else ""
        if len(re.findall(named, text)) > 1:
            message = f"its kernel {name} reads {count} parameters, and TensorRT gives {len(widths)}: {parameters}"
            raise InexpressibleError(message)
    if len(declarations) > len(widths):
        start, end = entry.span("parameters")
        kept = ",\n\t".join(declarations[: len(widths)])
        code = f"{code[:start]}\n\t{kept}\n{code[end:]}"
    return code.encode()


def _check_parameter(
    name: str, number: int, declared: str, width: int, parameters: Parameters
) -> None:
    """Checks that a parameter is an integer of a width.

    Raises:
        InexpressibleError: It is something else.
    """
    matched = _PARAMETER.match(declared)
    if matched is None or matched["length"] or matched["type"] not in _INTEGERS[width]:
        what = f".{matched['type']}" if matched else repr(declared)
        message = (
            f"parameter {number} of its kernel {name} is {what}, and TensorRT gives an integer of {width} bits there: "
            f"{parameters}, in this order"
        )
        raise InexpressibleError(message)


def _check_block(name: str, directives: str, block: Sequence[object]) -> None:
    """Checks the threads of a block against those that the kernel was compiled for.

    Raises:
        InexpressibleError: They differ.
    """
    if not all(isinstance(size, int) for size in block):
        return
    sizes = [int(str(size)) for size in block]
    for directive, is_exact in (("reqntid", True), ("maxntid", False)):
        matched = re.search(rf"\.{directive}\s+([\d\s,]+)", directives)
        if matched is None:
            continue
        wanted = [int(size) for size in matched[1].split(",") if size.strip()]
        wanted += [1] * (3 - len(wanted))
        threads = sizes[0] * sizes[1] * sizes[2]
        if sizes != wanted if is_exact else threads > wanted[0] * wanted[1] * wanted[2]:
            limit = "blocks of" if is_exact else "blocks of at most"
            compiled, launched = tuple(wanted), tuple(sizes)
            message = f"its kernel {name} was compiled for {limit} {compiled} threads, and its launch has {launched}"
            raise InexpressibleError(message)
