"""A scripted module as a plain module: its parameters by their own names, its code run node by node."""

from __future__ import annotations

import functools
import inspect
import keyword
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchtrt.errors import InputError
from torchtrt_torchscript.graph_runner import GraphRunner
from torchtrt_torchscript.graphs import all_nodes, every_node
from torchtrt_torchscript.numbers import Undecided, as_number
from torchtrt_torchscript.torch_internals import FunctionSchema, ScriptGraph, ScriptNode

_NUMBER_DTYPES = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}


class TorchScriptModule(nn.Module):
    """The module that ``torch.export`` traces in place of a scripted or traced one.

    Parameters and buffers are the scripted module's own, under the same names, so that an engine's
    weights can be replaced by name. So are the constants that freezing a module made of them. A call
    runs the graph with PyTorch: what is known is evaluated, and every op on tensors is called.

    Args:
        graph: The inlined graph of the method. Its first input is the module, unless ``module`` is ``None``.
        schema: The method's schema.
        module: The scripted module whose method it is; ``None`` for a function.

    Attributes:
        signature: What the method takes.
        runner: Runs the graph.
    """

    def __init__(self, graph: ScriptGraph, schema: FunctionSchema, module: Any = None) -> None:
        super().__init__()
        self._graph = graph
        itself = () if module is None else (Attributes(module, self),)
        arguments = schema.arguments[len(itself) :]
        runner = GraphRunner(graph, _register_frozen(self, graph))

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            values = map(_as_declared, arguments, bound.arguments.values())
            return as_number(runner.run((*itself, *values)))

        self.signature = _signature(arguments)
        self.runner = runner
        forward.__signature__ = self.signature  # type: ignore[attr-defined]  # torch.export reads it
        self.forward: Callable[..., Any] = forward
        self.train(getattr(module, "training", False))  # a frozen module has no mode

    def nodes(self) -> Iterator[ScriptNode]:
        """Yields every node of the graph, those of its inner blocks included."""
        yield from every_node(self._graph)


def _signature(arguments: Sequence[Any]) -> inspect.Signature:
    """Returns the signature of a schema's arguments. A name that Python has no use for, or two have, is changed."""
    taken = {"self"}
    parameters = []
    for argument in arguments:
        name = argument.name if argument.name.isidentifier() else "input"
        base, count = name, 0
        while name in taken or keyword.iskeyword(name):
            count += 1
            name = f"{base}_{count}"
        taken.add(name)
        default = (
            argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        )
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _as_declared(argument: Any, value: Any) -> Any:
    """Returns what a method computes with for an argument: a tensor in the place of a number is that number.

    A scripted method accepts such a tensor, and reads its only element.
    """
    dtype = _NUMBER_DTYPES.get(str(argument.type))
    if dtype is None or not isinstance(value, Tensor):
        return value
    return Undecided(value.reshape(()).to(dtype))


def _register_frozen(module: nn.Module, graph: ScriptGraph) -> dict[int, Callable[[], Any]]:
    """Registers the weights that ``torch.jit.freeze`` wrote into a graph; returns what gives each, by value number.

    It names them as they were named before: ``%self.encoder.weight``.
    """
    getters: dict[int, Callable[[], Any]] = {}
    for node in all_nodes(graph):
        if node.kind() != "prim::Constant" or not node.output().debugName().startswith("self."):
            continue
        value, (_, *path, name) = node.output().toIValue(), node.output().debugName().split(".")
        owner: Any = module
        for part in path:
            if isinstance(owner, nn.Module) and not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part, None)
        if isinstance(value, Tensor) and isinstance(owner, nn.Module) and not hasattr(owner, name):
            owner.register_buffer(name, value)
            getters[node.output().unique()] = functools.partial(getattr, owner, name)
    return getters


class Attributes:
    """The module that ``prim::GetAttr`` and ``prim::SetAttr`` read and write.

    Tensors are registered on a plain module, as ``torch.export`` needs them; all else is read where it is.

    Args:
        source: The scripted module.
        target: The plain module that gets its parameters, buffers and submodules.
    """

    def __init__(self, source: Any, target: nn.Module) -> None:
        self._source, self._target = source, target
        self._children: dict[str, Attributes] = {}
        for name, parameter in source.named_parameters(recurse=False):
            # A loaded module gives its parameters as plain tensors.
            target.register_parameter(name, nn.Parameter(parameter, parameter.requires_grad))
        for name, buffer in source.named_buffers(recurse=False):
            target.register_buffer(name, buffer)
        for name, child in source.named_children():
            module = nn.Module()
            target.add_module(name, module)
            self._children[name] = Attributes(child, module)

    def get(self, name: str) -> Any:
        """Returns an attribute: a tensor, the attributes of a submodule, or a constant.

        Raises:
            InputError: It is an object of a class, such as the packed weights of a quantized module.
        """
        if name in self._children:
            return self._children[name]
        if name in self._target._parameters or name in self._target._buffers:
            return getattr(self._target, name)
        value = getattr(self._source, name)
        if isinstance(value, torch.ScriptObject):
            message = (
                f"The attribute {name!r} of {self._source.original_name} is an object of the class "
                f"{str(value._type()).rpartition('.')[2]}, which TensorRT has no use for. Quantized modules keep "
                "their weights in such objects: compile the model that was not quantized, or one with fake "
                "quantization."
            )
            raise InputError(message)
        return value

    def graph_of(self, method: str) -> ScriptGraph:
        """Returns the graph of a method: of a submodule that the model calls by its interface only."""
        graph: ScriptGraph = getattr(self._source, method).inlined_graph
        return graph

    def buffer_for(self, name: str, value: Any) -> Tensor:
        """Returns the buffer that a value is stored in. No other state can live in a compiled module.

        Raises:
            InputError: The attribute is no buffer of the value's shape and dtype.
        """
        buffer = self._target._buffers.get(name)
        if (
            not isinstance(buffer, Tensor)
            or not isinstance(value, Tensor)
            or (buffer.shape, buffer.dtype) != (value.shape, value.dtype)
        ):
            kind = "tensor" if isinstance(value, Tensor) else type(value).__name__
            message = (
                f"The model stores a {kind} in its attribute {name!r} while it runs. A compiled model "
                "writes only to buffers, and only tensors of the buffer's own shape and dtype. Take the state as "
                "an argument and return it, or compile the submodule that keeps none."
            )
            raise InputError(message)
        return buffer
