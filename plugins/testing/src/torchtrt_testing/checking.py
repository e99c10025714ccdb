"""Compiles a case for the TensorRT in use and compares what the engines give with what PyTorch gives."""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any
from unittest import mock

import torch
from torch.fx import Node

import torchtrt
from torchtrt.conversion.interpreter import TRTInterpreter
from torchtrt.errors import FullCompilationError, NoEngineWarning
from torchtrt.registry import export_contexts
from torchtrt.targets import parse_target, qualified_name
from torchtrt.tensorrt import Capability, has_dtype, is_real, supports
from torchtrt.tensorrt.selection import device_objection
from torchtrt.torch_internals import pytree
from torchtrt_testing.cases import OpCase
from torchtrt_testing.tensors import MAXIMUM, MINIMUM, USUAL, Sizes
from torchtrt_testing.torch_internals import default_tolerances

FULL_PRECISION: dict[str, Any] = {"disable_tf32": True, "tactic_sources": 0, "verify": False}
"""Settings for the real TensorRT: full precision, and no tactics of libraries that may be missing.

The caller compares engines. ``verify`` would compare them too, with the tensors of the program, which is on the CPU.
"""


def check_case(
    case: OpCase, *, varying: bool = True, settings: Mapping[str, Any] | None = None
) -> None:
    """Compiles a case for the TensorRT in use and compares it with PyTorch.

    Nothing may stay in PyTorch and the case's ops must be in engines; or, where the case is to be
    rejected, its reason must be given. Either way values, dtypes and shapes must be PyTorch's.

    Args:
        case: The case, of its first dtype.
        varying: Whether dimensions vary: one engine is then tried with the minimum, usual and
            maximum sizes. Otherwise all sizes are the usual ones and fixed.
        settings: Further settings of the compilation.

    Raises:
        FullCompilationError: Something would stay in PyTorch.
        AssertionError: The results differ, or the op was not converted.
    """
    compare_case(case, compile_case(case, varying, settings or {}), varying)


def compile_case(case: OpCase, varying: bool, settings: Mapping[str, Any]) -> Any:
    """Returns a case as a compiled model; raises what ``check_case`` does about what stays in PyTorch."""
    chosen = chosen_settings(settings)
    exported = export(case, varying)
    if case.rejected:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoEngineWarning)
            compiled = torchtrt.compile(exported, min_block_size=1, **chosen)
        reasons = [f"{row.op}: {row.reason}" for row in compiled.report.in_torch]
        stayed = "\n".join(reasons) or "nothing stayed in PyTorch"
        assert any(re.search(case.rejected, reason) for reason in reasons), (
            f"{case}: no op stays in PyTorch for the reason {case.rejected!r}, but:\n{stayed}"
        )
    else:
        compiled = torchtrt.compile(exported, require_full_compilation=True, **chosen)
        converted = {row.op for row in compiled.report.converted}
        converted |= number_ops(exported.graph.nodes)
        missing = ops_missing(case, converted)
        assert not missing, (
            f"{case}: no engine has {', '.join(sorted(missing))}. The engines have {', '.join(sorted(converted))}. "
            "If the op is decomposed, write decomposition_case(op, ...) instead of op_case."
        )
    return compiled


def compare_case(case: OpCase, compiled: Callable[..., Any], varying: bool) -> None:
    """Compares a compiled case with PyTorch, for each of its sizes if they vary.

    Raises:
        AssertionError: The results differ.
    """
    model = case.model()
    for point in (MINIMUM, USUAL, MAXIMUM) if varying and case.varies else (USUAL,):
        inputs = case.inputs(point)
        actual = run_compiled(compiled, *inputs)
        with torch.no_grad():
            expected = model(*inputs)
        assert_close(actual, expected, case.tolerance)


@contextlib.contextmanager
def noting_networks(note: Callable[[TRTInterpreter], None]) -> Iterator[None]:
    """Calls ``note`` with each interpreter that has filled a network inside a ``with`` block."""
    run = TRTInterpreter.run

    def noted(interpreter: TRTInterpreter) -> TRTInterpreter:
        note(run(interpreter))
        return interpreter

    with mock.patch.object(TRTInterpreter, "run", noted):
        yield


def is_expected_rejection(error: FullCompilationError) -> bool:
    """Returns whether an op stays in PyTorch because this TensorRT has no exact integers, or no bfloat16."""
    text = str(error)
    lacks = "loses bits beyond 2^24" in text or Capability.BFLOAT16.title in text
    return lacks and not supports(Capability.INT64)  # and then reduces them in float32


