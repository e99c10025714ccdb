"""Runs the calls of a followed model on engines that have the model's weights."""

from __future__ import annotations

import copy
import functools
import os
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from torchtrt.callers import warn_caller
from torchtrt.errors import (
    ExportError,
    FollowWarning,
    InputError,
    MissingDistributionError,
    NoEngineWarning,
    PackError,
    RefitError,
    SettingsError,
    TensorRTUnavailableError,
)
from torchtrt.packs.preferences import settings_from
from torchtrt_compiler.reporting.partitions import check_complete
from torchtrt_compiler.seen_sizes import Bounds, SeenSizes
from torchtrt_follow.calls import Call, CallReader, is_traced
from torchtrt_follow.files import load_programs, save_programs
from torchtrt_follow.libraries import is_collecting
from torchtrt_follow.programs import Binding, Program, bind
from torchtrt_follow.state import ModelState
from torchtrt_follow.tracing import ImpureForwardError, traced_copy
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.serialization.folders import folder_of

_KEPT = 8
"""The structures of a model that are remembered."""
_REMEMBERED = 1024
"""The shapes of calls for which the program is remembered."""
_OF_THE_USER = (SettingsError, PackError, TensorRTUnavailableError, MissingDistributionError)
"""Errors that no call of the model brings about."""
_OWN_OPTIONS = ("dynamic_shapes", "max_programs", "fallback")


@dataclass(eq=False)
class _Structure:
    """A model whose Python state stays, and what runs its calls.

    Attributes:
        state: The model's state, in whose place newer ones with equal facts come.
        bindings: How the model's weights are in each program.
        refused: The kinds of calls that PyTorch runs, unless a program takes the sizes.
        chosen: The program for each kind of call and shapes; None where PyTorch runs them.
    """

    state: ModelState
    bindings: dict[Program, Binding] = field(default_factory=dict)
    refused: set[Any] = field(default_factory=set)
    chosen: dict[Any, Binding | None] = field(default_factory=dict)

    def refit(self, binding: Binding) -> None:
        """Gives the model's weights to a program, as ``Binding.refit`` does, if it has others."""
        if not binding.is_current(self.state):
            written = set().union(*(own.written for own in self.bindings.values()))
            binding.refit(self.state, written)

    def drop(self, program: Program) -> None:
        """Removes a program."""
        self.bindings.pop(program, None)
        self.chosen = {}


