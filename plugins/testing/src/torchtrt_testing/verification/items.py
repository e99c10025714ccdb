"""The items of a verification: the cases of the packs in use, PyTorch's samples, and architectures of libraries."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram

import torchtrt
from torchtrt.packs import loaded_packs
from torchtrt.targets import qualified_name
from torchtrt.tensorrt import dtype_name, has_dtype, is_real
from torchtrt.tensorrt.selection import current
from torchtrt.torch_internals import OpOverload
from torchtrt_compiler.verification import closest_reference
from torchtrt_reference import is_reference
from torchtrt_testing.architectures import Architecture
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import (
    chosen_settings,
    compare_case,
    compile_case,
    engine_device,
    export,
)
from torchtrt_testing.op_info import DTYPES, Sample, ops, samples_of
from torchtrt_testing.pack_cases import architectures_of, cases_of
from torchtrt_testing.tensors import USUAL
from torchtrt_testing.verification.findings import (
    AGREES,
    BUILT,
    IN_PYTORCH,
    NOT_APPLICABLE,
    Finding,
    NotApplicableError,
    disagrees,
    finding,
)
from torchtrt_testing.verification.samples import check_samples
from torchtrt_testing.verification.workers import Part, Row

CASES, SAMPLES, ARCHITECTURES = PARTS = ("cases", "samples", "architectures")
"""The parts of a verification."""
SAMPLES_OF_OP = 4
"""The maximum number of samples of an op and dtype."""
SAMPLED_TOGETHER = 8
"""The maximum number of pairs of an op and a dtype whose samples share an engine."""
FIXED, VARYING = "fixed", "varying"
WAYS = ((torch.float32, True), (torch.float16, False), (torch.bfloat16, False))
"""The dtypes of architectures, and whether their sizes vary."""


@dataclass(frozen=True)
class Item:
    """One thing to verify.

    Attributes:
        pack: The pack that it is from; empty for PyTorch's samples.
        ops: The ops that it calls, or the name of an architecture.
        dtype: Its dtype.
        check: Compiles it with some settings and compares it. It returns ``AGREES`` or ``BUILT``, or raises. Samples
            are checked together instead.
    """

    pack: str
    ops: tuple[str, ...]
    dtype: str
    check: Callable[[Mapping[str, Any]], str] | None = None


def packs_in_use() -> list[str]:
    """Returns the names of the packs in use."""
    return [loaded.info.name for loaded in loaded_packs()]


def items_of(part: str, packs: Sequence[str] = ()) -> dict[str, Item]:
    """Returns the items of a part by name: of these packs, or all. PyTorch's samples are of no pack."""
    if part == SAMPLES:
        return {} if packs else dict(_samples())
    read = _cases if part == CASES else _architectures
    return {name: item for pack in packs or packs_in_use() for name, item in read(pack).items()}


def neighbours(item: str) -> dict[str, Item]:
    """Returns the items of the part and the pack in an ID, by name; none if there is no such part."""
    part, _, name = item.partition(":")
    pack = name.partition(" ")[0]
    return items_of(part, () if part == SAMPLES else (pack,)) if part in PARTS else {}


MISSING: dict[str, str] = {}
"""The packs whose cases or architectures, or PyTorch's samples, could not be imported, with the reason."""


def _read(read: Callable[[str], tuple[Any, ...]], pack: str) -> tuple[Any, ...]:
    """Returns what is read of a pack; nothing if its import raises, which is noted."""
    try:
        return read(pack)
    except Exception as error:
        MISSING[pack] = f"{type(error).__name__}: {error}"
        return ()


@functools.cache
def _cases(pack: str) -> Mapping[str, Item]:
    items = {}
    for case in (case for base_case in _read(cases_of, pack) for case in base_case.each_dtype()):
        for varying in (True, False) if case.varies else (False,):
            name = f"{pack} {case.label} {VARYING if varying else FIXED}"
            # Ops on sizes vanish where these are fixed.
            checked = case if varying or not case.varies else dataclasses.replace(case, ops=())
            check = functools.partial(_check_case, checked, varying)
            items[name] = Item(pack, _ops_of(case), dtype_name(case.dtypes[0]), check)
    return items


def _ops_of(case: OpCase) -> tuple[str, ...]:
    if case.ops:
        return case.ops
    return (
        (qualified_name(case.function),) if isinstance(case.function, OpOverload) else (case.label,)
    )


def _check_case(case: OpCase, varying: bool, settings: Mapping[str, Any]) -> str:
    if not case.rejected:
        _check_dtypes(tensor.dtype for tensor in case.inputs(USUAL))
    _exported(lambda: export(case, varying))
    compiled = compile_case(case, varying, settings)
    if engine_device() is None:
        return BUILT
    compare_case(case, compiled, varying)
    return AGREES


def _check_dtypes(dtypes: Iterable[torch.dtype]) -> None:
    """Raises a ``NotApplicableError`` for dtypes that the TensorRT in use lacks."""
    if lacking := sorted({dtype_name(dtype) for dtype in dtypes if not has_dtype(dtype)}):
        raise NotApplicableError(f"this TensorRT has no {', '.join(lacking)}")