def check_where_exact(
    case: OpCase, settings: Mapping[str, Any] | None = None, *, varying: bool = True
) -> None:
    """Checks a case like ``check_case``, except that ``is_expected_rejection`` may reject it."""
    try:
        check_case(case, varying=varying, settings=settings)
    except FullCompilationError as error:
        if not is_expected_rejection(error):
            raise


def assert_close(actual: Any, expected: Any, tolerance: float | None = None) -> None:
    """Checks results against PyTorch's: nesting, dtypes, shapes and values, with NaN equal to NaN.

    Args:
        actual: What the engine gave.
        expected: What PyTorch gave.
        tolerance: The largest relative and absolute difference; by default 1e-5, or PyTorch's own
            for the dtype if that is more.
    """
    if tolerance is None:
        tensors = [leaf for leaf in pytree.tree_leaves(expected) if isinstance(leaf, torch.Tensor)]
        halves = [leaf for leaf in tensors if leaf.dtype in (torch.float16, torch.bfloat16)]
        tolerance = max([1e-5, *(max(default_tolerances(half)) for half in halves)])
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def run_compiled(compiled: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Returns what a compiled model makes of tensors, on the CPU, wherever the TensorRT in use computes."""
    device = engine_device()
    with torch.no_grad():
        result = compiled(*(x.to(device) for x in inputs))
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, result)


def engine_device() -> torch.device | None:
    """Returns the device of this machine that runs engines of the TensorRT in use; ``None`` if none does."""
    names = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    return next(
        (device for device in map(torch.device, names) if not device_objection(device)), None
    )


@functools.lru_cache(maxsize=64)
def export(case: OpCase, varying: bool = True) -> torch.export.ExportedProgram:
    """Returns a case as an exported program, with the dynamic dimensions or with fixed sizes."""
    return export_model(case.model(), [case], varying)


def export_model(
    model: torch.nn.Module, cases: Sequence[OpCase], varying: bool
) -> torch.export.ExportedProgram:
    """Returns a module that takes the inputs of cases as an exported program."""
    dynamic = {"inputs": _dynamic_shapes(cases)} if varying else None
    with torch.no_grad(), export_contexts(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = tuple(tensor for case in cases for tensor in case.inputs(USUAL))
        return torch.export.export(model, inputs, dynamic_shapes=dynamic, strict=False)


def _dynamic_shapes(cases: Sequence[OpCase]) -> tuple[dict[int, torch.export.Dim] | None, ...]:
    """Returns the dimensions of each tensor that vary, as ``torch.export`` takes them.

    Dimensions of the same name have the same size; where two cases give a name other sizes, it is not the same name.
    """
    dims: dict[Any, torch.export.Dim] = {}

    def dim(name: str, sizes: Sizes) -> torch.export.Dim:
        if (name, sizes) not in dims:
            number = sum(other_name == name for other_name, _ in dims)
            low, _, high = sizes
            dims[name, sizes] = torch.export.Dim(f"{name}{number or ''}", min=low, max=high)
        return dims[name, sizes]

    return tuple(
        {
            position: dim(name, case.dimensions[name])
            for position, name in spec.varying(case.dimensions).items()
        }
        or None
        for case in cases
        for spec in case.tensors
    )


def dtypes_lacking(case: OpCase) -> tuple[torch.dtype, ...]:
    """Returns the dtypes of a case's tensors that the TensorRT in use does not have."""
    dtypes = {tensor.dtype for tensor in case.inputs(USUAL)}
    return tuple(dtype for dtype in sorted(dtypes, key=str) if not has_dtype(dtype))


def chosen_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a compilation that is compared with PyTorch: these, and what the real TensorRT needs."""
    return {**(FULL_PRECISION if is_real() else {}), **settings}


def number_ops(nodes: Iterable[Node]) -> set[str]:
    """Returns the ops that make numbers: an engine repeats those that it needs."""
    return {
        qualified_name(node.target)
        for node in nodes
        if node.op == "call_function" and not isinstance(node.meta["val"], torch.Tensor)
    }


def ops_missing(case: OpCase, converted: Set[str]) -> set[str]:
    """Returns the ops of a case that are not among those that engines have."""
    views = {"aten.view.default", "aten._unsafe_view.default"}  # lowering makes a reshape of them
    converted_ops = converted | (views if "aten.reshape.default" in converted else set())
    return {qualified_name(parse_target(op)) for op in case.ops} - converted_ops