class Follower:
    """Runs a model's calls on engines with the weights that the model has.

    Args:
        model: The model.
        options: The arguments of ``follow``.

    Attributes:
        model: The model as PyTorch runs it.
        options: The arguments of ``follow``.
        forward: The function that calls of the followed model run; libraries may replace it.
        own_forward: The one that runs engines.
    """

    def __init__(self, model: torch.nn.Module, options: Mapping[str, Any]) -> None:
        settings = {"immutable_weights": False, **options}
        declared, self._max_programs, self._fallback = map(settings.pop, _OWN_OPTIONS)
        settings_from(settings)  # now, not on the first call
        if not isinstance(self._max_programs, int) or self._max_programs < 1:
            raise SettingsError(f"max_programs is {self._max_programs!r}. Give a number from 1 on.")
        self.model = model
        self.options = options
        self.forward = self.own_forward = _forward(self)
        self._settings = settings
        self._reader = CallReader(model.forward, declared)
        self._sizes: defaultdict[Any, SeenSizes] = defaultdict(SeenSizes)
        self._programs: list[Program] = []  # those of the structure of the last call are the last
        self._structures: list[_Structure] = []  # likewise
        self._changes = 0
        self._impure: Counter[Any] = Counter()
        # Why PyTorch runs kinds of calls that it has not run yet; None where the next one is to be compiled.
        self._reasons: dict[Any, str | None] = {}
        self._warned: set[Any] = set()
        self._lock = threading.RLock()  # for all but calls like an earlier one
        self._changer: int | None = None
        self._ready: Mapping[Any, Binding] = {}

    @property
    def programs(self) -> list[CompiledModule]:
        """The compiled models, each with its ``report``: those for the model as it is now come last."""
        return [program.compiled for program in self._programs]

    def __repr__(self) -> str:
        return f"<{type(self.model).__name__} followed by {len(self.programs)} compiled programs>"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lets calls in other threads compute with the weights from before, while a ``with`` block changes several.

        Calls that need another program wait for the end of the block.
        """
        with self._lock:
            is_outermost = self._changer is None
            if is_outermost:
                self._ready = {
                    kind: binding
                    for structure in self._structures[-1:]
                    if structure.state.is_same()
                    for kind, binding in structure.chosen.items()
                    if binding is not None and binding.is_current(structure.state)
                }
                self._changer = threading.get_ident()
            try:
                yield
            finally:
                if is_outermost:
                    self._changer, self._ready = None, {}

    def refresh(self, *, weights_only: bool = False) -> None:
        """Lets the next call read again what cannot be watched.

        That is a write to a weight through ``.data`` or an array of NumPy, and Python state that ``forward`` reads
        besides the attributes of its modules. The next call exports the model, and takes all weights. Engines are built
        only if the exported program is a new one.

        Args:
            weights_only: Whether only values of weights have changed: the model is not exported then.
        """
        with self._lock:
            for program in self._programs:
                program.held = None
            if not weights_only:
                self._structures = []
                self._impure.clear()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the programs for the model as it is now into a folder, from which ``load`` takes them.

        Raises:
            InputError: No call has been compiled, or a program writes to weights.
            UnsupportedProgramError: A program holds something that has no form in a file.
        """
        path = folder_of(folder)
        with self._lock:
            structure = self._structure()
            bindings = structure.bindings.values()
            for binding in bindings:
                structure.refit(binding)
            save_programs(path, self.model, structure.state, bindings)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Takes the programs in a folder for those of the model. Nothing is exported or built.

        Engines whose weights differ from the model's get them in the next call. If other state of the model differs, a
        ``FollowWarning`` says so, and the next call exports the model to compare the programs.

        Raises:
            InputError: The folder has no programs, they are for another model, or they take no other weights.
            UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
        """
        state, bindings, is_same_model = load_programs(folder_of(folder), self.model)
        structure = _Structure(state, {binding.program: binding for binding in bindings})
        with self._lock:
            self._structures = [structure] if is_same_model else []
            self._programs = list(structure.bindings)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Returns what the model returns for a call."""
        call = None if is_traced() or is_collecting() else self._read(args, kwargs)
        if call is None:
            return self.model.forward(*args, **kwargs)
        binding = self._binding_for(call)
        if binding is None:
            return self._run_in_pytorch(call, args, kwargs)
        try:
            return binding.program.compiled(*call.args, **call.kwargs)
        except InputError as error:  # before anything ran
            if not self._fallback:
                raise
            self._warn(("input", call.key), f"A call runs in PyTorch: {error}")
            return self.model.forward(*args, **kwargs)

    def _run_in_pytorch(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Returns what the model returns for a call that cannot be compiled, and warns after the first.

        Later calls are compiled if the model raises an error, because this one was wrong, or if it may have prepared
        itself.
        """
        try:
            result = self.model.forward(*args, **kwargs)
        except Exception:
            if self._reasons.pop(call.key, "") != "":
                self._compile_later(call)
            raise
        reason = self._reasons.pop(call.key, "")
        if reason is None:
            self._compile_later(call)
        elif reason:
            self._warn(("compile", call.key), reason)
        return result

    def _compile_later(self, call: Call) -> None:
        with self._lock:
            for structure in self._structures:
                structure.refused.discard(call.key)
                structure.chosen = {}

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Returns a call that engines may run; None for one that PyTorch runs."""
        if self.model.training:
            self.refresh(weights_only=True)  # PyTorch does not count writes to statistics
            return None
        try:
            call = self._reader.read(args, kwargs)
        except TypeError:  # the model raises the error itself
            return None
        except InputError as error:
            self._warn(("call", str(error)), f"A call runs in PyTorch: {error}")
            return None
        sources = chain(call.tensors, self.model.parameters())
        if torch.is_grad_enabled() and any(source.requires_grad for source in sources):
            self._warn(
                "gradients",
                "A call runs in PyTorch, because it may need gradients, which engines do not compute. Call it under "
                "torch.no_grad() or torch.inference_mode().",
            )
            return None
        return None if self._impure[call.key] > 1 and self._fallback else call

    def _binding_for(self, call: Call) -> Binding | None:
        """Returns the program for a call, with the model's weights; None where it cannot be compiled.

        A call like an earlier one takes no lock if the model is the same.
        """
        kind, structures = (call.key, call.shapes), self._structures
        if self._changer not in (None, threading.get_ident()):
            if (binding := self._ready.get(kind)) is not None:
                return binding
        elif structures and kind in (chosen := structures[-1].chosen):
            binding, state = chosen[kind], structures[-1].state
            if state.is_same() and (binding is None or binding.is_current(state)):
                return binding
        with self._lock:
            return self._current_binding(call, kind)

    def _current_binding(self, call: Call, kind: Any) -> Binding | None:
        """Compares the model with what it was, selects a program, and gives it weights that have changed."""
        self._ready = {}  # a program may get weights before all of them have changed
        structure = self._structure()
        while binding := structure.chosen.get(kind) or self._select_or_compile(structure, call):
            try:
                structure.refit(binding)
                break
            except RefitError:  # a value of a weight is compiled in
                self._drop(binding.program)
        if len(structure.chosen) >= _REMEMBERED:
            structure.chosen = {}
        structure.chosen[kind] = binding
        return binding

    def _structure(self) -> _Structure:
        """Returns the structure that the model has."""
        state, kept = ModelState(self.model), self._structures
        equal = [structure for structure in kept if structure.state.facts == state.facts]
        structure = equal[0] if equal else _Structure(state)
        if not structure.state.is_same():
            structure.state = state
        if kept[-1:] == [structure]:
            return structure
        if kept:
            self.refresh(weights_only=True)  # libraries that merge adapters write through .data
            if not equal:
                self._note_change(state.difference(kept[-1].state))
        self._structures = [*(other for other in kept if other is not structure), structure]
        del self._structures[:-_KEPT]
        self._programs = sorted(self._programs, key=structure.bindings.__contains__)
        return structure

    def _note_change(self, path: str) -> None:
        self._changes += 1
        if self._changes == 2 * _KEPT:
            warn_caller(
                f"The model has had {self._changes} structures, and each is exported anew. The last to change was "
                f"{path!r}. If each call changes it, follow the modules that do not.",
                FollowWarning,
            )

    def _select_or_compile(self, structure: _Structure, call: Call) -> Binding | None:
        """Returns a program that takes a call, one that is there or a new one; None if it cannot be compiled."""
        key = repr(call.key)
        for binding in structure.bindings.values():
            if binding.key == key and binding.program.accepts(call):
                return binding
        if call.key in structure.refused:
            return None
        try:
            new = self._compile(structure, call)
        except _OF_THE_USER:
            raise
        except Exception as error:
            new, is_impure = None, isinstance(error, ImpureForwardError)
            self._impure[call.key] += is_impure
            # Models prepare themselves in their first call, and have another structure then.
            is_first = is_impure and self._impure[call.key] == 1
            if not (is_first or self._fallback):
                raise
            name = type(self.model).__name__
            text = f"{name} runs in PyTorch for calls like {call}. {error}"
            self._reasons[call.key] = None if is_first else text
        if new is None:
            structure.refused.add(call.key)
        else:
            self._add(structure, new)
        return new

    def _compile(self, structure: _Structure, call: Call) -> Binding | None:
        """Returns a new program for a call, or an old one that takes its weights; None if it has no engine."""
        # Sizes that cannot be compiled widen no range.
        declared, seen = self._reader.declared(call), copy.deepcopy(self._sizes[call.key])
        seen.add(call.shapes)
        bounds = seen.bounds(call.shapes, declared)
        others, binding = self._unused(structure), None
        has_room = bool(others) or len(self._programs) < self._max_programs
        keys = {binding.key for binding in structure.bindings.values()}
        if any(bounds) and (has_room or repr(call.key) in keys):  # a wider program replaces others
            with suppress(InputError, ExportError):  # sizes that broadcast, for one
                wide = self._bind(structure.state, call, bounds, others)
                binding = wide if wide.program.accepts(call) else None
        if binding is None:
            if not has_room:
                raise InputError(
                    f"max_programs allows no more than {self._max_programs}, and no compiled program takes "
                    "such a call. Give tensors in place of numbers that vary, declare sizes with dynamic_shapes, or "
                    "allow more."
                )
            seen.fix()
            binding = self._bind(structure.state, call, [{} for _ in bounds], others)
        if not binding.program.compiled.report.blocks:
            if not (self._fallback or self._settings.get("tune")):  # PyTorch may be the fastest
                check_complete(binding.program.compiled.report, "fallback=False")
            self._warned.add(NoEngineWarning)
            return None
        self._sizes[call.key] = seen
        return binding

    def _bind(
        self, state: ModelState, call: Call, bounds: list[Bounds], programs: list[Program]
    ) -> Binding:
        model = traced_copy(self.model, state)
        with warnings.catch_warnings():
            if NoEngineWarning in self._warned or not self._fallback:  # one is enough, or an error
                warnings.simplefilter("ignore", NoEngineWarning)
            return bind(model, call, bounds, state, self._settings, programs)

    def _add(self, structure: _Structure, new: Binding) -> None:
        """Adds a program to those of a structure, and removes those in whose place it comes."""
        for binding in list(structure.bindings.values()):
            if binding.key == new.key and new.program.covers(binding.program):
                self._drop(binding.program)
        structure.bindings[new.program] = new
        others = [program for program in self._programs if program is not new.program]
        self._programs = [*others, new.program]
        surplus = max(0, len(self._programs) - self._max_programs)
        for program in self._unused(structure)[:surplus]:
            self._drop(program)

    def _unused(self, structure: _Structure) -> list[Program]:
        return [program for program in self._programs if program not in structure.bindings]

    def _drop(self, program: Program) -> None:
        self._programs.remove(program)
        for structure in self._structures:
            structure.drop(program)

    def _warn(self, kind: Any, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_caller(message, FollowWarning)


def _forward(follower: Follower) -> Any:
    @functools.wraps(follower.model.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return torch.compiler.disable(follower)(args, kwargs)
        return follower(args, kwargs)

    return forward
