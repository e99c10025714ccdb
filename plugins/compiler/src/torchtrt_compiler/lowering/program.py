"""Opens an exported program: one graph over the user's inputs, with the weights as attributes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from torchtrt.errors import InputError, UnsupportedProgramError
from torchtrt.graphs.memory import overlap, storage_of
from torchtrt.graphs.nodes import assign, is_number, mark_number
from torchtrt.graphs.symbols import shape_env_of
from torchtrt.torch_internals import pytree
from torchtrt_compiler.lowering.aliasing import Origin, origins_of, written_inputs
from torchtrt_compiler.lowering.functionalization import functionalize
from torchtrt_compiler.lowering.regions import check_casts
from torchtrt_compiler.lowering.watchers import ProgramWatcher
from torchtrt_compiler.sizes.numbers import numbers_as_sizes
from torchtrt_compiler.sizes.program_sizes import ProgramSizes
from torchtrt_compiler.sizes.settling import settle_sizes
from torchtrt_compiler.torch_internals import GraphModuleOfLateCode, int_oo
from torchtrt_runtime.serialization.exported_program import user_inputs

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_WEIGHT_MUTATIONS = (
    OutputKind.BUFFER_MUTATION,
    getattr(OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION),  # newer than torch 2.9
)


@dataclass(frozen=True)
class Program:
    """An exported program, opened.

    Attributes:
        graph_module: The ATen graph. Its placeholders are the user's inputs, flattened; weights are ``get_attr`` nodes.
        input_tree: How the user's ``(args, kwargs)`` nest.
        output_tree: How the outputs nest.
        exported: The program that it was opened from, with sizes in place of numbers.
        sizes: The sizes of its inputs, and the conditions on them.
        watcher: Records what is computed from weights.
        mutated: Names of the attributes that the graph writes to. They are not constants.
        origins: Whose memory each result surely is in the model as it was written.
        passes: The packs' passes that changed the graph, in the order in which they ran.
        divided: What ``async_tensor_parallel`` does with each all-reduce, in words.
        in_float32: What computes in float32 because of its magnitudes or its sums, in words.
        asked: The ops that lowering looked up, those inside decompositions among them.
        checks: The conditions on sizes that ops check in eager PyTorch and exporting leaves out, each with the line of
            the model.
    """

    graph_module: GraphModule
    input_tree: pytree.TreeSpec
    output_tree: pytree.TreeSpec
    exported: ExportedProgram
    sizes: ProgramSizes
    watcher: ProgramWatcher
    mutated: frozenset[str] = field(default_factory=frozenset)
    origins: tuple[Origin, ...] = ()
    passes: list[str] = field(default_factory=list)
    divided: list[str] = field(default_factory=list)
    in_float32: list[str] = field(default_factory=list)
    asked: set[Any] = field(default_factory=set)
    checks: dict[Any, str] = field(default_factory=dict)

    @property
    def placeholders(self) -> list[Node]:
        """The user's inputs, in order."""
        return list(self.graph_module.graph.find_nodes(op="placeholder"))

    @property
    def written(self) -> dict[str, torch.Tensor]:
        """The weights that calls write to."""
        return {name: _weight(self.exported, name) for name in self.mutated}

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """The weights that no call changes, under any of their names or through any of their views."""
        named = {**self.exported.state_dict, **self.exported.constants}.items()
        tensors = {name: value for name, value in named if isinstance(value, torch.Tensor)}
        written = {storage_of(tensors[name]) for name in self.mutated if name in tensors}
        return {name: value for name, value in tensors.items() if storage_of(value) not in written}


def open_program(exported: ExportedProgram, watcher: ProgramWatcher | None = None) -> Program:
    """Returns the exported program as one functional graph over the user's inputs.

    Writes to buffers and inputs become ``copy_`` at the end of the graph, so that everything before
    it is free of side effects.

    Raises:
        UnsupportedProgramError: The program has effect tokens or custom objects among its inputs.
            Or it writes to memory that it also reads under another name. Or it was exported under a
            condition that cannot be read, or inside another autocast.
    """
    exported = numbers_as_sizes(exported)
    check_writes(exported)
    _assume_as_exported(exported.graph)
    origins = origins_of(exported)
    guard_count = len(getattr(shape_env_of(exported.graph), "guards", ()))
    functional, source = functionalize(exported)
    check_casts(source.graph)
    opened = _Opening(functional, source)
    opened.copy_nodes()
    placeholders = opened.graph.find_nodes(op="placeholder")
    for original, node in zip(user_inputs(exported), placeholders, strict=True):
        if is_number(original):
            mark_number(node)
    sizes = ProgramSizes.of(exported, functional, guard_count)
    settle_sizes(opened.graph, sizes.fixed)
    in_spec, out_spec = functional.call_spec.in_spec, functional.call_spec.out_spec
    assert in_spec is not None
    assert out_spec is not None
    return Program(
        opened.module(),
        in_spec,
        out_spec,
        exported,
        sizes,
        ProgramWatcher() if watcher is None else watcher,
        mutated=frozenset(opened.mutated),
        origins=origins,
    )


