"""Builds a program with the TensorRT in use without running it, and describes the networks that were built.

TensorRT for RTX builds on any machine, and few GPUs run its engines. A network that it and the reference describe
alike, and that it builds, follows the rules of a TensorRT of today.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram

import torchtrt
from torchtrt.errors import BuildError, ConversionError, FullCompilationError
from torchtrt.torch_internals import pytree
from torchtrt_testing.cases import OpCase
from torchtrt_testing.checking import export, noting_networks
from torchtrt_testing.tensors import USUAL

BUILT = "built"
"""The outcome of a program that became engines alone, none of them parted."""


@dataclass(frozen=True)
class Build:
    """The outcome of building a program.

    Attributes:
        outcome: ``BUILT``; or ``"parted"``, ``"refused"``, ``"stays in PyTorch"`` or ``"failed"`` with a reason.
        seconds: The time of compiling.
        plan_bytes: The size of all engines.
        networks: For each network its layers, each with its kind and its outputs, and its outputs.
    """

    outcome: str
    seconds: float
    plan_bytes: int
    networks: tuple[Any, ...]


def in_dtype(case: OpCase, dtype: torch.dtype) -> OpCase | None:
    """Returns a case with its tensors of the case's dtype in another one, constants of float32 included.

    Returns:
        None where the case is to be rejected, or computes with no floating-point tensor of the case's dtype.
    """
    if case.rejected or not case.dtypes[0].is_floating_point:
        return None
    if all(spec.dtype for spec in case.tensors):
        return None
    args, kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda tensor: tensor.to(dtype) if tensor.dtype is torch.float32 else tensor,
        (case.args, dict(case.kwargs)),
    )
    return replace(case, args=args, kwargs=kwargs, dtypes=(dtype,))


def export_case(case: OpCase, varying: bool) -> ExportedProgram:
    """Returns a case as an exported program, with constants that the case makes itself in its dtype if they must be."""
    if _runs(case):
        return export(case, varying)
    before = torch.get_default_dtype()
    torch.set_default_dtype(case.dtypes[0] if case.dtypes[0].is_floating_point else before)
    try:
        return export(case, varying)
    finally:
        torch.set_default_dtype(before)


def _runs(case: OpCase) -> bool:
    """Returns whether PyTorch runs a case, and does not find another dtype in the constants that it makes."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            case.model()(*case.inputs(USUAL))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return False
    return True


def build(exported: ExportedProgram, **settings: Any) -> Build:
    """Returns the outcome of compiling a program with the TensorRT in use."""
    networks: list[Any] = []
    plan_bytes, start = 0, time.monotonic()
    with noting_networks(lambda filled: networks.append(_describe(filled.network.raw))):
        try:
            compiled = torchtrt.compile(exported, require_full_compilation=True, **settings)
            report = compiled.report
            plan_bytes = sum(block.plan_bytes for block in report.blocks)
            outcome = f"parted: {' '.join(report.splits)}" if report.splits else BUILT
        except FullCompilationError as error:
            outcome = f"stays in PyTorch: {error}"
        except (BuildError, ConversionError) as error:
            outcome = f"refused: {error}"
        except Exception as error:
            outcome = f"failed: {type(error).__name__}: {error}"
    seconds = time.monotonic() - start
    return Build(" ".join(outcome.split()), seconds, plan_bytes, tuple(networks))


def _describe(network: Any) -> tuple[list[Any], list[Any]]:
    layers = []
    for layer in network:
        if layer.type.name == "ATTENTION_INPUT":  # TensorRT's, beside the layer that both have
            continue
        tensors = map(layer.get_output, range(layer.num_outputs))
        kind = layer.name.rpartition("/")[2].partition("#")[0]  # nodes may have other names
        kind = kind.removesuffix("_AttentionOutput")
        layers.append((kind, [_tensor(tensor) for tensor in tensors]))
    return layers, [_tensor(network.get_output(index)) for index in range(network.num_outputs)]


def _tensor(tensor: Any) -> tuple[str, list[int] | str]:
    try:
        return tensor.dtype.name, list(tensor.shape)
    except ValueError:  # there is no shape of what is invalid
        return tensor.dtype.name, "no shape"


def differences(ours: Sequence[Any], theirs: Sequence[Any]) -> Iterator[str]:
    """Yields where the networks of two builds differ: the number of layers, the dtype or the shape of a tensor."""
    if len(ours) != len(theirs):
        yield f"{len(ours)} networks and {len(theirs)}"
        return
    for (layers, outputs), (other_layers, other_outputs) in zip(ours, theirs, strict=True):
        if outputs != other_outputs:
            yield f"outputs {outputs} and {other_outputs}"
        if len(layers) != len(other_layers):
            kinds, others = (
                Counter(kind for kind, _ in network_layers)
                for network_layers in (layers, other_layers)
            )
            yield f"layers {dict(kinds - others)} and {dict(others - kinds)}"
            continue
        for layer, other in zip(layers, other_layers, strict=True):
            if layer != other:
                yield f"{layer} and {other}"
