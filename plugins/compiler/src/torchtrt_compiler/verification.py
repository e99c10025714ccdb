"""Compares a compiled model with eager PyTorch on the reference TensorRT, on a machine that cannot run its engines.

The reference builds and runs the networks that the TensorRT in use built: the same blocks, the same converters, and the
capabilities of the TensorRT in use. It checks lowering and conversion; it cannot check TensorRT's kernels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from torchtrt.conversion.size_ranges import Profile
from torchtrt.errors import TensorRTUnavailableError, VerificationError
from torchtrt.packs import TENSORRTS
from torchtrt.packs.extensions import installed, module_of
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import selection
from torchtrt.tensorrt.probes import answering_for
from torchtrt_compiler.building import Services, build_engine
from torchtrt_compiler.cache.engines import NoCache
from torchtrt_compiler.profiling import example_leaves, unchanged
from torchtrt_compiler.progress import Stages
from torchtrt_compiler.refit import UnwatchedProgram
from torchtrt_runtime.compiled_module import CompiledModule
from torchtrt_runtime.report import VerifiedOutput

_BOUNDS = ("min", "opt", "max")
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-4, torch.float32: 1e-4}
"""The relative tolerance of results that were computed in a dtype, and the absolute one of results around 1."""


@dataclass(frozen=True)
class Built:
    """The compiled program.

    Attributes:
        model: The model in eager PyTorch.
        blocks: The graph of each engine, by its name.
        profiles: The sizes that the engines are for.
        inputs: The inputs that the caller gave, positional and by keyword.
        settings: The settings of the compilation.
    """

    model: torch.nn.Module | ExportedProgram
    blocks: Mapping[str, GraphModule]
    profiles: Sequence[Profile]
    inputs: tuple[Sequence[Any], Mapping[str, Any]]
    settings: CompilationSettings


def verify(compiled: CompiledModule, built: Built) -> list[VerifiedOutput]:
    """Returns the largest difference of each output from eager PyTorch, at the limits of each range of sizes.

    Tensors that the model writes to hold their old values afterwards.

    Raises:
        VerificationError: A difference exceeds its tolerance.
        TensorRTUnavailableError: The reference TensorRT is not installed.
    """
    version = closest_reference()
    on_reference = _on_reference(compiled, built, f"reference@{version}")
    rows: list[VerifiedOutput] = []
    seen: set[Any] = set()
    for leaves in _inputs(compiled, built):
        sizes = tuple(tuple(each.shape) for each in leaves if isinstance(each, torch.Tensor))
        if sizes not in seen:
            seen.add(sizes)
            rows += _compared(on_reference, built, leaves, sizes, f"reference@{version}")
    if failed := [row for row in rows if not row.agrees]:
        raise VerificationError("\n".join(map(str, failed)), tuple(rows))
    return rows


def closest_reference() -> str:
    """Returns the version of the reference whose interface is the closest to that of the TensorRT in use.

    Raises:
        TensorRTUnavailableError: The reference is not installed.
    """
    found = installed(TENSORRTS).get("reference")
    module = "it is not installed" if found is None else module_of(found)
    if isinstance(module, str):
        raise TensorRTUnavailableError(
            f"verify='reference' needs the reference TensorRT: {module}. `pip install torchtrt-reference` brings it."
        )
    wanted = _number(selection.version())
    versions: Sequence[str] = module.VERSIONS
    return min(versions, key=lambda version: abs(_number(version) - wanted))


def _number(version: str) -> int:
    """Returns the place of a version among others: major versions are further apart than minor ones."""
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor)


def _on_reference(compiled: CompiledModule, built: Built, tensorrt: str) -> CompiledModule:
    """Returns the compiled model with engines of the reference."""
    graph_module = copy.copy(compiled.graph_module)
    module = selection.load(tensorrt)
    services = Services(Stages({}, False), NoCache(), UnwatchedProgram())
    plain = CompilationSettings(
        truncate_double=built.settings.truncate_double, autocast=built.settings.autocast
    )
    with answering_for(selection.current()), selection.use_module(module):
        for name, block in built.blocks.items():
            engine, _ = build_engine(name, block, built.profiles, plain, services)
            setattr(graph_module, name, engine)
    return CompiledModule(graph_module, compiled.interface, compiled.report, plain)


def _inputs(compiled: CompiledModule, built: Built) -> Iterator[list[Any]]:
    """Yields flattened inputs: the examples that were given, and generated ones at the limits of each range."""
    args, keywords = built.inputs
    given = compiled.flatten(tuple(args), keywords) if args or keywords else []
    is_example = [type(each) in (torch.Tensor, torch.nn.Parameter) for each in given]
    for profile in compiled.checks.profiles:
        for bound in _BOUNDS:
            sizes = {symbol: getattr(limits, bound) for symbol, limits in profile.items()}
            leaves = example_leaves(compiled, sizes)
            for place, each in enumerate(given):
                if is_example[place] and each.shape == leaves[place].shape:
                    leaves[place] = each.detach().clone()
            yield leaves
    if given and all(is_example) and compiled.checks.profiles[0]:
        yield [each.detach().clone() for each in given]


def _compared(
    on_reference: CompiledModule,
    built: Built,
    leaves: Sequence[Any],
    sizes: tuple[tuple[int, ...], ...],
    tensorrt: str,
) -> Iterator[VerifiedOutput]:
    """Yields the largest difference of each output for some inputs."""
    model = built.model.module() if isinstance(built.model, ExportedProgram) else built.model
    with unchanged(on_reference, leaves) as restore:
        expected = _called(model, on_reference, leaves)
        restore()
        actual = _called(on_reference, on_reference, leaves)
    rate = _TOLERANCES.get(built.settings.autocast or torch.float32, 0.0)
    for place, (mine, theirs) in enumerate(zip(actual, expected, strict=True)):
        if isinstance(theirs, torch.Tensor):
            difference, tolerance = _largest(mine, theirs, rate)
            yield VerifiedOutput(tensorrt, f"output {place}", sizes, difference, tolerance)


def _called(model: Any, interface: CompiledModule, leaves: Sequence[Any]) -> list[Any]:
    """Returns a model's flattened results for copies of inputs."""
    copies = [each.clone() if isinstance(each, torch.Tensor) else each for each in leaves]
    args, kwargs = pytree.tree_unflatten(copies, interface.input_tree)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        results = pytree.tree_leaves(model(*args, **kwargs))
    return [each.clone() if isinstance(each, torch.Tensor) else each for each in results]


def _largest(mine: torch.Tensor, theirs: torch.Tensor, rate: float) -> tuple[float, float]:
    """Returns the difference of the element that exceeds its tolerance the most, and its tolerance.

    Equal infinities, and NaN in both, do not differ. NaN in one of them, and another shape, differ infinitely.
    """
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return float("inf"), 0.0
    if not theirs.numel():
        return 0.0, 0.0
    is_number = theirs.dtype.is_floating_point or theirs.dtype.is_complex
    rate = max(rate, _TOLERANCES.get(theirs.dtype, 1e-4)) if is_number else 0.0
    wide = torch.complex128 if theirs.dtype.is_complex else torch.float64
    left, right = mine.to(wide), theirs.to(wide)
    same = (left == right) | (left.isnan() & right.isnan())
    difference = (left - right).abs().masked_fill(same, 0.0).nan_to_num(nan=float("inf"))
    tolerance = rate * (1 + right.abs().nan_to_num(nan=0.0, posinf=0.0))
    worst = int((difference - tolerance).argmax())
    return float(difference.reshape(-1)[worst]), float(tolerance.reshape(-1)[worst])
