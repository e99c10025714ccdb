"""The backend of ``torch.compile(model, backend="torchtrt")``, registered through PyTorch's entry points.

Graphs come through AOTAutograd: free of writes but for those to inputs at the end, without tensor subclasses and
autocast regions, and with gradients where they are needed. A forward graph for inference has its weights as constants
of the engines. When a weight has changed, they are built once more, as engines that a refit gives each later weight.
One for training has them as inputs.
"""

from __future__ import annotations

import functools
import inspect
import operator
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import functional as F

from torchtrt.callers import warn_caller
from torchtrt.errors import (
    ExportError,
    InputError,
    NoEngineWarning,
    RefitError,
    SettingsError,
    SettingsWarning,
    SizeWarning,
)
from torchtrt.packs.preferences import settings_from
from torchtrt.settings import CompilationSettings
from torchtrt_compiler.api import compile as compile_model
from torchtrt_compiler.refit import refit_with_memory
from torchtrt_compiler.seen_sizes import Bounds, SeenSizes, as_input
from torchtrt_dynamo.held_weights import HeldWeights
from torchtrt_dynamo.torch_internals import TracingContext, aot_autograd, without_modes
from torchtrt_runtime import CompiledModule

aten = torch.ops.aten

PROGRAMS_KEPT = 8
"""For how many combinations of sizes and numbers a graph keeps its engines."""

_MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"optimization_level": 5, "cuda_graphs": True},
    "max-autotune-no-cudagraphs": {"optimization_level": 5},
}

_DROPOUTS = frozenset(
    (F.alpha_dropout, F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.feature_alpha_dropout)
)


