"""The engines, weights and buffers that captured graphs of a model hold on to, and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torchtrt.graphs.nodes import writes
from torchtrt.torch_internals import pytree
from torchtrt_runtime import torch_internals
from torchtrt_runtime.modules.engine import EngineModule


def _all_at(tensors: Sequence[Any], addresses: Sequence[int], indices: Sequence[int]) -> bool:
    return all(tensors[index].data_ptr() == addresses[index] for index in indices)


are_at: Callable[..., bool] = torch_internals.tensors_are_at or _all_at
"""Compares the addresses of tensors with a list, in C++ where PyTorch was built for CUDA."""


class Source:
    """A graph, and the modules, engines and weights that captured graphs of it hold on to.

    Attributes:
        exact: The places of the inputs whose strides all matter.
    """

    def __init__(self, graph_module: GraphModule | None) -> None:
        self.graph_module = graph_module
        self.exact = (
            _read_outside_engines(graph_module) if graph_module is not None else frozenset()
        )
        parts = _parts(graph_module) if graph_module is not None else ()
        self.parts = [(held, name, held.get(name)) for held, name in parts]
        self.weights = [part for _, _, part in self.parts if _is_dense(part)]
        self.addresses, self.indices = addresses_of(self.weights), list(range(len(self.weights)))

    def has_changed(self) -> bool:
        """Returns whether a part is another than it was, or a weight elsewhere."""
        for held, name, part in self.parts:
            if held.get(name) is not part:
                return True
        return bool(self.weights) and not are_at(self.weights, self.addresses, self.indices)


def _read_outside_engines(graph_module: GraphModule) -> frozenset[int]:
    """Returns the places of the inputs that something else than an engine reads.

    Code from Inductor, and results of ops, may depend on strides along a size of 1, which engines do not see.
    """
    modules = graph_module._modules
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    return frozenset(
        index
        for index, node in enumerate(placeholders)
        for user in node.users
        if user.op != "call_module" or not isinstance(modules.get(str(user.target)), EngineModule)
    )


def addresses_of(leaves: Sequence[Any]) -> list[int]:
    """Returns where tensors are; 0 for other leaves."""
    return [leaf.data_ptr() if isinstance(leaf, Tensor) else 0 for leaf in leaves]


def _parts(graph_module: GraphModule) -> Iterator[tuple[Any, str]]:
    """Yields what captured graphs depend on: the dictionary of each module, weight and plan, and its name there.

    To ask the owner for it takes ten times as long, and each call does it.
    """
    for module in graph_module.modules():
        yield from ((module._modules, name) for name in module._modules)
        if isinstance(module, GraphModule):
            yield vars(type(module)), "forward"  # another one where its graph was edited
        if isinstance(module, EngineModule):
            yield vars(module), "plan"
            yield vars(module), "weight_budget"
    for path in {str(node.target) for node in graph_module.graph.find_nodes(op="get_attr")}:
        prefix, _, name = path.rpartition(".")
        owner = attrgetter(prefix)(graph_module) if prefix else graph_module
        namespaces = (owner._parameters, owner._buffers, owner._modules, vars(owner))
        yield (
            next((namespace for namespace in namespaces if name in namespace), _Computed(owner)),
            name,
        )


class _Computed:
    """In the place of where a weight is kept that its module computes, as one that is parametrized."""

    def __init__(self, owner: torch.nn.Module) -> None:
        self._owner = owner

    def get(self, name: str) -> Any:
        """Returns the weight as it is now."""
        return getattr(self._owner, name)


def _is_dense(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


def refusal_of(graph_module: GraphModule) -> str:
    """Returns why a graph cannot be captured, if that is known beforehand."""
    for module in graph_module.modules():
        if isinstance(module, EngineModule) and module.requires_output_allocator:
            return f"the sizes of what {module.name} returns depend on data"
    for node in graph_module.graph.nodes:
        if writes(node) and node.args[0].op == "placeholder":
            return f"the model writes to its input {node.args[0].name}"
        leaves = pytree.tree_leaves(node.meta.get("val"))
        values = [leaf for leaf in leaves if isinstance(leaf, (Tensor, torch.SymInt))]
        if any(map(free_unbacked_symbols, values)):
            return f"the sizes of what {node.name} returns depend on data"
    return ""
