"""Watches what lowering and converters compute from weights.

Two of PyTorch's modes see everything: one every op, in place or not, the other what leaves PyTorch as numbers, text or
arrays. A tensor is known by its memory: storage, offset, sizes, strides and dtype.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.overrides import TorchFunctionMode

from torchtrt.contract import constant_of
from torchtrt.errors import UnsupportedProgramError
from torchtrt.settings import CompilationSettings
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.lowering.watchers import BlockWatcher, ProgramWatcher
from torchtrt_compiler.python_reads import python_reads
from torchtrt_compiler.torch_internals import (
    DisableTorchFunction,
    FakeTensor,
    TorchDispatchMode,
    is_functional_tensor,
    is_functorch_wrapped_tensor,
)
from torchtrt_runtime.weights.forms import inner_tensors
from torchtrt_runtime.weights.model_weights import ModelWeights, WeightForm
from torchtrt_runtime.weights.recipe import (
    SAME,
    NoFormError,
    Recipe,
    digest,
    encode,
    encode_tensor,
    numbers_in,
    slice_steps,
)

_LEAVING = frozenset(
    {
        torch.Tensor.numpy,
        torch.Tensor.tolist,
        torch.Tensor.__array__,
        torch.Tensor.data_ptr,
        torch.Tensor.__dlpack__,
        torch.Tensor.untyped_storage,
        torch.Tensor.__repr__,
        torch.Tensor.__format__,
    }
)
"""The functions that take values out of PyTorch without an op."""

_Step = tuple[list[Any], frozenset[int], frozenset[int]]


class Recorder:
    """The computations from some tensors, while ``recording``.

    Args:
        sources: The tensors, by name.
    """

    def __init__(self, sources: Mapping[str, torch.Tensor]) -> None:
        self._numbers: dict[Any, int] = {}
        self._kept: dict[int, torch.Tensor] = {}  # so that memory is no other's meanwhile
        self._constants: dict[int, torch.Tensor] = {}
        self._sources: dict[int, str] = {}
        self._steps: list[_Step] = []
        self._from_sources: set[int] = set()  # memories
        self._state = threading.local()
        for name, tensor in sources.items():
            self._sources.setdefault(self._add(tensor), name)
            self._from_sources.add(_memory(tensor))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records what happens in a ``with`` block, in this thread."""
        with _Ops(self), _Leaving(self):
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does not record what happens in a ``with`` block."""
        before = self.is_paused
        self._state.paused = True
        try:
            yield
        finally:
            self._state.paused = before

    @property
    def is_paused(self) -> bool:
        """True while nothing is recorded."""
        return getattr(self._state, "paused", False)

    @contextmanager
    def moved(self, memory: Mapping[int, torch.Tensor]) -> Iterator[None]:
        """Maps memory to other memory in a ``with`` block.

        Args:
            memory: For what identifies a storage, a tensor over the one that has its values.
        """
        added = {_memory(tensor) for old, tensor in memory.items() if old in self._from_sources}
        self._from_sources |= added
        try:
            yield
        finally:
            self._from_sources -= added

    def follows(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor was computed from a source, or is one."""
        return _is_plain(tensor) and _memory(tensor) in self._from_sources

    def has_seen(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor is a source, or was made or read by what was recorded."""
        return not _is_plain(tensor) or _key(tensor) in self._numbers

    def unread_sources(self) -> list[torch.Tensor]:
        """Returns the sources that nothing has read so far."""
        read = frozenset().union(*(reads for _, reads, _ in self._steps))
        sources = (self._kept[number] for number in self._sources)
        return [source for source in sources if _memory(source) not in read]

    def source_name(self, tensor: torch.Tensor) -> str | None:
        """Returns the name of a tensor that is a source."""
        return self._sources.get(self._numbers.get(_key(tensor), -1)) if _is_plain(tensor) else None

    def encoded(self, args: Any, kwargs: Any) -> list[Any] | None:
        """Returns arguments as data, or None if they have no such form.

        A tensor that nothing recorded has made is a constant, as it is now: an op may write to it, or change its shape.
        """
        tensors = _tensors_in((args, kwargs))
        try:
            if all(map(_is_plain, tensors)):
                return [encode(values, self._number) for values in (args, kwargs)]
        except NoFormError:
            for tensor in tensors:
                self._number(tensor)
        return None

    def add_op(
        self, op: OpOverload, args: Any, kwargs: Any, encoded: list[Any] | None, result: Any
    ) -> None:
        """Records a call.

        Args:
            op: The op.
            args: Its arguments.
            kwargs: Those by name.
            encoded: Both as data, before the call.
            result: What it returned.
        """
        tensors = _tensors_in((args, kwargs))
        results = list(result) if isinstance(result, (list, tuple)) else [result]
        made = [result for result in results if isinstance(result, torch.Tensor)]
        if any(map(_has_other_layout, (*tensors, *made))):
            for tensor in tensors:
                self.fix(tensor)
        if not all(map(_is_plain, (*tensors, *made))):
            return
        is_computed = len(made) == len(results) and (
            torch.Tag.nondeterministic_seeded not in op.tags
        )
        if not is_computed or op.namespace not in ("aten", "prims") or encoded is None:
            for tensor in tensors:
                self.fix(tensor)
            return
        written = [_memory(tensor) for tensor in made]
        if op._schema.is_mutable:
            written += map(_memory, _written(op, args, kwargs))
        reads, writes = frozenset(map(_memory, tensors)), frozenset(written)
        numbers = [self._add(result) for result in results]
        self._steps.append(([qualified_name(op), *encoded, numbers], reads, writes))
        if reads & self._from_sources:
            self._from_sources |= writes

    def fix(self, tensor: torch.Tensor) -> None:
        """Records that a tensor's values have an effect that cannot be repeated: they must stay what they are."""
        if self.follows(tensor):
            with self.paused():
                step = [SAME, [{"tensor": self._number(tensor)}, digest(tensor)], {"dict": {}}, []]
                memory = frozenset({_memory(tensor)})
                self._steps.append((step, memory, frozenset({_FIXED})))

    def recipe_of(self, results: Mapping[str, torch.Tensor]) -> Recipe:
        """Returns how results follow from sources; those that do not are left out."""
        wanted = {name: result for name, result in results.items() if self.follows(result)}
        steps = slice_steps(self._steps, {_FIXED, *map(_memory, wanted.values())})
        numbers = {name: self._number(result) for name, result in wanted.items()}
        used = {*numbers.values(), *numbers_in(steps)}
        with self.paused():
            return Recipe(
                {str(number): name for number, name in self._sources.items() if number in used},
                {
                    str(number): encode_tensor(value)
                    for number, value in self._constants.items()
                    if number in used
                },
                steps,
                numbers,
            )

    def _number(self, tensor: torch.Tensor) -> int:
        """Returns the number of a tensor; one that nothing recorded has made is a constant, as it is now."""
        key = _key(tensor)
        if key not in self._numbers:
            with self.paused():
                self._constants[self._add(tensor)] = tensor.detach().clone()
        return self._numbers[key]

    def _add(self, tensor: torch.Tensor) -> int:
        key = _key(tensor)
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self._kept[self._numbers[key]] = tensor
        return self._numbers[key]


_FIXED = -1
"""The memory that a step which checks values "writes". Every result needs it."""


def _tensors_in(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and _has_values(tensor)


def _has_other_layout(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is sparse, for one: it has no memory by which it could be known."""
    return tensor.layout is not torch.strided and _has_values(tensor)


def _has_values(tensor: torch.Tensor) -> bool:
    return (
        not isinstance(tensor, FakeTensor)
        and type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.device.type != "meta"
        and not is_functorch_wrapped_tensor(tensor)
        and not is_functional_tensor(tensor)
    )


def _memory(tensor: torch.Tensor) -> int:
    with DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _key(tensor: torch.Tensor) -> Any:
    """Returns what distinguishes a tensor from other views of the same memory."""
    with DisableTorchFunction():
        return (
            _memory(tensor),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.dtype,
            tensor.is_conj(),
            tensor.is_neg(),
        )


def _written(op: OpOverload, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for index, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors_in(args[index] if index < len(args) else kwargs.get(argument.name))


class _Ops(TorchDispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.recorder.is_paused or not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        encoded = self.recorder.encoded(args, kwargs)
        result = func(*args, **kwargs)
        self.recorder.add_op(func, args, kwargs, encoded, result)
        return result


class _Leaving(TorchFunctionMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _LEAVING and not self.recorder.is_paused:
            with DisableTorchFunction():
                if isinstance(args[0], torch.Tensor):
                    self.recorder.fix(args[0])
        return func(*args, **(kwargs or {}))


class ProgramRecorder(Recorder, ProgramWatcher):
    """The computations of lowering from a program's weights, and of converters from the lowered graph's attributes.

    Args:
        exported: The program.
        has_constants: Whether the weights of an engine that follow from nothing are recorded too.
    """

    def __init__(self, exported: ExportedProgram, has_constants: bool = False) -> None:
        self._has_constants = has_constants
        signature = exported.graph_signature
        names = [*signature.parameters, *signature.buffers]
        # Plain attributes, and tensors that the model's code makes, are in no state dict either.
        constants = frozenset(signature.inputs_to_lifted_tensor_constants.values())
        optional = constants | frozenset(signature.non_persistent_buffers)
        values: dict[str, Any] = {**exported.constants, **exported.state_dict}
        tensors = inner_tensors(
            {
                name: values[name]
                for name in (*names, *exported.state_dict, *sorted(constants))
                if isinstance(values.get(name), torch.Tensor)
            }
        )
        super().__init__(tensors)
        self._equal: dict[str, torch.Tensor] = {}
        self._names: dict[Any, list[str]] = {}
        for name, tensor in tensors.items():
            self._names.setdefault(_key(tensor), []).append(name)
        others = {_memory(tensors[name]) for name in tensors if name not in optional}
        by_memory: dict[int, list[str]] = {}
        for name, tensor in tensors.items():
            by_memory.setdefault(_memory(tensor), []).append(name)
        self._overlapping = [names for names in by_memory.values() if len(names) > 1]
        # What shares memory with another weight has its new values, and none of its own to keep.
        kept = {
            name for name in tensors if name in optional and _memory(tensors[name]) not in others
        }
        self._forms = {
            name: WeightForm(
                dtype_name(tensor.dtype),
                list(tensor.shape),
                encode_tensor(tensor) if name in kept else None,
            )
            for name, tensor in tensors.items()
        }

    def weights(self, graph_module: GraphModule) -> ModelWeights:
        """Returns the model's weights, and how the attributes of the lowered graph follow from them."""
        return ModelWeights(
            self._forms,
            [names for names in self._names.values() if len(names) > 1],
            self._overlapping,
            self.recipe_of(_tensors_of(graph_module)),
            self.recipe_of(self._equal),
        )

    def keep_equal(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Notes weights that have to be equal in all processes, whatever their values."""
        self._equal.update(weights)

    def block(self, block: GraphModule) -> BlockRecorder:
        """Returns what records the conversion of a block."""
        values = _tensors_of(block)
        followed = {name: value for name, value in values.items() if self.follows(value)}
        return BlockRecorder(followed, self._has_constants)


def _tensors_of(graph_module: GraphModule) -> dict[str, torch.Tensor]:
    """Returns the tensors that a graph reads of its module, by their names."""
    nodes = graph_module.graph.find_nodes(op="get_attr")
    values = ((str(node.target), constant_of(node)) for node in nodes)
    return {name: value for name, value in values if value is not None}


class BlockRecorder(Recorder, BlockWatcher):
    """The computations of converters from the attributes of a block's graph.

    Args:
        attributes: Those that follow from the model's weights, by name.
        has_constants: Whether weights that follow from nothing get names too, and their values are recorded.
    """

    def __init__(self, attributes: Mapping[str, torch.Tensor], has_constants: bool = False) -> None:
        self._has_constants = has_constants
        super().__init__(attributes)
        self._attributes = attributes
        self._named_weights: dict[str, torch.Tensor] = {}
        self._named_constants: dict[str, torch.Tensor] = {}
        self._has_unseen = False

    def followed(self) -> Mapping[str, torch.Tensor]:
        """Returns the attributes that follow from the model's weights, by name."""
        return self._attributes

    def name_weights(self, tensor: torch.Tensor, give: Callable[[str], bool]) -> None:
        """Names weights of the network, if they follow from the model's.

        Args:
            tensor: Their values.
            give: Gives them a name, and returns whether they took it.
        """
        self._has_unseen |= not self.has_seen(tensor)
        is_constant = not self.follows(tensor)
        if is_constant and not (self._has_constants and tensor.numel()):
            return
        base = "constant" if is_constant else self.source_name(tensor) or "folded"
        name, count = base, 1
        while name in self._named_weights or name in self._named_constants:
            count += 1
            name = f"{base}#{count}"
        if give(name):
            (self._named_constants if is_constant else self._named_weights)[name] = tensor
        elif not is_constant:
            self.fix(tensor)

    def recipe(self) -> Recipe:
        """Returns how the engine's weights, by their names, follow from the block's attributes.

        Some values of the network may have been made unobserved, as in another thread. Attributes whose
        reads were not observed may have led to them, and must stay unchanged.
        """
        named = set(map(_memory, self._named_weights.values()))
        for tensor in self.unread_sources() if self._has_unseen else ():
            if _memory(tensor) not in named:
                self.fix(tensor)
        recipe = self.recipe_of(self._named_weights)
        with self.paused():
            for name, tensor in self._named_constants.items():
                recipe.add_constant(name, encode_tensor(tensor))
        return recipe


def watcher_of(exported: ExportedProgram, settings: CompilationSettings) -> ProgramWatcher:
    """Returns what watches the compilation of a program: a recorder where engines get weights after they are built.

    Raises:
        UnsupportedProgramError: They get some, and a weight is sparse, or the model reads numbers of one.
    """
    if settings.immutable_weights and not settings.strip_engine_weights:
        return ProgramWatcher()
    for line, _ in python_reads(exported).values:
        where = f" ({line})" if line else ""
        raise UnsupportedProgramError(
            f"The model reads a number from a tensor that is no input, parameter or buffer{where}. The program has "
            "the number, and engines take other weights in place of tensors only. Register the tensor as a buffer of "
            "its module, or compile with immutable_weights=True and strip_engine_weights=False."
        )
    for name, value in {**exported.constants, **exported.state_dict}.items():
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            raise UnsupportedProgramError(
                f"The weight {name!r} has the layout {value.layout}, and engines take other weights in place of dense "
                "ones only. Make it dense, or compile with immutable_weights=True and strip_engine_weights=False."
            )
    return ProgramRecorder(exported, has_constants=settings.strip_engine_weights)