def torchtrt(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str = "default",
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo captured.

    A size that Dynamo treats as dynamic needs an upper bound for one engine to serve it:
    ``torch._dynamo.mark_dynamic(x, dim, min=, max=)``. Without one, an engine is built for each
    size when it is first met. So it is for each value of a number that changes. Engines get weights that have changed
    by a refit; unless ``immutable_weights=False`` is among the options, the first change builds them again for that.

    Args:
        graph_module: The captured graph, over weights, sizes, numbers and tensors.
        example_inputs: Its inputs.
        mode: ``torch.compile``'s ``mode``: ``"reduce-overhead"`` records calls as CUDA graphs, and
            ``"max-autotune"`` lets TensorRT try everything as well.
        options: Fields of ``torchtrt.CompilationSettings`` (``torch.compile``'s ``options``).

    Returns:
        The compiled graph, called with what ``graph_module`` takes.

    Raises:
        SettingsError: The mode or an option is unknown or unusable.
    """
    if mode not in _MODES:
        message = f"torchtrt has no mode {mode!r}. It has: {', '.join(map(repr, _MODES))}."
        raise SettingsError(message)
    if not isinstance(options or {}, Mapping) or not all(isinstance(n, str) for n in options or ()):
        message = (
            f"The options {options!r} are no settings by their names, as {{'min_block_size': 1}}."
        )
        raise SettingsError(message)
    settings = {**_MODES[mode], **(options or {})}
    settings_from(settings)  # now, not on the first call
    if settings.get("autocast_calibration_dataloader") is not None:
        raise SettingsError(
            "autocast_calibration_dataloader has inputs of a whole model, and torch.compile compiles parts. Use "
            "torchtrt.compile."
        )
    reason = getattr(graph_module, "compile_subgraph_reason", None)
    compiler = functools.partial(
        _compile, settings=settings, is_broken_off=getattr(reason, "graph_break", False)
    )
    backend = aot_autograd(
        fw_compiler=functools.partial(compiler, bake_weights=False),
        bw_compiler=_run_in_pytorch,
        inference_compiler=functools.partial(compiler, bake_weights=True),
        keep_inference_input_mutations=True,
    )
    _declare_views(graph_module)
    return backend(graph_module, example_inputs)


def _declare_views(graph_module: GraphModule) -> None:
    """Makes a dropout that drops nothing an ``alias``: it returns its input, to which AOTAutograd would lose writes."""
    for node in graph_module.graph.nodes:
        if node.target in _DROPOUTS:
            call = inspect.signature(node.target).bind(*node.args, **node.kwargs)
            call.apply_defaults()
            if call.arguments["training"] is False:
                node.target, node.args, node.kwargs = aten.alias.default, call.args[:1], {}


def _compile(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    settings: Mapping[str, Any],
    is_broken_off: bool,
    bake_weights: bool,
) -> Callable[[list[Any]], Any]:
    """Returns the function that AOTAutograd calls for a graph, which builds engines when it is first called."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    roles = _Roles.of(placeholders, bake_weights)
    if not bake_weights:
        # Rows are divided only where weights are known to be equal in all processes.
        settings = {**settings, "async_tensor_parallel": False}
    if not roles.tensors or not _returns_tensors(graph_module):
        return _run_in_pytorch(graph_module, example_inputs)
    if is_broken_off and _is_small(graph_module, settings_from(settings)):
        return _run_in_pytorch(graph_module, example_inputs)
    return _boxed(_Engines(graph_module, placeholders, roles, settings, is_broken_off))


def _is_small(graph_module: GraphModule, settings: CompilationSettings) -> bool:
    """Returns whether a part of a model has fewer ops than an engine beside PyTorch should have."""
    smallest = 1 if settings.require_full_compilation else settings.min_block_size
    nodes = graph_module.graph.nodes
    calls = (node.op == "call_function" and node.target is not operator.getitem for node in nodes)
    return bool(sum(calls) < smallest)


def _run_in_pytorch(
    graph_module: GraphModule, example_inputs: Sequence[Any]
) -> Callable[[list[Any]], Any]:
    """Returns the graph as PyTorch runs it: a backward one, or one in which an engine would have no input."""
    del example_inputs
    return _boxed(graph_module.forward)


def _boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Returns a function of one list, which it empties, as AOTAutograd calls it: inputs can be freed early."""

    def run(inputs: list[Any]) -> Any:
        values = tuple(inputs)
        inputs.clear()
        return function(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


@dataclass(frozen=True)
class _Roles:
    """The inputs of a graph by their positions.

    Attributes:
        tensors: What the caller gives: the engines' inputs.
        weights: What belongs to the model and does not move between calls: constants, or buffers if written to.
        numbers: Sizes, and other numbers that change.
    """

    tensors: tuple[int, ...]
    weights: tuple[int, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, placeholders: Sequence[Node], bake_weights: bool) -> _Roles:
        """Sorts the placeholders of the graph that AOTAutograd is compiling into the three roles."""
        context = TracingContext.try_get()
        metadata = None if context is None else context.fw_metadata
        static = set(metadata.static_input_indices or ()) if metadata and bake_weights else set()
        is_tensor = [isinstance(node.meta.get("val"), torch.Tensor) for node in placeholders]
        indices = range(len(placeholders))
        return cls(
            tuple(index for index in indices if is_tensor[index] and index not in static),
            tuple(index for index in indices if is_tensor[index] and index in static),
            tuple(index for index in indices if not is_tensor[index]),
        )


class _Engines:
    """A graph and what it was compiled to, for each combination of numbers, and for ranges of sizes."""

    def __init__(
        self,
        graph_module: GraphModule,
        placeholders: Sequence[Node],
        roles: _Roles,
        settings: Mapping[str, Any],
        is_broken_off: bool,
    ) -> None:
        self._graph_module = graph_module
        self._placeholders = placeholders
        self._roles = roles
        self._settings = settings
        self._is_broken_off = is_broken_off
        nodes = [placeholders[tensor] for tensor in roles.tensors]
        self._bounds = [_bounds(node) for node in nodes]
        # Engines see the sizes of tensors for themselves.
        self._numbers = [
            number for number in roles.numbers if _dimension_of(placeholders[number], nodes) is None
        ]
        self._unbounded = [
            (index, dim)
            for index, bounds in enumerate(self._bounds)
            for dim, size in enumerate(nodes[index].meta["val"].shape)
            if isinstance(size, torch.SymInt) and dim not in bounds
        ]
        self._written = frozenset(
            node.args[0]
            for node in graph_module.graph.nodes
            if node.op == "call_function" and node.target is torch.ops.aten.copy_.default
        )
        self._programs: list[_Program] = []
        self._seen: dict[Any, SeenSizes] = {}
        self._has_changed = False
        self._lock = threading.Lock()

    def __call__(self, *inputs: Any) -> Any:
        tensors = [inputs[tensor] for tensor in self._roles.tensors]
        numbers = tuple((type(inputs[number]), inputs[number]) for number in self._numbers)
        sizes = [tensors[index].shape[dim] for index, dim in self._unbounded]
        program = self._program_for(numbers, sizes)
        if program is None or not program.has(inputs):
            with self._lock:
                program = self._program_for(numbers, sizes)
                if program is not None and not program.has(inputs):
                    self._has_changed = True
                    if not program.refit(inputs):
                        self._programs = [other for other in self._programs if other is not program]
                        program = None
                program = program or self._build(numbers, inputs, tensors)
        try:
            return program.compiled(*tensors)
        except InputError:
            # Before anything ran: the model computes something else for a size in the chosen range.
            if program.is_of_one_size:
                raise
        with self._lock:
            program = self._build(numbers, inputs, tensors, in_ranges=False)
        return program.compiled(*tensors)

    def _program_for(self, numbers: Any, sizes: Sequence[int]) -> _Program | None:
        """Returns the engines for a call, if there are some: the latest."""
        fitting = (program for program in self._programs[::-1] if program.takes(numbers, sizes))
        return next(fitting, None)

    def _build(
        self,
        numbers: Any,
        inputs: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        in_ranges: bool = True,
    ) -> _Program:
        """Returns new engines for a call.

        Args:
            numbers: The numbers of the call.
            inputs: The inputs of the graph.
            tensors: Those that the engines take.
            in_ranges: Whether sizes that differed between calls have ranges around those of the calls.
        """
        shapes = [tensor.shape for tensor in tensors]
        declared: list[Bounds] = [
            {dim: (least, tensor.shape[dim], most) for dim, (least, most) in bounds.items()}
            for tensor, bounds in zip(tensors, self._bounds, strict=True)
        ]
        if numbers not in self._seen and len(self._seen) >= PROGRAMS_KEPT:
            del self._seen[next(iter(self._seen))]
        seen = self._seen.setdefault(numbers, SeenSizes())
        seen.add(shapes)
        sizes = seen.bounds(shapes, declared)
        program = None
        if in_ranges and sizes != declared:
            try:
                program = self._compile(numbers, inputs, tensors, sizes)
                program.compiled.checks.check(tensors)
            except (InputError, ExportError):  # sizes that broadcast, for one
                seen.fix()
                program = None
        program = program or self._compile(numbers, inputs, tensors, declared)
        programs = [other for other in self._programs if not program.covers(other)]
        if len(programs) >= PROGRAMS_KEPT:
            del programs[0]
            warn_caller(
                f"A graph of torch.compile has met more than {PROGRAMS_KEPT} combinations of sizes and numbers, and "
                "builds engines again. Mark dynamic sizes with torch._dynamo.mark_dynamic(x, dim, min=, max=)."
            )
        self._programs = [*programs, program]  # other threads read the list meanwhile
        return program

    def _compile(
        self,
        numbers: Any,
        inputs: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        sizes: Sequence[Bounds],
    ) -> _Program:
        """Returns engines for a call.

        Args:
            numbers: The numbers of the call.
            inputs: The inputs of the graph.
            tensors: Those that the engines take.
            sizes: For each of these, the ranges of its dynamic sizes.
        """
        input_specs = [
            as_input(tensor, bounds) for tensor, bounds in zip(tensors, sizes, strict=True)
        ]
        with warnings.catch_warnings(), without_modes():
            # The op, and calls with other sizes, may be of another graph.
            warnings.simplefilter("ignore", SettingsWarning)
            warnings.simplefilter("ignore", SizeWarning)
            # PyTorch watches the first call with a mode, which no export survives.
            if self._is_broken_off or self._programs:
                warnings.simplefilter("ignore", NoEngineWarning)  # one for a whole graph is enough
            # Engines that cannot take other weights are faster. Weights that changed once change again.
            may_change = self._has_changed and bool(self._roles.weights)
            settings = {**({"immutable_weights": False} if may_change else {}), **self._settings}
            weights = self._roles.weights
            written = {index for index in weights if self._placeholders[index] in self._written}
            # Before their values are read.
            held = HeldWeights({index: inputs[index] for index in weights}, written)
            compiled = compile_model(self._over_tensors(inputs), input_specs, **settings)
        compiled.usage_checks = compiled.usage_checks.without_weights()
        ranges = [
            sizes[index].get(dim, (tensors[index].shape[dim],) * 3)[::2]
            for index, dim in self._unbounded
        ]
        return _Program(compiled, numbers, ranges, held)

    def _over_tensors(self, inputs: Sequence[Any]) -> GraphModule:
        """Returns the graph over its tensors only: weights become attributes, numbers constants or sizes."""
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(self._graph_module.graph, {}))
        module = GraphModule(self._graph_module, graph)
        placeholders = module.graph.find_nodes(op="placeholder")
        tensors = [placeholders[tensor] for tensor in self._roles.tensors]
        first_call = next(
            node for node in module.graph.nodes if node.op not in ("placeholder", "get_attr")
        )
        for index in (*self._roles.weights, *self._roles.numbers):
            node = placeholders[index]
            value = inputs[index]
            replacement: Any = value
            with module.graph.inserting_before(first_call):
                if isinstance(value, torch.Tensor):
                    name = _weight_name(index)
                    module.register_buffer(name, value.detach())
                    replacement = module.graph.get_attr(name)
                elif (dimension := _dimension_of(node, tensors)) is not None:
                    replacement = module.graph.call_function(torch.ops.aten.sym_size.int, dimension)
            node.replace_all_uses_with(replacement)
            module.graph.erase_node(node)
        for node in module.graph.nodes:
            node.meta.clear()  # symbols of this trace mean nothing in the next
        module.recompile()
        return module.eval()


@dataclass(eq=False)
class _Program:
    """Engines with the weights that they hold.

    Attributes:
        compiled: The engines.
        numbers: The numbers that are compiled in.
        ranges: The minimum and the maximum of each size without a declared bound.
        held: The weights as they are in the engines.
    """

    compiled: CompiledModule
    numbers: Any
    ranges: Sequence[Sequence[int]]
    held: HeldWeights

    @property
    def is_of_one_size(self) -> bool:
        """True if the engines have no range that was chosen for them."""
        return all(least == most for least, most in self.ranges)

    def takes(self, numbers: Any, sizes: Sequence[int]) -> bool:
        """Returns whether the engines are for a call with these numbers and sizes."""
        return self.numbers == numbers and all(
            least <= size <= most for size, (least, most) in zip(sizes, self.ranges, strict=True)
        )

    def covers(self, other: _Program) -> bool:
        """Returns whether these engines take all that others take."""
        return all(
            self.takes(other.numbers, [ends[index] for ends in other.ranges]) for index in (0, 1)
        )

    def has(self, inputs: Sequence[Any]) -> bool:
        """Returns whether the engines have the weights among a graph's inputs."""
        return self.held.are(inputs)

    def refit(self, inputs: Sequence[Any]) -> bool:
        """Gives the weights among a graph's inputs to the engines, and returns whether they take them."""
        held = self.held.now(inputs)
        weights = {_weight_name(index): inputs[index].detach() for index in held.tensors}
        changed = list(map(_weight_name, self.held.changed(inputs)))
        try:
            with torch.no_grad(), without_modes():
                refit_with_memory(self.compiled, weights, changed)
        except RefitError:  # immutable, or a value of a weight is compiled in
            return False
        self.held = held
        return True


def _weight_name(index: int) -> str:
    return f"weight_{index}"


def _returns_tensors(graph_module: GraphModule) -> bool:
    (output,) = graph_module.graph.find_nodes(op="output")
    results: Any = output.args[0]
    return any(
        isinstance(result, Node) and isinstance(result.meta.get("val"), torch.Tensor)
        for result in results
    )


def _bounds(placeholder: Node) -> dict[int, tuple[int, int]]:
    """Returns, for the dynamic dimensions of an input that have an upper bound, the minimum and maximum size."""
    bounds = {}
    for dim, size in enumerate(placeholder.meta["val"].shape):
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
            interval = size.node.shape_env.var_to_range[size.node.expr]
            if interval.upper.is_Integer and interval.upper < 2**31:
                bounds[dim] = (int(interval.lower), int(interval.upper))
    return bounds


def _dimension_of(placeholder: Node, tensors: Sequence[Node]) -> tuple[Node, int] | None:
    """Returns the tensor and the dimension whose size a number is, or ``None`` for any other number."""
    value = placeholder.meta.get("val")
    if not isinstance(value, torch.SymInt):
        return None
    for tensor in tensors:
        for dim, size in enumerate(tensor.meta["val"].shape):
            if isinstance(size, torch.SymInt) and size.node.expr == value.node.expr:
                return tensor, dim
    return None
