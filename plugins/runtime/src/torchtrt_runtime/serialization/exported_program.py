"""A compiled model's graph as an exported program, in which engines are calls of one op, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from torchtrt.errors import UnreadableFileError, UnsupportedProgramError
from torchtrt.graphs.nodes import assign, writes
from torchtrt.graphs.symbols import shape_env_of
from torchtrt_runtime.call_safety import unsafe_call
from torchtrt_runtime.modules.compiled import CompiledModule
from torchtrt_runtime.modules.engine import EngineModule
from torchtrt_runtime.serialization.engine_metadata import (
    buffer_of,
    describe_engine,
    load_engine,
    parse_description,
)
from torchtrt_runtime.serialization.pytree_json import unnamed
from torchtrt_runtime.serialization.written_calls import copy_call, graphs_of, leave_out_notes
from torchtrt_runtime.size_ranges import union
from torchtrt_runtime.torch_internals import FakeTensorMode, ValueRanges, load_verifier

RUN = torch.ops.torchtrt.execute_engine.default

_NUMBERS = (bool, int, float)
_MUTATIONS = {
    InputKind.PARAMETER: getattr(
        OutputKind, "PARAMETER_MUTATION", OutputKind.BUFFER_MUTATION
    ),  # newer than torch 2.9
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}
_OWNERS = {
    OutputKind.BUFFER_MUTATION: (InputKind.BUFFER, InputKind.PARAMETER),
    OutputKind.USER_INPUT_MUTATION: (InputKind.USER_INPUT,),
}
"""The kinds of inputs that a program writes results of these kinds to."""


@dataclass(frozen=True)
class SavedProgram:
    """An exported program, and beside it what it holds: its own weights are stand-ins of one element.

    Attributes:
        program: The program.
        tensors: Its weights, by name.
        plans: Its engines' plans, by the names of their constants.
        descriptions: The engines' descriptions, in order.
    """

    program: ExportedProgram
    tensors: Mapping[str, torch.Tensor]
    plans: Mapping[str, Any]
    descriptions: tuple[dict[str, Any], ...]


def inputs_of(program: ExportedProgram) -> dict[Node, InputSpec]:
    """Returns the placeholders of a program, each with what it is in the signature."""
    nodes = program.graph.find_nodes(op="placeholder")
    return dict(zip(nodes, program.graph_signature.input_specs, strict=True))


def user_inputs(program: ExportedProgram) -> list[Node]:
    """Returns the placeholders of a program that are no weights, in the order of a call's flattened inputs."""
    specs = inputs_of(program).items()
    return [node for node, spec in specs if spec.kind is InputKind.USER_INPUT]


def owner_of(result: OutputSpec, inputs: Mapping[Node, InputSpec]) -> Node:
    """Returns the input of a program into which it writes a result, of what ``inputs_of`` returned."""
    kinds = _OWNERS.get(result.kind, (InputKind.PARAMETER,))
    owners = [
        node
        for node, spec in inputs.items()
        if spec.kind in kinds and (spec.target or node.name) == result.target
    ]
    return owners[0]


def to_program(compiled: CompiledModule) -> SavedProgram:
    """Returns a compiled model as an exported program.

    Raises:
        UnsupportedProgramError: It holds something that an exported program cannot, or has a call that is not safe.
    """
    saved = _Lifting(compiled).run()
    if call := unsafe_call(saved.program.graph_module):
        raise UnsupportedProgramError(
            f"The model calls {call}. A saved model must not: do this where the model is called."
        )
    return saved


