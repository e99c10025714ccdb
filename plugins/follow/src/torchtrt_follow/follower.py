"""Runs the calls of a followed model on engines that have the model's weights."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    SizeWarning,
    TensorRTUnavailableError,
)
from torchtrt.packs.preferences import settings_from
from torchtrt_compiler.seen_sizes import Bounds, SeenSizes, as_input, end_shapes
from torchtrt_follow.calls import Call, CallReader, UnsupportedCallError, is_traced
from torchtrt_follow.files import load_programs, save_programs
from torchtrt_follow.libraries import is_collecting
from torchtrt_follow.programs import Binding, Marks, bind
from torchtrt_follow.structures import Structure, Structures
from torchtrt_follow.tracing import ImpureForwardError, check_traceable, traced_copy
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.serialization.folders import folder_of

_REMEMBERED = 1024
"""The shapes of calls for which the program is remembered."""
_OF_THE_USER = (SettingsError, PackError, TensorRTUnavailableError, MissingDistributionError)
"""Errors that no call of the model brings about."""


class Follower:
    """Runs a model's calls on engines with the weights that the model has.

    Args:
        model: The model.
        settings: Settings of ``torchtrt.compile``.
        dynamic_shapes: Dynamic sizes, by parameter.
        max_programs: The maximum number of programs at a time.
        fallback: Whether PyTorch runs calls that cannot be compiled.

    Attributes:
        model: The model as PyTorch runs it.
        options: The arguments of ``follow``.
        forward: The function that calls of the followed model run; libraries may replace it.
        own_forward: The one that runs engines.
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
        self.options = {
            "dynamic_shapes": dynamic_shapes,
            "max_programs": max_programs,
            "fallback": fallback,
            **settings,
        }
        self._settings = {"immutable_weights": False, **settings}
        self._max_programs = max_programs
        self._fallback = fallback
        self.forward = self.own_forward = _forward(self)
        self._reader = CallReader(model.forward, dynamic_shapes)
        self._sizes: dict[Any, SeenSizes] = {}
        self._structures = Structures(model)
        self._impure: Counter[Any] = Counter()
        self._warned: set[Any] = set()
        self._lock = threading.Condition(threading.RLock())
        self._changer: int | None = None
        self._ready: Mapping[Any, Binding] = {}

    @property
    def programs(self) -> list[CompiledModule]:
        """The compiled models, each with its ``report``: those for the model as it is now come last."""
        programs = self._structures.programs()
        return [program.compiled for program in programs if program.compiled is not None]

    def __repr__(self) -> str:
        return f"<{type(self.model).__name__} followed by {len(self.programs)} compiled programs>"

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Lets calls in other threads compute with the weights from before, while a ``with`` block changes several.

        Calls that need another program wait for the end of the block.
        """
        me = threading.get_ident()
        with self._lock:
            self._lock.wait_for(lambda: self._changer in (None, me))
            is_outermost = self._changer is None
            if is_outermost:
                self._changer, self._ready = me, self._ready_programs()
        try:
            yield
        finally:
            if is_outermost:
                with self._lock:
                    self._changer, self._ready = None, {}
                    self._lock.notify_all()

    def refresh(self, *, weights_only: bool = False) -> None:
        """Lets the next call read again what cannot be watched.

        That is a write to a weight through ``.data`` or an array of NumPy, and Python state that ``forward`` reads
        besides the attributes of its modules. The next call exports the model, and takes all weights. Engines are built
        only if the exported program is a new one.

        Args:
            weights_only: Whether only values of weights have changed: the model is not exported then.
        """
        with self._lock:
            self._structures.take_all_weights()
            if not weights_only:
                self._structures.restart()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Saves the programs for the model as it is now into a folder, from which ``load`` takes them.

        Raises:
            InputError: No call has been compiled, or a program writes to weights.
            UnsupportedProgramError: A program holds something that has no form in a file.
        """
        path = folder_of(folder)
        with self._lock:
            structure = self._structures.current()
            for binding in structure.all_bindings():
                if not binding.is_current(structure.state):
                    binding.refit(structure.state, ())
            save_programs(path, self.model, structure.state, structure.bindings)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Takes the programs in a folder for those of the model. Nothing is exported or built.

        Engines whose weights differ from the model's get them in the next call. If other state of the model differs, a
        ``FollowWarning`` says so, and the next call exports the model to compare the programs.

        Raises:
            InputError: The folder has no programs, they are for another model, or they take no other weights.
            UnreadableFileError, EngineMismatchError: As of ``torchtrt.load``.
        """
        structure = Structure(*load_programs(folder_of(folder), self.model))
        with self._lock:
            self._structures.replace(structure)

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
            self.refresh(weights_only=True)  # PyTorch does not count writes to statistics
            return None
        try:
            call = self._reader.read(args, kwargs)
        except TypeError:  # the model raises the error itself
            return None
        except UnsupportedCallError as error:
            self._warn(("call", str(error)), f"A call runs in PyTorch: {error}.")
            return None
        sources = chain(call.tensors, self.model.parameters())
        if torch.is_grad_enabled() and any(source.requires_grad for source in sources):
            self._warn(
                "gradients",
                "A call runs in PyTorch, because it may need gradients, which engines do not compute. Call it under "
                "torch.no_grad() or torch.inference_mode().",
            )
            return None
        return call

    def _binding_for(self, call: Call) -> Binding | None:
        """Returns the program for a call, with the model's weights; None if PyTorch runs it.

        A call like an earlier one takes no lock if the model is the same. All others go to ``_find_binding``.
        """
        kind = (call.key, call.shapes)
        last = self._structures.last
        if self._changer not in (None, threading.get_ident()):
            if (binding := self._ready.get(kind)) is not None:
                return binding
        elif last is not None and kind in last.chosen and last.state.is_same():
            binding = last.chosen.get(kind)
            if binding is None or binding.is_current(last.state):
                return binding
        with self._lock:
            self._lock.wait_for(lambda: self._changer in (None, threading.get_ident()))
            return self._find_binding(call, kind)

    def _ready_programs(self) -> dict[Any, Binding]:
        """Returns the programs that have the model's weights, for each kind of call and shapes."""
        last = self._structures.last
        if last is None or not last.state.is_same():
            return {}
        chosen = last.chosen.items()
        return {
            kind: binding for kind, binding in chosen if binding and binding.is_current(last.state)
        }

    def _find_binding(self, call: Call, kind: Any) -> Binding | None:
        """Returns the program for a call, under the lock; None if PyTorch runs the call.

        Compares the model with what it was, selects a program, and gives it weights that have changed.
        """
        if self._impure[call.key] > 1:
            return None
        structure = self._structures.current()
        tensors = (*structure.state.weights.values(), *structure.state.unnamed.values())
        if any(tensor.is_inference() for tensor in tensors):
            self._warn(
                "inference",
                "A call runs in PyTorch, because weights were made in torch.inference_mode(), and PyTorch does not "
                "count writes to them. Make them outside of it.",
            )
            return None
        if kind not in structure.chosen:
            if len(structure.chosen) >= _REMEMBERED:
                structure.chosen = {}
            binding = self._select_or_compile(structure, call)
            if binding is None and self._impure[call.key] == 1:
                return None  # models prepare themselves in their first call
            structure.chosen[kind] = binding
        binding = structure.chosen[kind]
        while binding is not None and not binding.is_current(structure.state):
            written = set().union(*(binding.written for binding in structure.all_bindings()))
            try:
                binding.refit(structure.state, written)
                break
            except RefitError:  # a value of a weight is compiled in
                self._structures.forget(binding.program)
                binding = structure.chosen[kind] = self._select_or_compile(structure, call)
        return binding

    def _select_or_compile(self, structure: Structure, call: Call) -> Binding | None:
        """Returns a program that takes a call: one that is there or a new one; None if PyTorch has to run it."""
        for binding in structure.bindings.get(repr(call.key), ()):
            if binding.program.accepts(call):
                return binding
        if call.key in structure.refused:
            return None
        try:
            return self._compile(structure, call)
        except _OF_THE_USER:
            raise
        except Exception as error:
            if isinstance(error, ImpureForwardError):
                self._impure[call.key] += 1
                if self._impure[call.key] == 1:
                    return None
            structure.refused.add(call.key)
            if not self._fallback:
                raise
            self._warn(
                ("compile", call.key),
                f"{type(self.model).__name__} runs in PyTorch for calls like {call}. {error}",
            )
            return None

    def _compile(self, structure: Structure, call: Call) -> Binding | None:
        """Returns a new program for a call, with the model's weights; None where there are too many."""
        seen = self._sizes.setdefault(call.key, SeenSizes())
        seen.add(call.shapes)
        declared = self._reader.declared(call)
        bounds = seen.bounds(call.shapes, declared)
        others = structure.bindings.setdefault(repr(call.key), [])
        programs = self._structures.programs()
        check_traceable(self.model)
        marks = Marks.of(structure.state)  # before values are read
        binding = None
        while binding is None:
            replaces_others = bool(others) and any(bounds)
            if not replaces_others and not self._has_room(structure, call):
                return None
            binding = self._compile_for(structure, call, bounds, bounds != declared)
            if binding is None:
                seen.fix()
                bounds = [{} for _ in bounds]
        binding.ends = [end_shapes(call.shapes, bounds, end) for end in (0, 2)]
        for other in list(others):
            if _covers(binding, other):
                structure.drop(other.program)
        structure.bindings[repr(call.key)].append(binding)
        if binding.program not in programs:
            binding.hold(marks, structure.state)
        return binding

    def _compile_for(
        self, structure: Structure, call: Call, bounds: list[Bounds], has_chosen: bool
    ) -> Binding | None:
        """Returns a program for a call and sizes, chosen ones among them; None if they cannot vary in one program."""
        pairs = zip(call.tensors, bounds, strict=True)
        inputs = [as_input(tensor, tensor_bounds) for tensor, tensor_bounds in pairs]
        programs = self._structures.programs()
        bound = {binding.program for binding in structure.all_bindings()}
        others = [program for program in programs if program not in bound]
        model = traced_copy(self.model, structure.state)
        with warnings.catch_warnings():
            if programs:
                warnings.simplefilter("ignore", NoEngineWarning)
            if has_chosen:
                warnings.simplefilter("ignore", SizeWarning)  # the user asked for none of these
            try:
                binding = bind(model, call, inputs, structure.state, self._settings, others)
            except (InputError, ExportError):  # sizes that broadcast, for one
                if not any(bounds):
                    raise
                return None
        return binding if not any(bounds) or binding.program.accepts(call) else None

    def _has_room(self, structure: Structure, call: Call) -> bool:
        """Returns whether another program may be compiled, and removes those of other structures for it."""
        if self._structures.has_room(self._max_programs, structure):
            return True
        message = (
            f"{type(self.model).__name__} has {self._max_programs} compiled programs, the most that max_programs "
            f"allows, and none takes a call like {call}. Give tensors in place of numbers that vary, "
            "declare sizes with dynamic_shapes, or allow more."
        )
        if not self._fallback:
            raise InputError(message)
        self._warn(("limit", call.key), f"PyTorch runs a call: {message}")
        return False

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


def _covers(binding: Binding, other: Binding) -> bool:
    """Returns whether a program takes all sizes that another one takes."""
    (least, most), (other_least, other_most) = (
        [list(chain.from_iterable(shapes)) for shapes in ends]
        for ends in (binding.ends, other.ends)
    )
    return all(map(int.__le__, least, other_least)) and all(map(int.__ge__, most, other_most))