class _Opening:
    """Copies the graph of a functional program, with attributes in place of the inputs that are weights.

    Args:
        exported: The program.
        source: Its graph module.

    Attributes:
        graph: The copy.
        copies: The node of the copy for each node of the program.
        attributes: The ``get_attr`` node of each weight, by the weight's name.
        mutated: The names of the attributes that the copy writes to.
    """

    def __init__(self, exported: ExportedProgram, source: GraphModule) -> None:
        self.exported = exported
        self.source = source
        self.signature = exported.graph_signature
        self.graph = torch.fx.Graph()
        self.root = GraphModuleOfLateCode(source, source.graph)
        self.copies: dict[Node, Node] = {}
        self.attributes: dict[str, Node] = {}
        self.mutated: set[str] = set()
        placeholders = source.graph.find_nodes(op="placeholder")
        self.specs = dict(zip(placeholders, self.signature.input_specs, strict=True))

    def copy_nodes(self) -> None:
        """Fills the graph, with the writes at its end.

        Raises:
            UnsupportedProgramError: An input or an output is of a kind that cannot be compiled.
        """
        for node in self.source.graph.nodes:
            if node.op == "output":
                self.copy_output(node)
            elif node in self.specs and self.specs[node].kind is not InputKind.USER_INPUT:
                self.copies[node] = self.attribute(node)
            else:
                self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def attribute(self, node: Node) -> Node:
        """Returns a new node that reads the weight of an input."""
        spec = self.specs[node]
        if spec.kind not in _WEIGHTS:
            message = f"The program's input {node.target!r} is a {spec.kind.name}, which torchtrt cannot compile."
            raise UnsupportedProgramError(message)
        name = str(spec.target)
        attribute = self.graph.create_node("get_attr", name, name=node.name)
        attribute.meta = dict(node.meta)
        self.attributes[name] = attribute
        return attribute

    def copy_output(self, node: Node) -> None:
        """Writes back what the program changes, by ``copy_``, and returns its other outputs.

        Raises:
            UnsupportedProgramError: An output is of a kind that cannot be compiled.
        """
        inputs = {
            spec.arg.name: self.copies[placeholder] for placeholder, spec in self.specs.items()
        }
        values: Any = node.args[0]
        outputs = []
        for spec, value in zip(self.signature.output_specs, values, strict=True):
            result = self.copies[value] if isinstance(value, Node) else value
            if spec.kind is OutputKind.USER_OUTPUT:
                outputs.append(result)
                continue
            name = str(spec.target)
            if spec.kind in _WEIGHT_MUTATIONS:
                self.mutated.add(name)
                destination = self.attributes[name]
            elif spec.kind is OutputKind.USER_INPUT_MUTATION:
                destination = inputs[name]
            else:
                message = f"The program's output {name!r} is a {spec.kind.name}, which torchtrt cannot compile."
                raise UnsupportedProgramError(message)
            copy = self.graph.call_function(torch.ops.aten.copy_.default, (destination, result))
            copy.meta["val"] = destination.meta.get("val")
        self.graph.output(tuple(outputs)).meta = dict(node.meta)

    def module(self) -> GraphModule:
        """Returns the graph with the weights that it reads."""
        for name in self.attributes:
            assign(self.root, name, _weight(self.exported, name))
        return GraphModuleOfLateCode(self.root, self.graph, class_name="LoweredProgram")


def _assume_as_exported(graph: torch.fx.Graph) -> None:
    """Lets sizes of inputs be taken for 2 or more where the graph is read, as ``torch.export`` takes them.

    A file does not keep it, and ops that broadcast would have to decide whether such a size is 1.

    Raises:
        InputError: The example of an input has a size outside of its declared range.
    """
    for node in graph.find_nodes(op="placeholder"):
        for size in getattr(node.meta.get("val"), "shape", ()):
            is_symbol = isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
            if is_symbol:
                _check_example(node, size)
            if is_symbol and size.node.hint not in (0, 1):
                size.node.shape_env.constrain_symbol_range(size.node.expr, 2, int_oo)


def _check_example(node: Node, size: torch.SymInt) -> None:
    """Checks that the size that a program was exported with is in its range.

    Raises:
        InputError: It is not.
    """
    hint, bounds = size.node.hint, size.node.shape_env.bound_sympy(size.node.expr)
    if hint not in (None, 0, 1) and not bounds.lower <= hint <= bounds.upper:
        raise InputError(
            f"The example has {hint} in input {node.target!r}, for which {bounds.lower} to {bounds.upper} was "
            "declared. Export the model with an example in the range."
        )


def _weight(exported: ExportedProgram, name: str) -> torch.Tensor:
    value = exported.state_dict[name] if name in exported.state_dict else exported.constants[name]
    if not isinstance(value, torch.Tensor):
        message = f"The program's constant {name!r} is a {type(value).__name__}, not a tensor."
        raise UnsupportedProgramError(message)
    return value


def check_writes(exported: ExportedProgram) -> None:
    """Checks that the program changes no weight that it reads through another.

    Raises:
        UnsupportedProgramError: It does. Their names are in the message.
    """
    if not (written := written_inputs(exported.graph_module)):
        return
    names = {
        spec.arg.name: str(spec.target)
        for spec in exported.graph_signature.input_specs
        if spec.kind in _WEIGHTS
    }
    placeholders = exported.graph.find_nodes(op="placeholder")
    weights = {node: names[node.name] for node in placeholders if node.name in names and node.users}
    for (node, name), (other, other_name) in itertools.combinations(weights.items(), 2):
        if written.isdisjoint({node, other}):
            continue
        if overlap(_weight(exported, name), _weight(exported, other_name)):
            first, second = (name, other_name) if node in written else (other_name, name)
            raise UnsupportedProgramError(
                f"The model writes to {first!r}, which shares memory with {second!r}. Keep one of them "
                "as a buffer, and take a view or a clone of it in forward."
            )