def _exported(export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Returns an exported program.

    Raises:
        NotApplicableError: PyTorch does not export it.
    """
    try:
        return export()
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotApplicableError(f"PyTorch does not export it: {reason}") from error


@functools.cache
def _architectures(pack: str) -> Mapping[str, Item]:
    items = {}
    for architecture in _read(architectures_of, pack):
        for dtype, varying in WAYS:
            name = f"{pack} {architecture.name} {dtype_name(dtype)} {VARYING if varying else FIXED}"
            check = functools.partial(_check_architecture, architecture, dtype, varying)
            items[name] = Item(pack, (architecture.name,), dtype_name(dtype), check)
    return items


_export_architecture = functools.lru_cache(maxsize=1)(Architecture.export)


def _check_architecture(
    architecture: Architecture, dtype: torch.dtype, varying: bool, settings: Mapping[str, Any]
) -> str:
    _check_dtypes((dtype,))
    exported = _exported(lambda: _export_architecture(architecture, dtype, varying))
    compiled = architecture.compile(exported, settings)
    if engine_device() is None:
        return BUILT
    architecture.compare(compiled, dtype, varying)
    return AGREES


@functools.cache
def _samples() -> Mapping[str, Item]:
    if engine_device() is None:  # samples are compared, or nothing
        return {}
    sampled = _read(lambda _: tuple(ops().items()), "PyTorch's samples")
    return {
        f"{name} {dtype_name(dtype)}": Item("", (name,), dtype_name(dtype))
        for name, op in sampled
        for dtype in DTYPES
        if op.supports_dtype(dtype, "cpu")
    }


def chosen(
    parts: Iterable[str],
    packs: Sequence[str] = (),
    patterns: Sequence[str] = (),
    only: Sequence[str] = (),
) -> dict[str, Item]:
    """Returns the chosen items by ID, ``part:name``.

    Args:
        parts: The parts.
        packs: Only items of these packs; all if omitted.
        patterns: Only items with an op that matches one of these patterns; all if omitted.
        only: Only items with these IDs, whatever else is chosen.
    """
    if only:
        return {item: neighbours(item)[item.partition(":")[2]] for item in only}
    return {
        f"{part}:{name}": item
        for part in parts
        for name, item in items_of(part, packs).items()
        if not patterns or _matches(item, patterns)
    }


def _matches(item: Item, patterns: Sequence[str]) -> bool:
    """Returns whether a pattern matches the name of an op, with or without its namespace and its overload."""
    names = {spelling for op in item.ops for spelling in _spellings(op)}
    return any(
        fnmatch.fnmatchcase(name, wanted)
        for pattern in patterns
        for wanted in (pattern.replace("::", "."),)
        for name in names
    )


def _spellings(op: str) -> Iterator[str]:
    plain = op.replace("::", ".")
    yield plain
    yield plain.removeprefix("nn.functional.")
    if plain.count(".") == 2:
        namespace, name, _ = plain.split(".")
        yield from (f"{namespace}.{name}", name)
    elif "." not in plain:  # a name of PyTorch's samples
        yield f"aten.{plain}"


# In a worker


def parts_with(settings: Mapping[str, Any]) -> dict[str, Part]:
    """Returns the parts as workers check them.

    Args:
        settings: Settings of the compilations.
    """

    def one_by_one(part: str, names: list[str]) -> Iterator[tuple[str, Row]]:
        for name in names:
            outcome = functools.partial(_outcome, neighbours(f"{part}:{name}")[name])
            reference = _on_reference(outcome)
            yield name, _row(outcome(), reference)

    def together(names: list[str]) -> Iterator[tuple[str, Row]]:
        samples = {name: _samples_of(name) for name in names}
        reference = _on_reference(lambda: dict(check_samples(samples, settings)))
        for name, own in check_samples(samples, real_settings(settings)):
            yield name, _row_of_samples(samples[name], own, (reference or {}).get(name))

    def _outcome(item: Item) -> Finding:
        assert item.check is not None
        check = item.check
        return finding(lambda: check(real_settings(settings)))

    return {
        CASES: Part(lambda: items_of(CASES), functools.partial(one_by_one, CASES)),
        ARCHITECTURES: Part(
            lambda: items_of(ARCHITECTURES), functools.partial(one_by_one, ARCHITECTURES)
        ),
        SAMPLES: Part(
            lambda: items_of(SAMPLES), together, SAMPLED_TOGETHER, lambda name: name.split()[-1]
        ),
    }


def real_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of compilations for the TensorRT in use."""
    quick = {"optimization_level": 1} if is_real() else {}
    return chosen_settings({**quick, **settings})


def reference_in_comparison() -> str:
    """Returns the reference that is closest to the TensorRT in use, ``"reference@11.4.0"``; ``""`` if it is in use."""
    return "" if is_reference(current()) else f"reference@{closest_reference()}"


def _on_reference(check: Callable[[], Any]) -> Any:
    """Returns the result of a check on the reference; ``None`` if the reference is in use anyway."""
    if not (reference := reference_in_comparison()):
        return None
    with torchtrt.use_tensorrt(reference):
        return check()


def _samples_of(name: str) -> list[Sample]:
    op, _, dtype = name.rpartition(" ")
    return samples_of(op, getattr(torch, dtype))[:SAMPLES_OF_OP]


def _row(own: Finding, reference: Finding | None) -> Row:
    row: Row = {"outcome": own.kind, "message": own.message}
    if reference is not None:
        row["reference"] = {"outcome": reference.kind, "message": reference.message}
    return row


def _row_of_samples(
    samples: Sequence[Sample], own: Mapping[int, Finding], reference: Mapping[int, Finding] | None
) -> Row:
    """Returns the row of an op's samples: of the first one that disagrees, or else of all together."""
    for sample in samples:
        mine = own[sample.index]
        theirs = (reference or {}).get(sample.index)
        if disagrees(mine, theirs):
            described = f"sample {sample.index} {sample.describe()[:150]}: {mine.message}"
            return _row(Finding(mine.kind, described), theirs)
    kinds = {sample_finding.kind for sample_finding in own.values()}
    kind = next((kind for kind in (AGREES, IN_PYTORCH) if kind in kinds), NOT_APPLICABLE)
    row = _row(Finding(kind), Finding(kind) if reference is not None else None)
    row["samples"] = sum(sample_finding.kind == AGREES for sample_finding in own.values())
    return row
