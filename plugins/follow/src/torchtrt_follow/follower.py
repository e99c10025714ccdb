"""The program that runs a call of a followed model, and its weights."""

from __future__ import annotations

import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

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
from torchtrt_follow.calls import (
    Call,
    CallReader,
    UnsupportedCallError,
    is_seen_through,
    is_traced,
    text_of_call,
)
from torchtrt_follow.files import SavedPrograms, load_programs, save_programs
from torchtrt_follow.libraries import is_collecting, merged_weights
from torchtrt_follow.programs import Binding, ModelWeights, Program, bind
from torchtrt_follow.sizes import SeenSizes, as_input, end_shapes, fixed
from torchtrt_follow.state import Change, ModelState, NoState
from torchtrt_follow.structures import Structure, holds, steady
from torchtrt_follow.tracing import (
    ImpureForwardError,
    check_traceable,
    traced_copy,
)
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.serialization.folders import folder_of

_STRUCTURES = 8
"""The structures of a model whose programs are kept."""
_REMEMBERED = 1024
"""The shapes of calls for which the program is remembered."""
_OF_THE_USER = (SettingsError, PackError, TensorRTUnavailableError, MissingDistributionError)
"""Errors that no call of the model brings about."""


class Follower(NoState):
    """Runs a model's calls on engines with the weights that the model has.

    Args:
        model: The model.
        settings: Settings of ``torchtrt.compile``.
        dynamic_shapes: Dynamic sizes, by parameter.
        max_programs: The maximum number of programs at a time.
        fallback: Whether PyTorch runs calls that cannot be compiled.

    Attributes:
        model: The model as PyTorch runs it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        settings: Mapping[str, Any],
        dynamic_shapes: Mapping[str, Any],
        max_programs: int,
        fallback: bool,
    ) -> None:
        settings_from(settings)  # now, not on the first call
        if not isinstance(max_programs, int) or max_programs < 1:
            raise SettingsError(f"max_programs is {max_programs!r}. Give a number from 1 on.")
        self.model = model
        self.settings = dict(settings)
        self.options = {
            "dynamic_shapes": dynamic_shapes, "max_programs": max_programs, "fallback": fallback,
        }  # fmt: skip
        self.override: Any = None
        self._max_programs = max_programs
        self._fallback = fallback
        self._reader = CallReader(model.forward, dynamic_shapes)
        self._sizes: dict[Any, SeenSizes] = {}
        self._structures: list[Structure] = []  # the one in use last is the last
        self._saved: SavedPrograms | None = None
        self._impure: Counter[Any] = Counter()
        self._warned: set[Any] = set()
        self._with_scales = True
        self._has_trained = False
        self._count = 0
        self._merged: list[Any] = []
        self._lock = threading.RLock()
        self._is_stable = threading.Condition(self._lock)
        self._changer: int | None = None
        self._frozen: frozenset[int] = frozenset()
        self._depth = 0

    @property
    def programs(self) -> list[CompiledModule]:
        """The compiled models, each with its ``report``: those for the model as it is now come last."""
        return [each.compiled for each in self._programs() if each.compiled is not None]

    def __repr__(self) -> str:
        return f"<{type(self.model).__name__} followed by {len(self.programs)} compiled programs>"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lets calls in other threads compute with the weights from before, while a ``with`` block changes several.

        Calls that need another program wait for the end of the block.
        """
        me = threading.get_ident()
        with self._is_stable:
            while self._changer not in (None, me):
                self._is_stable.wait()
            if not self._depth:
                self._frozen = self._current_bindings()
            self._changer = me
            self._depth += 1
        try:
            yield
        finally:
            with self._is_stable:
                self._depth -= 1
                if not self._depth:
                    self._changer = None
                    self._is_stable.notify_all()

    def _current_bindings(self) -> frozenset[int]:
        """Returns the identities of the bindings whose programs have the model's weights."""
        if not self._structures or not holds(self._structures[-1].state):
            return frozenset()
        bindings = self._structures[-1].all_bindings()
        return frozenset(id(each) for each in bindings if each.is_current())

    def refresh(self) -> None:
        """Lets the next call take all weights again, for writes that PyTorch does not count, as through ``.data``."""
        with self._lock:
            for structure in self._structures:
                for binding in structure.all_bindings():
                    binding.is_stale = True
                    binding.program.held = {}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the programs for the model as it is now into a folder, from which ``load`` takes them.

        Raises:
            InputError: No call has been compiled, or a program writes to weights.
            UnsupportedProgramError: A program holds something that has no form in a file.
        """
        path = folder_of(folder)
        with self._is_stable:
            structure = self._current_structure()
            bindings = structure.to_save()
            for binding in chain.from_iterable(bindings.values()):
                if not binding.is_current():
                    binding.refit(self.model, structure.state)
            save_programs(path, self.model, structure.state, bindings)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Takes the programs in a folder for those of the model. Nothing is exported or built.

        Engines whose weights differ from the model's get them in the next call. If other state of the model differs, a
        ``FollowWarning`` says so, and the next call exports the model to compare the programs.

        Raises:
            InputError: The folder has no programs, they are for another model, or they take no other weights.
            UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
        """
        saved = load_programs(folder_of(folder), self.model)
        with self._is_stable:
            self._saved, self._structures = saved, []

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Returns what the model returns for a call."""
        call = None if is_traced() or is_collecting() else self._read(args, kwargs)
        binding = None if call is None else self._binding_for(call)
        if call is None or binding is None or binding.program.compiled is None:
            return self.model.forward(*args, **kwargs)
        try:
            return binding.program.compiled(*call.args, **call.kwargs)
        except InputError as error:  # before anything ran
            self._warn(("input", call.key), f"A call runs in PyTorch: {error}")
            if not self._fallback:
                raise
            return self.model.forward(*args, **kwargs)

    def _read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Returns a call that engines may run; None for one that PyTorch runs."""
        if self.model.training:
            self._has_trained = True
            return None
        leaves = tree_leaves((args, dict(kwargs)))
        if is_seen_through(leaves):
            return None
        if torch.is_grad_enabled() and self._wants_gradients(leaves):
            self._warn(
                "gradients",
                "A call runs in PyTorch, because it may need gradients, which engines do not compute. Call it under "
                "torch.no_grad() or torch.inference_mode().",
            )
            return None
        try:
            return self._reader.read(args, kwargs)
        except UnsupportedCallError as error:
            self._warn(("call", str(error)), f"A call runs in PyTorch: {error}.")
        except TypeError:
            pass  # the model raises the error itself
        return None

    def _wants_gradients(self, leaves: list[Any]) -> bool:
        tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
        return any(each.requires_grad for each in tensors) or any(
            each.requires_grad for each in self.model.parameters()
        )

    def _binding_for(self, call: Call) -> Binding | None:
        """Returns the program for a call, with the model's weights; None if PyTorch runs it.

        A call like an earlier one takes no lock: its program was chosen then. All others go to ``_find_binding``.
        """
        place = (call.key, call.shapes)
        structure = self._structures[-1] if self._structures else None
        if structure is not None and place in structure.chosen:
            binding = structure.chosen.get(place)
            if self._changer not in (None, threading.get_ident()):
                if binding is not None and id(binding) in self._frozen:
                    return binding
            elif self._is_current(structure, binding):
                return binding
        with self._is_stable:
            while self._changer not in (None, threading.get_ident()):
                self._is_stable.wait()
            return self._find_binding(call, place)

    def _is_current(self, structure: Structure, binding: Binding | None) -> bool:
        if self._has_trained or not holds(structure.state):
            return False
        return binding is None or binding.is_current()

    def _find_binding(self, call: Call, place: Any) -> Binding | None:
        """Returns the program for a call, under the lock; None if PyTorch runs the call.

        Compares the model with what it was, selects a program, and gives it weights that have changed.
        """
        if self._impure[call.key] > 1:
            return None
        if self._has_trained:  # PyTorch does not count what training writes to statistics
            self._has_trained = False
            self.refresh()
        structure = self._current_structure()
        if any(each.is_inference() for each in structure.state.weights.values()):
            self._warn(
                "inference",
                "A call runs in PyTorch, because weights were made in torch.inference_mode(), and PyTorch does not "
                "count writes to them. Make them outside of it.",
            )
            return None
        if place not in structure.chosen:
            if len(structure.chosen) >= _REMEMBERED:
                structure.chosen = {}
            structure.chosen[place] = self._select_or_compile(structure, call)
        binding = structure.chosen[place]
        if binding is None and self._impure[call.key] == 1:
            del structure.chosen[place]
        if binding is not None and not binding.is_current():
            try:
                binding.refit(self.model, structure.state)
            except RefitError:  # a value of a weight is compiled in
                structure.drop(call.key, binding)
                self._forget(binding.program)
                binding = structure.chosen[place] = self._select_or_compile(
                    structure, call, is_new=True
                )
        return binding

    def _current_structure(self) -> Structure:
        """Returns the structure that the model has, the one in use last first."""
        path = ""
        for number, structure in enumerate(reversed(self._structures)):
            change, where = steady(structure.state.compare)
            path = path or where
            if change is Change.STRUCTURE:
                continue
            if change is Change.WEIGHTS:
                structure.state = steady(lambda: ModelState(self.model))
                for binding in structure.all_bindings():
                    binding.is_stale = True
            if number:
                self._note_merged()
            self._structures.remove(structure)
            self._structures.append(structure)
            return structure
        self._note_merged()
        self._count += 1
        if self._count > 2 * _STRUCTURES:
            self._warn(
                "structure",
                f"The model has had {self._count} structures, and each is exported anew. The last to change was "
                f"{path!r}. If each call changes it, follow the modules that do not.",
            )
        self._structures = [
            *self._structures[1 - _STRUCTURES :],
            Structure(self.model, self._saved),
        ]
        return self._structures[-1]

    def _note_merged(self) -> None:
        """Takes all weights again after a library has written to them through ``.data``, as PEFT does to merge."""
        merged = merged_weights(self.model)
        if merged != self._merged:
            self.refresh()
            self._merged = merged

    def _select_or_compile(
        self, structure: Structure, call: Call, is_new: bool = False
    ) -> Binding | None:
        """Returns a program that takes a call: a known one or a new one; None if PyTorch has to run it."""
        structure.take_saved(call.key)
        for binding in () if is_new else structure.bindings.get(call.key, ()):
            if binding.program.accepts(call.args, call.kwargs):
                return binding
        if call.key in structure.refused:
            return None
        try:
            return self._compile_for(structure, call)
        except _OF_THE_USER:
            raise
        except Exception as error:
            if isinstance(error, ImpureForwardError):
                self._impure[call.key] += 1
                if self._impure[call.key] == 1:  # models prepare themselves in their first call
                    return None
            structure.refused.add(call.key)
            if not self._fallback:
                raise
            self._warn(
                ("compile", call.key),
                f"{type(self.model).__name__} runs in PyTorch for calls like {text_of_call(call)}. {error}",
            )
            return None

    def _compile_for(self, structure: Structure, call: Call) -> Binding | None:
        """Returns a new program for a call, with the model's weights; None where there are too many."""
        seen = self._sizes.setdefault(call.key, SeenSizes())
        seen.add(call.shapes)
        declared = self._reader.declared(call)
        bounds = seen.bounds(call.shapes, declared)
        none = fixed(declared)
        is_varying = bounds != none
        held = structure.bindings.setdefault(call.key, [])
        if not (held and is_varying) and not self._has_room(structure, call):
            return None
        check_traceable(self.model)
        watched = ModelWeights(self.model, structure.state)  # before values are read
        binding = self._compile_for_sizes(structure, call, bounds) if is_varying else None
        if binding is None:
            if is_varying:
                seen.fix()
                if not self._has_room(structure, call):
                    return None
            bounds = none
            binding = self._compile_for_sizes(structure, call, none)
        assert binding is not None
        binding.ends = [end_shapes(call.shapes, bounds, end) for end in (0, 2)]
        _replace_narrower(structure, call, binding)
        if binding.program.loaded is None:
            binding.load(watched)
        return binding

    def _compile_for_sizes(self, structure: Structure, call: Call, bounds: Any) -> Binding | None:
        """Returns a program for a call and sizes; None if it does not take the call."""
        pairs = zip(call.tensors(), bounds, strict=True)
        inputs = [as_input(tensor, each) for tensor, each in pairs]
        is_varying = any(bounds)
        bound = {id(each.program) for each in structure.all_bindings()}
        known = [each for each in self._programs() if id(each) not in bound]
        with warnings.catch_warnings():
            if self._count > 1 or structure.bindings[call.key]:
                warnings.simplefilter("ignore", NoEngineWarning)
            settings = {"immutable_weights": False, **self.settings}
            model = traced_copy(self.model, structure.state, self._with_scales)
            try:
                binding = bind(model, call, inputs, structure.state, settings, known)
            except (InputError, ExportError):  # sizes that broadcast, for one, must not vary
                if not is_varying:
                    raise
                return None
        return binding if binding.program.accepts(call.args, call.kwargs) else None

    def _has_room(self, structure: Structure, call: Call) -> bool:
        """Returns whether another program may be compiled, and removes those of other structures for it."""
        while len(self._programs()) >= self._max_programs and self._structures[0] is not structure:
            self._structures.pop(0)
        if len(self._programs()) < self._max_programs:
            return True
        message = (
            f"{type(self.model).__name__} has {self._max_programs} compiled programs, the most that max_programs "
            f"allows, and none takes a call like {text_of_call(call)}. Give tensors in place of numbers that vary, "
            "declare sizes with dynamic_shapes, or allow more."
        )
        if not self._fallback:
            raise InputError(message)
        self._warn(("limit", call.key), f"PyTorch runs a call: {message}")
        return False

    def _programs(self) -> list[Program]:
        saved = [] if self._saved is None else self._saved.programs()
        found = {id(each): each for each in saved}
        for structure in self._structures:
            for binding in structure.all_bindings():
                found[id(binding.program)] = binding.program
        return list(found.values())

    def _forget(self, program: Program) -> None:
        for structure in self._structures:
            for key, held in list(structure.bindings.items()):
                for binding in held:
                    if binding.program is program:
                        structure.drop(key, binding)
        if self._saved is not None:
            self._saved.drop(program)

    def _warn(self, kind: Any, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warn_caller(message, FollowWarning)


def _replace_narrower(structure: Structure, call: Call, binding: Binding) -> None:
    """Adds a program for calls of a kind, and removes earlier ones whose sizes it takes too."""
    for other in list(structure.bindings[call.key]):
        if all(_accepts(binding.program, call, shapes) for shapes in other.ends):
            structure.drop(call.key, other)
    structure.bindings[call.key] = [*structure.bindings[call.key], binding]


def _accepts(program: Program, call: Call, shapes: Any) -> bool:
    """Returns whether a program takes a call with other shapes."""
    tensors = (
        torch.empty(shape, dtype=tensor.dtype, device="meta")
        for shape, tensor in zip(shapes, call.tensors(), strict=True)
    )
    return program.accepts(*call.with_tensors(tensors))
