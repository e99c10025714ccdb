"""Every case of every pack, with inputs of which a mask chose a part: their sizes depend on data."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import torchtrt
from tests.support.shards import shards
from torchtrt.errors import NoEngineWarning
from torchtrt.registry import export_contexts
from torchtrt_reference import VERSIONS
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import assert_close, dtypes_lacking
from torchtrt_testing.pack_cases import first_party_cases
from torchtrt_testing.tensors import MAXIMUM

PARTS = 60
NONE_CHOSEN = {
    "aten.native_dropout": "the mask is of numbers in eager PyTorch, and of booleans in a program",
    "aten.pixel_unshuffle": "eager PyTorch leaves an empty tensor as it is",
    "aten.repeat_interleave.Tensor": "the case gives the size of the result",
    "aten._scaled_dot_product_flash_attention_for_cpu": "PyTorch divides by zero, and the process ends",
}
"""The cases that are not tried with an empty selection, by how their labels begin, and why."""
LEFT_OUT = {
    "aten._linalg_det.default-turned": "the factors follow from strides, which engines do not keep",
    "aten._linalg_slogdet.default-turned": "the same",
}


@dataclass(frozen=True)
class Selection:
    """A part of the inputs of a case, which a mask chooses.

    Attributes:
        case: The case.
        dims: For each input the dimension along which the mask chooses; None for an input that stays whole.
        count: How many the mask chooses from.
    """

    case: OpCase
    dims: tuple[int | None, ...]
    count: int

    def __str__(self) -> str:
        return f"{self.case} chosen along {self.dims}"

    def masks(self) -> Iterator[torch.Tensor]:
        """Yields masks that choose some, one, all and none."""
        positions = torch.arange(self.count)
        yield from (positions % 2 == 0, positions == self.count - 1, positions >= 0)
        if not str(self.case).startswith(tuple(NONE_CHOSEN)):
            yield positions < 0


class Chosen(torch.nn.Module):
    """Calls the function of a case with what a mask chooses from its inputs."""

    def __init__(self, selection: Selection) -> None:
        super().__init__()
        self.selection = selection

    def forward(self, mask: torch.Tensor, *inputs: torch.Tensor) -> Any:
        """Returns what the function of the case returns."""
        chosen = [
            tensor if dim is None else tensor[(slice(None),) * dim + (mask,)]
            for tensor, dim in zip(inputs, self.selection.dims, strict=True)
        ]
        args, kwargs = self.selection.case.arguments(chosen)
        return self.selection.case.function(*args, **kwargs)


@functools.cache
def selections() -> Sequence[Selection]:
    """Returns the selections: along each dynamic dimension, in all inputs together, or else of the first one's rows."""
    chosen = []
    for case in (variant for whole in first_party_cases() for variant in whole.each_dtype()):
        varying = [spec.varying(case.dimensions) for spec in case.tensors]
        names = dict.fromkeys(name for dims in varying for name in dims.values())
        for name in names:
            dims = tuple(
                next((dim for dim, other in variant.items() if other == name), None)
                for variant in varying
            )
            chosen.append(Selection(case, dims, case.dimensions[name][MAXIMUM]))
        if not names:
            shapes = [tensor.shape for tensor in case.inputs(MAXIMUM)]
            first = next((index for index, shape in enumerate(shapes) if len(shape)), None)
            if first is not None:
                dims = tuple(0 if index == first else None for index in range(len(shapes)))
                chosen.append(Selection(case, dims, shapes[first][0]))
    return [variant for variant in chosen if str(variant.case) not in LEFT_OUT]


def result_of(function: Any, inputs: Sequence[torch.Tensor]) -> Any:
    """Returns what a function returns for copies of inputs, or the error that it raises."""
    torch.manual_seed(0)
    try:
        with torch.no_grad():
            return function(*(tensor.clone() for tensor in inputs))
    except Exception as error:
        return error


def faults(selection: Selection) -> Iterator[str]:
    """Yields what is wrong with the compiled program of a selection on each version of the reference."""
    case, model = selection.case, Chosen(selection).eval()
    inputs = case.inputs(MAXIMUM)
    some = next(selection.masks())
    try:
        with torch.no_grad(), export_contexts(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(model, (some, *inputs), strict=False)
    except Exception:
        return  # PyTorch has no program for such a size
    calls = [(mask, *inputs) for mask in selection.masks()]
    expected = [result_of(model, call) for call in calls]
    for version in VERSIONS:
        with torchtrt.use_tensorrt(f"reference@{version}"), warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEngineWarning)
            # PyTorch says so once in a process, of the first empty selection that it normalizes.
            warnings.filterwarnings("ignore", message=r"var_mean\(\): degrees of freedom")
            if dtypes_lacking(case):
                continue
            compiled = result_of(lambda: torchtrt.compile(exported, min_block_size=1), ())
            if isinstance(compiled, Exception):
                yield f"{selection} @{version} does not compile: {compiled}"
                continue
            rows = compiled.report.in_torch
            if unbuilt := [row for row in rows if {"unbuilt", "failed"} & set(row.codes)]:
                yield f"{selection} @{version} does not build {unbuilt[0].op}: {unbuilt[0].reason}"
            for call, wanted in zip(calls, expected, strict=True):
                if isinstance(wanted, Exception):
                    continue
                actual = result_of(compiled, call)
                chosen = f"{int(call[0].sum())} of {selection.count}"
                if isinstance(actual, Exception):
                    # The program itself may be for other sizes only.
                    if not isinstance(result_of(exported.module(), call), Exception):
                        yield f"{selection} @{version} takes not {chosen}: {actual}"
                    continue
                try:
                    assert_close(actual, wanted, case.tolerance)
                except AssertionError as error:
                    yield f"{selection} @{version} of {chosen}: {' '.join(str(error).split())}"


@pytest.mark.parametrize("part", shards(PARTS, quick=1))
def test_what_a_mask_chose_is_computed_as_in_pytorch(part: int) -> None:
    """None, one, some or all: each op is right, or stays in PyTorch for a rule."""
    torch.set_num_threads(1)
    faults_ = [fault for selection in selections()[part::PARTS] for fault in faults(selection)]
    assert not faults_, "\n".join(faults_)


@pytest.mark.parametrize("label", [*NONE_CHOSEN, *LEFT_OUT])
def test_what_is_left_out_is_a_case(label: str) -> None:
    """A case that is gone needs no exception."""
    assert any(str(case).startswith(label) for case in first_party_cases())
