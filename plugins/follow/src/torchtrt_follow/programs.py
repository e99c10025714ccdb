"""Compiled programs of a followed model, and the weights that are in them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.export import ExportedProgram

from torchtrt.errors import InputError, UnsupportedProgramError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import assign
from torchtrt_compiler.api import compile as compile_model
from torchtrt_compiler.api import compile_exported
from torchtrt_compiler.exporting.export import export
from torchtrt_compiler.refit.refitting import refit_with_memory
from torchtrt_compiler.seen_sizes import Shapes
from torchtrt_follow.calls import Call
from torchtrt_follow.fingerprint import Fingerprint, fingerprint
from torchtrt_follow.state import ModelState
from torchtrt_runtime.checks.usage import UsageChecks
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.weights.graph_attributes import copied_attributes, written_attributes
from torchtrt_runtime.weights.marks import WatchedWeights, WeightMark, layout_of


class Marks(NamedTuple):
    """The weights of a model at one moment.

    Attributes:
        weights: The mark of each weight.
        scales: The scales of its adapters.
    """

    weights: Mapping[str, WeightMark]
    scales: Mapping[str, float]

    @classmethod
    def of(cls, state: ModelState) -> Marks:
        """Returns the marks of now. Values that are read later may be newer, never older."""
        return cls(
            {name: WeightMark(weight) for name, weight in state.weights.items()}, state.scales
        )

    def only(self, names: Collection[str]) -> Marks:
        """Returns the marks of some weights and scales."""
        weights = {name: mark for name, mark in self.weights.items() if name in names}
        return Marks(weights, {name: scale for name, scale in self.scales.items() if name in names})


@dataclass(eq=False)
class Program:
    """Engines, and the graph around them.

    Attributes:
        compiled: The compiled model; None where no op became an engine.
        fingerprint: Its computation.
        written: The weights that it writes to.
        loaded: Whose weights are in the engines; None if they may be older than the model's.
    """

    compiled: CompiledModule | None
    fingerprint: Fingerprint
    written: frozenset[str] = frozenset()
    loaded: Binding | None = None

    def accepts(self, call: Call) -> bool:
        """Returns whether it was compiled for such a call."""
        if self.compiled is None:
            return True
        try:
            self.compiled.checks.check(self.compiled.flatten(call.args, call.kwargs))
        except InputError:
            return False
        return True


class Binding:
    """A program for one structure of the model: which of the model's weights are which of the program's.

    Args:
        program: The program.
        names: The model's name for each weight of the program.
        constants: The values of weights that have no name in the model.
        ends: The minimum and the maximum shapes of the tensors that it was compiled for.
    """

    def __init__(
        self,
        program: Program,
        names: Mapping[str, str],
        constants: Mapping[str, torch.Tensor],
        ends: Sequence[Shapes],
    ) -> None:
        self.program = program
        self.names = names
        self.constants = constants
        self.ends = ends
        self.written = frozenset(names[own] for own in program.written)
        self._state: ModelState | None = None
        self._marks = Marks({}, {})
        self._watched = WatchedWeights([])

    def is_current(self, state: ModelState) -> bool:
        """Returns whether the engines have the weights of a model, which has this state."""
        return (
            self.program.loaded is self
            and self._state is state
            and not self._watched.have_changed()
        )

    def hold(self, marks: Marks, state: ModelState | None) -> None:
        """Notes that the engines have the weights of a moment.

        Args:
            marks: The marks of these weights.
            state: The model's state at that moment; None if other weights are still to come.
        """
        self.program.loaded, self._marks, self._state = self, marks, state
        watched = [(mark, name not in self.written) for name, mark in marks.weights.items()]
        self._watched = WatchedWeights(watched)

    def refit(self, state: ModelState, written: Collection[str]) -> None:
        """Gives the model's weights to the program.

        Args:
            state: The model's state.
            written: The weights that calls of the model write to.

        Raises:
            RefitError: The program takes no such weights.
        """
        marks = Marks.of(state)  # before values are read
        old = self._marks.weights
        changed = {
            name
            for name, tensor in state.weights.items()
            if name not in old or not old[name].is_of(tensor)
        }
        read = {self.names[own] for own in self.program.fingerprint.weights}
        # Libraries write to weights through .data: to merge an adapter, or a batch into the statistics of a layer. Then
        # a scale changes, or a weight that the program does not read.
        is_partial = self.program.loaded is self and self._marks.scales == state.scales
        if not is_partial or changed - read - set(written):
            changed = set(self.names.values())
        names = [own for own, name in self.names.items() if name in changed]
        if names and self.program.compiled is not None:
            tensors = {**self.constants, **state.tensors()}
            new = {own: tensors[name] for own, name in self.names.items()}
            with torch.inference_mode(False), torch.no_grad():
                refit_with_memory(self.program.compiled, new, names)
        self.hold(marks, state)


def bind(
    model: torch.nn.Module,
    call: Call,
    inputs: Sequence[Any],
    state: ModelState,
    options: Mapping[str, Any],
    programs: Sequence[Program],
) -> Binding:
    """Returns a binding of a model to a program for a call: to one of several programs, or to a new one.

    Args:
        model: A copy of the model that can be exported.
        call: The call.
        inputs: What to compile for in place of each tensor of the call.
        state: The model's state.
        options: Settings of ``torchtrt.compile``.
        programs: Programs that may take the weights.

    Raises:
        TorchTRTError: The model cannot be compiled.
    """
    args, kwargs = call.with_tensors(iter(inputs))
    with warnings.catch_warnings(), torch.inference_mode(False):
        # Sizes that a program does not take get a program of their own.
        warnings.filterwarnings("ignore", message="You asked for")
        exported = export(model, args, kwargs, None)
        new = fingerprint(exported)
        constants = _constants(exported, state)
        for program in programs if new.text is not None else ():
            if program.fingerprint.text == new.text:
                pairs = zip(program.fingerprint.weights, new.weights, strict=True)
                return Binding(program, dict(pairs), constants, ())
        if options.get("tune"):
            compiled = compile_model(model, args, kwarg_inputs=kwargs, **options)
        else:
            compiled = compile_exported(model, exported, args, kwargs, options)
    names = {name: name for name in _tensors(exported)}
    weights = {**state.weights, **constants}
    written = _written(compiled, {name: weights[name] for name in names})
    release(compiled)
    is_used = any(isinstance(module, EngineModule) for module in compiled.graph_module.modules())
    return Binding(Program(compiled if is_used else None, new, written), names, constants, ())


def _written(compiled: CompiledModule, weights: Mapping[str, torch.Tensor]) -> frozenset[str]:
    """Returns the names of the weights that a compiled model writes to."""
    graph_module = compiled.graph_module
    written = [attrgetter(name)(graph_module) for name in written_attributes(graph_module.graph)]
    layouts = [layout for tensor in written if (layout := layout_of(tensor))]
    return frozenset(name for name, weight in weights.items() if layout_of(weight) in layouts)


def _tensors(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Returns the weights and constants of a program, by name."""
    values = {**exported.constants, **exported.state_dict}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def _constants(exported: ExportedProgram, state: ModelState) -> dict[str, torch.Tensor]:
    """Returns the tensors of a program that are no weights of the model.

    Raises:
        UnsupportedProgramError: It has a weight of the model under no name.
    """
    tensors = _tensors(exported)
    constants = {name: tensor for name, tensor in tensors.items() if name not in state.weights}
    own = {storage_of(weight) for weight in state.weights.values() if layout_of(weight)}
    for name, constant in constants.items():
        if name not in exported.state_dict and layout_of(constant) and storage_of(constant) in own:
            raise UnsupportedProgramError(
                f"Its forward reads a weight through an object that is no module ({name}), so the weight is unknown."
            )
    return constants


def release(compiled: CompiledModule) -> None:
    """Lets a compiled model hold and watch none of the model's tensors, but for those that it writes to.

    A write to a weight while a call runs changes none of what that call reads.
    """
    graph_module = compiled.graph_module
    read = {str(node.target) for node in graph_module.graph.find_nodes(op="get_attr")}
    names = read - written_attributes(graph_module.graph)
    copies = copied_attributes(graph_module, names, lambda name: attrgetter(name)(graph_module))
    for name, tensor in copies.items():
        assign(graph_module, name, tensor.requires_grad_(False))
    compiled.graph_module = graph_module
    compiled.usage_checks = UsageChecks({}, trains=False, autocast=compiled.usage_checks.autocast)
