"""Compiled programs of a followed model, and the weights that are in them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule

from torchtrt.errors import InputError, RefitError, UnsupportedProgramError
from torchtrt.graphs.memory import storage_of
from torchtrt.graphs.nodes import writes
from torchtrt_compiler.api import compile as compile_model
from torchtrt_compiler.api import compile_exported
from torchtrt_compiler.exporting.export import export
from torchtrt_compiler.refit.refitting import refit_with_memory
from torchtrt_follow.calls import Call
from torchtrt_follow.fingerprint import Fingerprint, fingerprint
from torchtrt_follow.libraries import merged_weights
from torchtrt_follow.scales import Scale, as_tensor, named_scales
from torchtrt_follow.sizes import Shapes
from torchtrt_follow.state import ModelState
from torchtrt_follow.weights import (
    WatchedWeights,
    WeightMark,
    counter_of,
    is_strided,
    layout_of,
    with_neighbors,
)
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule


class Program:
    """Engines, and the graph around them.

    Args:
        compiled: The compiled model; None where no op became an engine.
        fingerprint: What it computes; None if that is unknown.
        written: The weights that it writes to.

    Attributes:
        loaded: Whose weights are in the engines.
        held: For each weight in the engines, what identified it then.
        sharing: The weights that share memory with one that it writes to, as groups.
    """

    def __init__(
        self,
        compiled: CompiledModule | None,
        fingerprint: Fingerprint | None,
        written: frozenset[str] = frozenset(),
    ) -> None:
        self.compiled = compiled
        self.fingerprint = fingerprint
        self.written = written
        self.loaded: Binding | None = None
        self.held: dict[str, Any] = {}
        self.sharing: frozenset[frozenset[str]] = frozenset()

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Returns whether it was compiled for such arguments."""
        if self.compiled is None:
            return True
        try:
            self.compiled.checks.check(self.compiled.flatten(args, kwargs))
        except InputError:
            return False
        return True


class ModelWeights:
    """The weights of a model at one moment.

    Args:
        model: The model.
        state: Its state.

    Attributes:
        marks: The marks of its tensors, by name.
        scales: The scales of its adapters.
    """

    def __init__(self, model: torch.nn.Module, state: ModelState) -> None:
        self.marks = {name: WeightMark.of(tensor) for name, tensor in state.weights.items()}
        self.scales = list(named_scales(model))


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
        self.written = frozenset(names[own] for own in program.written)
        self.ends = ends
        self.is_stale = False
        self._weights = WatchedWeights({}, ())
        self._scales: list[Scale] = []

    def watch(self, weights: ModelWeights) -> None:
        """Takes the program's weights for those of a moment."""
        self._weights = WatchedWeights(weights.marks, self.written)
        self._scales = weights.scales
        self.is_stale = False

    def is_current(self) -> bool:
        """Returns whether the program has the model's weights."""
        if self.is_stale or self.program.loaded is not self:
            return False
        return not (
            self._weights.have_changed() or any(scale.has_changed() for scale in self._scales)
        )

    def refit(self, model: torch.nn.Module, state: ModelState) -> None:
        """Gives the model's weights to the program.

        Raises:
            RefitError: The program takes no such weights.
        """
        # Before values are read: the next call sees what changes meanwhile.
        weights = ModelWeights(model, state)
        program, marks = self.program, self.marks(weights)
        if self._sharing(weights) != program.sharing:
            raise RefitError("Weights that the program writes to share memory with others.")
        # Libraries write adapters that are merged, or were with another scale, into weights through .data.
        is_merged = any(merged_weights(model)) and self._weights.have_changed()
        if is_merged or any(scale.has_changed() for scale in self._scales):
            program.held = {}
        changed = with_neighbors(
            (own for own, mark in marks.items() if not _is_same(program.held.get(own), mark)),
            self.names,
        )
        if changed and program.compiled is not None:
            scales = {each.name: as_tensor(each.value) for each in weights.scales}
            tensors = {**self.constants, **state.weights, **scales}
            new = {own: tensors[self.names[own]] for own in marks}
            with torch.inference_mode(False), torch.no_grad():
                refit_with_memory(program.compiled, new, [own for own in changed if own in new])
        program.held = marks
        program.loaded = self
        self.watch(weights)

    def load(self, weights: ModelWeights) -> None:
        """Notes that the program was compiled with the weights of a moment."""
        self.watch(weights)
        self.program.loaded = self
        self.program.held = self.marks(weights)
        self.program.sharing = self._sharing(weights)

    def _sharing(self, weights: ModelWeights) -> frozenset[frozenset[str]]:
        """Returns the groups of weights that share memory with one that the program writes to."""
        groups: dict[int, set[str]] = {}
        for own, name in self.names.items() if self.written else ():
            mark = weights.marks.get(name)
            if mark is not None and is_strided(mark.tensor):
                groups.setdefault(storage_of(mark.tensor), set()).add(own)
        return frozenset(
            frozenset(each)
            for each in groups.values()
            if any(self.names[own] in self.written for own in each)
        )

    def marks(self, weights: ModelWeights) -> dict[str, Any]:
        """Returns what identifies each weight of the program, by the program's names."""
        marks: dict[str, Any] = {
            **{name: WeightMark.of(tensor) for name, tensor in self.constants.items()},
            **weights.marks,
            **{each.name: (each.value,) for each in weights.scales},
        }
        return {
            own: (*marks[name], *marks.get(counter_of(name), ()))
            for own, name in self.names.items()
            if name in marks
        }