class _Lifting:
    """Turns attributes into inputs, engines into calls of the op, and writes into results.

    Where the graph writes to parts of what it writes to, all writes stay what they are, in order: as results they
    would be of the whole.
    """

    def __init__(self, compiled: CompiledModule) -> None:
        self.compiled = compiled
        self.source = compiled.graph_module
        self.graph = Graph()
        self.env: dict[Node, Node] = {}
        self.specs: list[InputSpec] = []
        self.kinds: dict[Node, tuple[InputKind, str]] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.plans: dict[str, Any] = {}
        self.plan_inputs: dict[EngineModule, Node] = {}
        self.descriptions: dict[EngineModule, dict[str, Any]] = {}
        nodes = self.source.graph.nodes
        self.attributes = {str(node.target) for node in nodes if node.op == "get_attr"}
        self.keeps_writes = any(
            writes(node) and node.target is not torch.ops.aten.copy_.default for node in nodes
        )
        modes = (getattr(node.meta.get("val"), "fake_mode", None) for node in nodes)
        self.fake_mode = next(filter(None, modes), None) or FakeTensorMode()

    def run(self) -> SavedProgram:
        """Returns the program.

        Raises:
            UnsupportedProgramError: The graph has lost its fake tensors, has no engines, or returns text.
        """
        nodes = list(self.source.graph.nodes)
        if not any("val" in node.meta for node in nodes):
            message = (
                "What was pickled does not have what a file records of sizes and dtypes. Save what torchtrt.compile or "
                "torchtrt.load returned, and use that file in the place of the pickle."
            )
            raise UnsupportedProgramError(message)
        self.add_inputs(nodes)
        written = self.add_calls(nodes)
        output_specs = self.add_outputs(nodes[-1], written)
        return SavedProgram(
            self.program(output_specs), self.tensors, self.plans, tuple(self.descriptions.values())
        )

    def add_inputs(self, nodes: Sequence[Node]) -> None:
        """Makes the program's inputs: first the weights and plans, then those of the model."""
        for node in nodes:
            if node.op == "get_attr":
                self.add_attribute(node)
            elif node.op == "call_module":
                self.add_plan(node)
        for node in nodes:
            if node.op == "placeholder":
                self.env[node] = self.graph.node_copy(node)
                self.add_spec(self.env[node], InputKind.USER_INPUT, None)

    def add_calls(self, nodes: Sequence[Node]) -> dict[Node, Node]:
        """Copies the calls; returns for each destination of a write at the end the value to write."""
        written: dict[Node, Node] = {}
        for node in nodes:
            if node.op == "call_module":
                self.env[node] = self.call_engine(node)
            elif node.op == "call_function" and writes(node) and not self.keeps_writes:
                arguments: Any = node.args
                destination, value, *_ = arguments
                written[self.env[destination]] = self.env[value]
            elif node.op == "call_function":
                self.env[node] = copy_call(self.graph, node, self.env)
        return written

    def add_spec(self, node: Node, kind: InputKind, target: str | None) -> None:
        persistent = True if kind is InputKind.BUFFER else None
        self.specs.append(InputSpec(kind, _argument(node), target, persistent))
        self.kinds[node] = (kind, target or node.name)

    def add_attribute(self, node: Node) -> None:
        """Makes an input of the program for a tensor of the graph; copies a node that names another graph."""
        name = str(node.target)
        value = attrgetter(name)(self.source)
        if not isinstance(value, torch.Tensor):  # a graph of its own, such as a branch
            self.env[node] = self.graph.node_copy(node)
            return
        existing = next(
            (lifted for lifted, (_, target) in self.kinds.items() if target == name), None
        )
        if existing is not None:
            self.env[node] = existing
            return
        is_parameter = isinstance(value, torch.nn.Parameter)
        self.tensors[name] = value
        lifted = self.graph.placeholder(self.fresh(name))
        with self.fake_mode:
            lifted.meta["val"] = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
        self.add_spec(lifted, InputKind.PARAMETER if is_parameter else InputKind.BUFFER, name)
        self.env[node] = lifted

    def add_plan(self, node: Node) -> None:
        """Makes an input of the program for the plan of an engine, for all calls of it."""
        engine = self.engine(node)
        if engine in self.plan_inputs:
            self.env[node] = self.plan_inputs[engine]
            return
        name = f"plan_{_identifier(engine.name)}"
        while name in self.attributes:  # of a saved program that is a part of this model
            name += "_"
        lifted = self.graph.placeholder(self.fresh(name))
        with self.fake_mode:
            lifted.meta["val"] = torch.empty(buffer_of(engine.plan).size, dtype=torch.uint8)
        self.add_spec(lifted, InputKind.CONSTANT_TENSOR, name)
        self.plans[name] = engine.plan
        self.env[node] = self.plan_inputs[engine] = lifted

    def engine(self, node: Node) -> EngineModule:
        module = self.source.get_submodule(str(node.target))
        if not isinstance(module, EngineModule):
            message = "A dry run has no engines to save: compile the model without dryrun."
            raise UnsupportedProgramError(message)
        return module

    def fresh(self, name: str) -> str:
        taken = {node.name for node in self.source.graph.nodes if node.op == "placeholder"}
        name = "lifted_" + re.sub(r"\W", "_", name)
        while name in taken:
            name += "_"
        return name

    def call_engine(self, node: Node) -> Node:
        """Returns a new call of the op that runs an engine."""
        plan = self.env[node]
        engine = self.engine(node)
        outputs: dict[int, Any] = {
            int(user.args[1]): user.meta["val"]  # type: ignore[arg-type]  # getitem's index
            for user in node.users
        }
        with self.fake_mode:
            values = [
                outputs[index] if index in outputs else torch.empty(0, dtype=dtype)
                for index, dtype in enumerate(engine.outputs.values())
            ]
        inputs = [source.meta["val"] for source in node.all_input_nodes]
        # Sizes of outputs follow from those of inputs in the same way in each call.
        described = self.descriptions.get(engine) or describe_engine(engine, inputs, values)
        self.descriptions[engine] = described
        arguments = [self.env[argument] for argument in node.args]  # type: ignore[index]
        call = self.graph.call_function(RUN, (arguments, plan, json.dumps(described)))
        call.meta["val"] = values
        return call

    def add_outputs(self, output: Node, written: Mapping[Node, Node]) -> list[OutputSpec]:
        """Makes the program's outputs, first the values to write; returns how its signature names them.

        Raises:
            UnsupportedProgramError: The model returns text, or a condition on sizes.
        """
        specs, results = [], []
        for destination, value in written.items():
            kind, target = self.kinds[destination]
            specs.append(OutputSpec(_MUTATIONS[kind], _argument(value), target))
            results.append(value)
        returned: Any = output.args[0]
        for returned_value in returned:
            result = (
                self.env[returned_value] if isinstance(returned_value, Node) else returned_value
            )
            if isinstance(result, Node) and type(result.meta.get("val")) in _NUMBERS:
                result = result.meta["val"]
            if result in results and result in written.values():
                # PyTorch would return what was written, which a later call changes.
                result = self.graph.call_function(torch.ops.aten.clone.default, (result,))
                result.meta["val"] = returned_value.meta["val"]
            if isinstance(result, str):
                raise UnsupportedProgramError(
                    f"The model returns the text {result!r}, which PyTorch cannot read from a file. Return tensors and "
                    "numbers, and add the text where the model is called."
                )
            if isinstance(result, Node) and isinstance(result.meta.get("val"), torch.SymBool):
                raise UnsupportedProgramError(
                    f"The model returns the condition {result.meta['val']} on its sizes, which PyTorch cannot write to "
                    "a file. Return the sizes, and compare them where the model is called."
                )
            specs.append(OutputSpec(OutputKind.USER_OUTPUT, _argument(result), None))
            results.append(result)
        self.graph.output(tuple(results)).meta["val"] = tuple(
            result.meta["val"] if isinstance(result, Node) else result for result in results
        )
        return specs

    def program(self, output_specs: list[OutputSpec]) -> ExportedProgram:
        """Returns the copied graph as an exported program, with stand-ins for its weights and plans."""
        root = torch.nn.Module()
        for name, module in graphs_of(self.graph, self.source).items():
            root.add_module(name, module)
        leave_out_notes(self.graph)
        stand_ins = {name: _stand_in(tensor) for name, tensor in self.tensors.items()}
        plans: dict[str, Any] = {name: torch.zeros(1, dtype=torch.uint8) for name in self.plans}
        input_tree, _ = unnamed(self.compiled.input_tree)
        output_tree, _ = unnamed(self.compiled.output_tree)
        signature = ModuleCallSignature([], [], input_tree, output_tree)
        return ExportedProgram(
            root=root,
            graph=self.graph,
            graph_signature=ExportGraphSignature(self.specs, output_specs),
            state_dict=stand_ins,
            range_constraints=dict(self.ranges()),
            module_call_graph=[ModuleCallEntry("", signature)],
            example_inputs=None,
            constants=plans,
            verifiers=[load_verifier("TRAINING" if self.keeps_writes else "ATEN")],
        )

    def ranges(self) -> Iterator[tuple[Any, ValueRanges[Any]]]:
        """Yields the symbols of the graph's sizes, each with its least and greatest value."""
        profiles = self.compiled.checks.profiles
        environment = shape_env_of(self.source.graph)
        intervals = environment.var_to_range if environment else {}
        symbols = {
            symbol
            for node in self.graph.nodes
            for value in _leaves(node.meta.get("val"))
            for size in (value.shape if isinstance(value, torch.Tensor) else (value,))
            if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool))
            for symbol in size.node.expr.free_symbols
        }
        for symbol in sorted(symbols, key=str):
            if symbol in profiles[0]:
                sizes = union(profile[symbol] for profile in profiles)
                yield symbol, ValueRanges(sizes.min, sizes.max)
            elif symbol in intervals:
                yield symbol, intervals[symbol]


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(1, dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made


def _argument(node: Any) -> Any:
    """Returns the form of a value in a program's signature."""
    if not isinstance(node, Node):
        return ConstantArgument("", node)
    value = node.meta.get("val")
    kinds = (
        (torch.Tensor, TensorArgument),
        (torch.SymInt, SymIntArgument),
        (torch.SymFloat, SymFloatArgument),
        (torch.SymBool, SymBoolArgument),
    )
    for kind, argument in kinds:
        if isinstance(value, kind):
            return argument(node.name)
    if value is None or isinstance(value, (bool, int, float, str)):
        return ConstantArgument(node.name, value)
    message = f"The value {node.name!r} is a {type(value).__name__}, which has no form in a saved program."
    raise UnsupportedProgramError(message)


def from_program(
    program: ExportedProgram, tensors: Mapping[str, torch.Tensor], plans: Mapping[str, Any]
) -> GraphModule:
    """Returns the graph of a compiled model: the inverse of ``to_program``.

    Args:
        program: The program.
        tensors: Its weights, by name.
        plans: The plans of its engines, by name.

    Raises:
        UnreadableFileError: ``to_program`` makes no such program.
        EngineMismatchError: An engine is for a TensorRT or a GPU that is not here.
    """
    root = torch.nn.Module()
    graph = Graph()
    env: dict[Node, Any] = {}
    plan_names: dict[Node, str] = {}
    engines: dict[str, EngineModule] = {}
    for node, spec in inputs_of(program).items():
        name = str(spec.target)
        if spec.kind is InputKind.USER_INPUT:
            env[node] = graph.node_copy(node)
        elif name in plans:
            plan_names[node] = name
        elif name in tensors:
            assign(root, name, tensors[name])
            env[node] = graph.create_node("get_attr", name, name=node.name)
            env[node].meta = dict(node.meta)
        else:
            raise UnreadableFileError(f"The file lacks the weight {name!r}. Save the model again.")
    for node in program.graph.nodes:
        if node.op == "get_attr":
            module = program.graph_module.get_submodule(str(node.target))
            root.add_module(str(node.target), module)
            env[node] = graph.node_copy(node)
        elif node.op == "call_function" and node.target is RUN and node.args[1] in plan_names:
            operands, plan, text = node.args
            engine = _engine_of(str(text), plan_names[plan], plans, engines)
            module_name = _identifier(engine.name)
            root.add_module(module_name, engine)
            env[node] = graph.call_module(module_name, tuple(env[operand] for operand in operands))
        elif node.op == "call_function":
            env[node] = graph.node_copy(node, env.__getitem__)
    _add_output(graph, program, env)
    return GraphModule(root, graph, class_name="CompiledGraph")


def _identifier(name: str) -> str:
    """Returns the name of an engine as that of an attribute: the name of a plan is that of its file."""
    return re.sub(r"\W", "_", name)


def _engine_of(
    description: str, name: str, plans: Mapping[str, Any], engines: dict[str, EngineModule]
) -> EngineModule:
    """Returns the engine that a call runs, and counts the call."""
    if name in engines:
        engines[name].calls += 1
    else:
        engines[name] = load_engine(parse_description(description), plans[name])
    return engines[name]


def _add_output(graph: Graph, program: ExportedProgram, env: Mapping[Node, Any]) -> None:
    """Adds the results of a program, and its writes behind everything else."""
    inputs = inputs_of(program)
    results = []
    returned: Any = program.graph.output_node().args[0]
    for result, value in zip(program.graph_signature.output_specs, returned, strict=True):
        made = env[value] if isinstance(value, Node) else value
        if result.kind is OutputKind.USER_OUTPUT:
            results.append(made)
            continue
        owner = owner_of(result, inputs)
        copy = graph.call_function(torch.ops.aten.copy_.default, (env[owner], made))
        copy.meta["val"] = owner.meta.get("val")
    graph.output(tuple(results)).meta["val"] = None
