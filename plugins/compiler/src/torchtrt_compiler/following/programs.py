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
from torchtrt_compiler.following.adapters import as_tensor, merged_adapters, named_numbers
from torchtrt_compiler.following.calls import Call
from torchtrt_compiler.following.fingerprint import Fingerprint, fingerprint
from torchtrt_compiler.following.sizes import Shapes
from torchtrt_compiler.following.state import ModelState, address_of, place_of, version_of
from torchtrt_compiler.refit.refitting import refit_with_memory
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


_STATISTICS = ("running_mean", "running_var")
_WatchedTensor = tuple[str, torch.Tensor, int, Any]
"""A weight's name, its tensor, its version and its place."""
_WatchedNumber = tuple[str, dict[str, Any], str, Any]
"""The name of a number's tensor, where the number is, and its value."""


class Watch:
    """The weights of a model at one moment.

    Args:
        model: The model.
        state: Its state.
    """

    def __init__(self, model: torch.nn.Module, state: ModelState) -> None:
        self.tensors: list[_WatchedTensor] = [
            (name, tensor, version_of(tensor), place_of(tensor))
            for name, tensor in state.weights.items()
        ]
        self.numbers: list[_WatchedNumber] = [
            (name, holder, key, holder[key]) for name, holder, key in named_numbers(model)
        ]


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
        self._odd: list[_WatchedTensor] = []
        self._plain: list[torch.Tensor] = []
        self._placed: list[torch.Tensor] = []
        self._versions: list[int] = []
        self._places: list[Any] = []
        self._numbers: list[_WatchedNumber] = []

    def watch(self, watched: Watch) -> None:
        """Takes the program's weights for those of a moment."""
        tensors = [each for each in watched.tensors if each[0] not in self.written]
        own = [each for each in watched.tensors if each[0] in self.written]
        self._numbers = watched.numbers
        # PyTorch answers for all of these in C++.
        plain = [each for each in tensors if each[2] >= 0 and each[3]]
        self._odd = [each for each in tensors if each[2] < 0 or not each[3]]
        self._plain = [each[1] for each in plain]
        self._versions = [each[2] for each in plain]
        self._placed = [each[1] for each in (*plain, *own)]
        self._places = [each[3] for each in (*plain, *own)]
        self.is_stale = False

    def is_current(self) -> bool:
        """Returns whether the program has the model's weights."""
        if self.is_stale or self.program.loaded is not self:
            return False
        return not (self._has_changed() or self._scales_differ())

    def refit(self, model: torch.nn.Module, state: ModelState) -> None:
        """Gives the model's weights to the program.

        Raises:
            RefitError: The program takes no such weights.
        """
        watched = Watch(
            model, state
        )  # before values are read: the next call sees what changes meanwhile
        program, marks = self.program, self.marks(watched)
        if self._sharing(watched) != program.sharing:
            raise RefitError("Weights that the program writes to share memory with others.")
        # Adapters that are merged, or were with another scale, are written into weights through .data.
        if self._scales_differ() or (merged_adapters(model) and self._has_changed()):
            program.held = {}
        changed = self._with_neighbors(
            own for own, mark in marks.items() if not _is_same(program.held.get(own), mark)
        )
        if changed and program.compiled is not None:
            numbers = {name: as_tensor(value) for name, _, _, value in watched.numbers}
            known = {**self.constants, **state.weights, **numbers}
            weights = {own: known[self.names[own]] for own in marks}
            changed = [own for own in changed if own in weights]
            with torch.inference_mode(False), torch.no_grad():
                refit_with_memory(program.compiled, weights, changed)
        program.held = marks
        program.loaded = self
        self.watch(watched)

    def load(self, watched: Watch) -> None:
        """Notes that the program was compiled with the weights of a moment."""
        self.watch(watched)
        self.program.loaded = self
        self.program.held = self.marks(watched)
        self.program.sharing = self._sharing(watched)

    def _sharing(self, watched: Watch) -> frozenset[frozenset[str]]:
        """Returns the groups of weights that share memory with one that the program writes to."""
        tensors = {name: tensor for name, tensor, *_ in watched.tensors}
        groups: dict[int, set[str]] = {}
        for own, name in self.names.items() if self.written else ():
            tensor = tensors.get(name)
            if tensor is not None and _is_strided(tensor):
                groups.setdefault(storage_of(tensor), set()).add(own)
        return frozenset(
            frozenset(each)
            for each in groups.values()
            if any(self.names[own] in self.written for own in each)
        )

    def _with_neighbors(self, changed: Iterable[str]) -> list[str]:
        """Returns changed weights, and those that may have changed with them.

        PyTorch does not count what batch normalization writes to its statistics.
        """
        modules = {self.names[own].rpartition(".")[0] for own in changed}
        return [
            own
            for own, name in self.names.items()
            if modules and (name.rpartition(".")[0] in modules or name.endswith(_STATISTICS))
        ]

    def marks(self, watched: Watch) -> dict[str, Any]:
        """Returns what identifies each weight of the program, by the program's names."""
        marks: dict[str, Any] = {name: mark for name, *mark in watched.tensors}
        marks |= {name: [value] for name, _, _, value in watched.numbers}
        for name, tensor in self.constants.items():
            marks.setdefault(name, [tensor, version_of(tensor), place_of(tensor)])
        return {
            own: [*marks[name], *marks.get(_counter_of(name), ())]
            for own, name in self.names.items()
            if name in marks
        }

    def _has_changed(self) -> bool:
        """Returns whether a weight is another than it was: by its version, its address or its layout."""
        try:
            if [each._version for each in self._plain] != self._versions:
                return True
            placed = self._placed
            if [(each.data_ptr(), each.shape, each.stride()) for each in placed] != self._places:
                return True
        except RuntimeError:  # one is another kind of tensor now
            return True
        return any(
            version_of(tensor) != version or place_of(tensor) != place
            for _, tensor, version, place in self._odd
        )

    def _scales_differ(self) -> bool:
        return any(holder.get(key) != value for _, holder, key, value in self._numbers)


def _counter_of(name: str) -> str:
    """Returns the name of the number of batches that a statistic has seen; empty for any other weight.

    PyTorch counts writes to this number, which no program reads, and not those to the statistic.
    """
    module, _, own = name.rpartition(".")
    return f"{module}.num_batches_tracked".lstrip(".") if own in _STATISTICS else ""


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
    places = filter(None, map(place_of, _destinations(compiled.graph_module).values()))
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
    own = {storage_of(each) for each in state.weights.values() if _is_strided(each)}
    for name, each in constants.items():
        if name not in exported.state_dict and _is_strided(each) and storage_of(each) in own:
            raise UnsupportedProgramError(
                f"Its forward reads a weight through an object that is no module ({name}), so the weight is unknown."
            )
    return {name: name for name in tensors}, constants


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and address_of(tensor) != 0


def _at(
    places: list[Any], weights: Mapping[str, torch.Tensor], names: Iterable[str]
) -> frozenset[str]:
    """Returns the names of weights that are in some places."""
    return frozenset(name for name in names if place_of(weights[name]) in places)


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