def _is_same(one: Any, other: Any) -> bool:
    return one is not None and len(one) == len(other) and all(map(_is_one, one, other))


def _is_one(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, torch.Tensor) and bool(one == other))


def bind(
    model: torch.nn.Module,
    call: Call,
    inputs: Sequence[Any],
    state: ModelState,
    options: Mapping[str, Any],
    known: Sequence[Program],
) -> Binding:
    """Returns a binding of a model to a program for a call: one that is known, or a new one.

    Args:
        model: A copy of the model that can be exported.
        call: The call.
        inputs: What to compile for in place of each tensor of the call.
        state: The model's state.
        options: Settings of ``torchtrt.compile``.
        known: Programs that may take the weights.

    Raises:
        TorchTRTError: The model cannot be compiled.
    """
    args, kwargs = call.with_tensors(iter(inputs))
    with warnings.catch_warnings(), torch.inference_mode(False):
        # Sizes that a program does not take get a program of their own.
        warnings.filterwarnings("ignore", message="You asked for")
        exported = export(model, args, kwargs, None)
        new = None if options.get("tune") else fingerprint(exported)
        names, constants = _weights(exported, state)
        for program in known:
            if (
                new is not None
                and program.fingerprint is not None
                and program.fingerprint.text == new.text
            ):
                pairs = zip(program.fingerprint.weights, new.weights, strict=True)
                return Binding(program, dict(pairs), constants, ())
        if options.get("tune"):
            compiled = compile_model(model, args, kwarg_inputs=kwargs, **options)
        else:
            compiled = compile_exported(model, exported, args, kwargs, options)
    places = filter(None, map(layout_of, _destinations(compiled.graph_module).values()))
    written = _at(list(places), {**state.weights, **constants}, names)
    return Binding(Program(_freed(compiled), new, written), names, constants, ())


def _weights(
    exported: ExportedProgram, state: ModelState
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Returns the names of a program's weights in the model, and those that are no weights of the model.

    Raises:
        UnsupportedProgramError: It has a weight of the model under no name.
    """
    values = {**exported.constants, **exported.state_dict}
    tensors = {name: each for name, each in values.items() if isinstance(each, torch.Tensor)}
    constants = {name: each for name, each in tensors.items() if name not in state.weights}
    own = {storage_of(each) for each in state.weights.values() if is_strided(each)}
    for name, each in constants.items():
        if name not in exported.state_dict and is_strided(each) and storage_of(each) in own:
            raise UnsupportedProgramError(
                f"Its forward reads a weight through an object that is no module ({name}), so the weight is unknown."
            )
    return {name: name for name in tensors}, constants


def _at(
    places: list[Any], weights: Mapping[str, torch.Tensor], names: Iterable[str]
) -> frozenset[str]:
    """Returns the names of weights that are in some places."""
    return frozenset(name for name in names if layout_of(weights[name]) in places)


def _destinations(graph_module: GraphModule) -> dict[str, torch.Tensor]:
    """Returns the tensors of a graph that it writes to, by its names for them."""
    nodes: list[Any] = [node.args[0] for node in graph_module.graph.nodes if writes(node)]
    names = {str(node.target) for node in nodes if node.op == "get_attr"}
    return {name: attrgetter(name)(graph_module) for name in names}


def _freed(compiled: CompiledModule) -> CompiledModule | None:
    """Returns a compiled model that holds none of the model's tensors but those that it writes to.

    A write to a weight while a call runs changes none of what that call reads.
    """
    graph_module = compiled.graph_module
    if not any(isinstance(each, EngineModule) for each in graph_module.modules()):
        return None
    kept = _destinations(graph_module).keys()
    made: dict[int, torch.Tensor] = {}
    for node in graph_module.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        value = attrgetter(name)(graph_module)
        if isinstance(value, torch.Tensor) and name not in kept:
            owner, _, leaf = name.rpartition(".")
            if id(value) not in made:
                new = value.detach().clone()
                made[id(value)] = (
                    torch.nn.Parameter(new, False) if isinstance(value, torch.nn.Parameter) else new
                )
            setattr(graph_module.get_submodule(owner), leaf, made[id(value)])
    compiled.graph_module = graph_module
    compiled.usage_checks = compiled.usage_checks.without_weights()
    compiled.usage_checks.trains = False
    return compiled
