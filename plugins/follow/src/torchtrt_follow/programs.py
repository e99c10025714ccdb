"""Compiled programs of a followed model, and the weights that are in them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram

from torchtrt.errors import InputError, SizeWarning, UnsupportedProgramError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import assign
from torchtrt_compiler.api import compile as compile_model
from torchtrt_compiler.exporting.export import export
from torchtrt_compiler.refit.refitting import refit_with_memory
from torchtrt_compiler.seen_sizes import Bounds, Shapes, as_input, end_shapes
from torchtrt_follow.calls import Call
from torchtrt_follow.fingerprint import Fingerprint, fingerprint, tensors_of
from torchtrt_follow.state import ModelState
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.weights.graph_attributes import copied_attributes, written_attributes
from torchtrt_runtime.weights.marks import Layout, WatchedWeights, layout_of


class Held(NamedTuple):
    """The weights of a model at one moment, which engines have since.

    Attributes:
        state: The model's state at that moment.
        watched: What notices changes since then.
    """

    state: ModelState
    watched: WatchedWeights


@dataclass(eq=False)
class Program:
    """Engines, and the graph around them.

    Attributes:
        compiled: The compiled model.
        fingerprint: Its computation.
        ends: The minimum and the maximum shapes of the tensors that it was compiled for.
        written: Its weights that it writes to.
        held: The weights of the model that are in the engines; None if they may be any.
    """

    compiled: CompiledModule
    fingerprint: Fingerprint
    ends: Sequence[Shapes] = ()
    written: frozenset[str] = frozenset()
    held: Held | None = None

    def accepts(self, call: Call) -> bool:
        """Returns whether it was compiled for such a call."""
        try:
            self.compiled.checks.check(self.compiled.flatten(call.args, call.kwargs))
        except InputError:
            return False
        return True

    def covers(self, other: Program) -> bool:
        """Returns whether it takes the minimum and the maximum shapes of another one."""
        return all(map(self.compiled.checks.takes, other.ends))


@dataclass(frozen=True, eq=False)
class Binding:
    """A program for one structure of the model: which of the model's weights are which of the program's.

    Attributes:
        program: The program.
        key: The kind of call that it is for, as text.
        names: The model's name for each weight of the program.
        constants: The values of weights that have no name in the model.
    """

    program: Program
    key: str
    names: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]

    @property
    def written(self) -> set[str]:
        """The model's weights that the program writes to."""
        return {self.names[own] for own in self.program.written}

    def is_current(self, state: ModelState) -> bool:
        """Returns whether the engines have the weights of a model, which has this state."""
        held = self.program.held
        return held is not None and held.state is state and not held.watched.have_changed()

    def hold(self, state: ModelState, watched: WatchedWeights) -> None:
        """Notes that the engines have the weights of the moment since which these are watched."""
        watched.allow_writes(self.written)
        self.program.held = Held(state, watched)

    def refit(self, state: ModelState, written: Collection[str]) -> None:
        """Gives the program the weights of the model, which has this state. Calls of the model write to some of them.

        Raises:
            RefitError: The program takes no such weights.
        """
        # Values that are read later may be newer, never older.
        old, watched = self.program.held, WatchedWeights(state.weights)
        changed = old.watched.changed(state.weights) if old else set()
        read = {self.names[own] for own in self.program.fingerprint.weights}
        # Libraries write to weights through .data: to merge an adapter, or a batch into the statistics of a layer. Then
        # a scale changes, or a weight that the program does not read.
        if not old or old.state.scales != state.scales or changed - read - set(written):
            changed = set(self.names.values())
        names = [own for own, name in self.names.items() if name in changed]
        if names:
            tensors = {**self.constants, **state.tensors()}
            new = {own: tensors[name] for own, name in self.names.items()}
            with torch.inference_mode(False), torch.no_grad():
                refit_with_memory(self.program.compiled, new, names)
        self.hold(state, watched)


def bind(
    model: torch.nn.Module,
    call: Call,
    bounds: Sequence[Bounds],
    state: ModelState,
    options: Mapping[str, Any],
    programs: Sequence[Program],
) -> Binding:
    """Returns a binding of a model to a program for a call: to one of several programs, or to a new one.

    Args:
        model: A copy of the model that can be exported.
        call: The call.
        bounds: For each tensor of the call, the dynamic sizes.
        state: The model's state, which the copy has.
        options: Settings of ``torchtrt.compile``.
        programs: Programs that may take the weights.

    Raises:
        TorchTRTError: The model cannot be compiled.
    """
    args, kwargs = call.with_tensors(map(as_input, call.tensors, bounds))
    watched = WatchedWeights(state.weights)
    with warnings.catch_warnings(), torch.inference_mode(False):
        # Sizes that a program does not take get a program of their own.
        warnings.simplefilter("ignore", SizeWarning)
        exported = export(model, args, kwargs, None)
        new, constants = fingerprint(exported), _constants(exported, state)
        for program in programs if new.text is not None else ():
            if program.fingerprint.text == new.text:
                own = dict(zip(program.fingerprint.weights, new.weights, strict=True))
                return Binding(program, repr(call.key), own, constants)
        compiled = compile_model(exported, args, kwarg_inputs=kwargs, **options)
    weights = {**state.weights, **constants}
    names = {name: name for name in tensors_of(exported)}
    layouts = {layout for layout in release(compiled) if layout}
    written = frozenset(name for name in names if layout_of(weights[name]) in layouts)
    ends = [end_shapes(call.shapes, bounds, end) for end in (0, 2)]
    program = Program(compiled, new, ends, written)
    binding = Binding(program, repr(call.key), names, constants)
    binding.hold(state, watched)
    return binding


def _constants(exported: ExportedProgram, state: ModelState) -> dict[str, torch.Tensor]:
    """Returns the tensors of a program that are no weights of the model.

    Raises:
        UnsupportedProgramError: It has a weight of the model under no name.
    """
    constants = {
        name: tensor for name, tensor in tensors_of(exported).items() if name not in state.weights
    }
    own = {storage_of(weight) for weight in state.weights.values() if layout_of(weight)}
    for name, constant in constants.items():
        if name not in exported.state_dict and layout_of(constant) and storage_of(constant) in own:
            raise UnsupportedProgramError(
                f"Its forward reads a weight through an object that is no module ({name}), so the weight is unknown."
            )
    return constants


def release(compiled: CompiledModule) -> list[Layout | None]:
    """Lets a compiled model hold and watch none of the model's tensors, but for those that it writes to.

    A write to a weight while a call runs changes none of what that call reads.

    Returns:
        The layouts of the tensors that it writes to.
    """
    graph_module = compiled.graph_module
    tensors = {
        str(node.target): attrgetter(str(node.target))(graph_module)
        for node in graph_module.graph.find_nodes(op="get_attr")
    }
    written = written_attributes(graph_module.graph)
    copies = copied_attributes(graph_module, tensors.keys() - written, tensors.__getitem__)
    for name, tensor in copies.items():
        assign(graph_module, name, tensor.requires_grad_(False))
    compiled.graph_module = graph_module
    compiled.usage_checks = UsageChecks({}, autocast=compiled.usage_checks.autocast)
    return [layout_of(tensors[name]) for name in written]
