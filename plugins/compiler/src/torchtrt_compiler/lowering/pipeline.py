"""The steps of lowering, in order."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from torchtrt.callers import warn_caller
from torchtrt.contract import constant_of
from torchtrt.errors import DequantizedWeightsWarning
from torchtrt.expressions.bounds import bounding
from torchtrt.graphs.facts import facts_of, take_facts
from torchtrt.registry import enabled_passes
from torchtrt.settings import CompilationSettings
from torchtrt.torch_internals import OperatorBase, pytree
from torchtrt_compiler.lowering.calibration import largest_magnitudes
from torchtrt_compiler.lowering.cleanup import remove_no_ops, remove_unread
from torchtrt_compiler.lowering.constant_folding import Unpacked, fold_constants
from torchtrt_compiler.lowering.decomposition import resolve_nodes
from torchtrt_compiler.lowering.pass_checks import Outline, check_pass
from torchtrt_compiler.lowering.program import Program, open_program
from torchtrt_compiler.lowering.watchers import ProgramWatcher
from torchtrt_compiler.record import current_record


def lower(
    exported: ExportedProgram,
    settings: CompilationSettings,
    watcher: ProgramWatcher | None = None,
    may_be_empty: bool = False,
) -> Program:
    """Returns the exported program as a graph whose nodes all have their resolution.

    Packs' passes do not run where the settings leave every op to PyTorch and set no autocast.

    Args:
        exported: The program.
        settings: The settings of the compilation.
        watcher: Records what is computed from weights.
        may_be_empty: Whether a size of 0 is declared. PyTorch takes a size of a program for positive.
    """
    record = current_record()
    record.graph("exported", exported.graph_module)
    program = open_program(exported, watcher)
    with bounding(program.sizes.bounds_of_symbols(may_be_empty)):
        _resolve(program, exported.example_inputs, settings)
    return program


def _resolve(program: Program, inputs: Any, settings: CompilationSettings) -> None:
    """Gives the nodes of an opened program their resolution, after the packs' passes.

    Args:
        program: The program.
        inputs: The inputs that it was exported with, if they are known.
        settings: The settings of the compilation.
    """
    record, watcher = current_record(), program.watcher
    remove_no_ops(program.graph_module)
    with watcher.recording():
        unpacked = fold_constants(program.graph_module, program.mutated, keep_quantized=True)
        if unpacked and not settings.allow_dequantized_weights:
            _warn_of(unpacked)
        record.graph("opened", program.graph_module)
    if settings.autocast is not None or not _is_left_to_pytorch(program, settings):
        examples = functools.partial(_examples, program, inputs)
        facts = facts_of(program.graph_module)
        facts.examples = examples
        facts.largest = functools.partial(_largest, program, settings)
        _run_passes(program, settings)
    _gather_facts(program)
    with watcher.recording():
        program.asked.update(resolve_nodes(program.graph_module, settings, program.sizes.fixed))
        remove_unread(program.graph_module.graph)
        fold_constants(program.graph_module, program.mutated)  # of decompositions
    program.graph_module.graph.lint()
    program.graph_module.recompile()
    record.graph("lowered", program.graph_module)


def _warn_of(unpacked: list[Unpacked]) -> None:
    """Warns that packed weights become larger than they were."""
    before, after = (sum(column) for column in list(zip(*unpacked, strict=True))[1:])
    warn_caller(
        f"No pack supports the format of {len(unpacked)} packed weights. The first is {unpacked[0].name!r}. "
        f"They are compiled in floating point: {after} bytes in place of {before}. Quantize the model in a way that "
        "the page quantized-models of the documentation lists, or set allow_dequantized_weights=True to accept this.",
        DequantizedWeightsWarning,
    )


def _examples(program: Program, inputs: Any) -> dict[Node, torch.Tensor]:
    """Returns the tensors that a program was exported with, by their placeholders."""
    leaves = zip(program.placeholders, pytree.tree_leaves(inputs), strict=True) if inputs else ()
    return {node: leaf for node, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _largest(program: Program, settings: CompilationSettings) -> Mapping[Node, float]:
    """Returns the largest magnitude of each node's results among the batches for calibration."""
    with program.watcher.paused():
        return largest_magnitudes(program, settings.autocast_calibration_dataloader)


def _is_left_to_pytorch(program: Program, settings: CompilationSettings) -> bool:
    targets: set[Any] = {node.target for node in program.graph_module.graph.nodes}
    ops = {target for target in targets if isinstance(target, OperatorBase)}
    return ops <= settings.torch_executed_ops


def _run_passes(program: Program, settings: CompilationSettings) -> None:
    """Runs the packs' passes, and lists those that changed the graph.

    Raises:
        PackError: A pass raised an error, or broke the graph.
    """
    record = current_record()
    before = Outline(program.graph_module)
    for lowering_pass in enabled_passes(settings):
        # Passes that run last compute nothing from weights.
        with nullcontext() if lowering_pass.last else program.watcher.recording():
            lowering_pass.run(program.graph_module, settings)
        after = Outline(program.graph_module)
        if after != before:
            check_pass(lowering_pass, before, after)
            program.passes.append(str(lowering_pass))
            program.graph_module.recompile()
            record.graph(lowering_pass.qualified_name, program.graph_module)
        else:
            record.decision("pass", f"{lowering_pass} changes nothing")
        before = after


def _gather_facts(program: Program) -> None:
    """Takes from the graph what the passes found out, for the report and for what follows."""
    facts = take_facts(program.graph_module)
    program.divided.extend(facts.divided)
    program.in_float32.extend(facts.in_float32)
    for line in facts.divided:
        current_record().decision("rows", line)
    values = {str(node.target): constant_of(node) for node in facts.equal_weights}
    program.watcher.keep_equal({name: value for name, value in values.items() if value is not None})
    program.checks.update(facts.conditions)
