"""Graph nodes of an op, made from its schema: what a validator may have to check."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from torchtrt.torch_internals import OpOverload
from torchtrt_testing.torch_internals import FakeTensor, FakeTensorMode

KINDS = (
    (torch.float32, 0, False),
    (torch.float32, 2, False),
    (torch.float32, 4, False),
    (torch.float32, 2, True),
    (torch.float32, 4, True),
    (torch.float16, 2, False),
    (torch.int64, 2, False),
    (torch.int64, 1, True),
    (torch.bool, 2, False),
    (torch.complex64, 2, False),
)
"""The tensors of a node: the dtype, the number of dimensions, and whether these vary."""
_HAVE_CHANNELS = ("batch_norm", "instance_norm")
"""Ops that read the size of dimension 1 without asking whether there is one: PyTorch then reads foreign memory."""


def nodes_of(op: OpOverload) -> Iterator[Node]:
    """Yields nodes of an op with PyTorch's values of their tensors: several dtypes, ranks, fixed and dynamic sizes.

    Kinds of arguments that the op itself refuses are left out, so there may be no node at all.
    """
    least = 2 if any(name in str(op) for name in _HAVE_CHANNELS) else 0
    for dtype, rank, varies in KINDS:
        node = _node(op, dtype, rank, varies) if rank >= least else None
        if node is not None:
            yield node


def _node(op: OpOverload, dtype: torch.dtype, rank: int, varies: bool) -> Node | None:
    """Returns a node of an op whose tensors are of one kind, or ``None`` if the op itself refuses them."""
    mode = FakeTensorMode(shape_env=ShapeEnv() if varies else None)
    graph = Graph()
    values: dict[Node, Any] = {}

    def tensor() -> Node:
        real = torch.ones([4, 6, 5, 7][:rank], dtype=dtype)
        dims: Any = [DimDynamic.DYNAMIC if varies else DimDynamic.STATIC] * rank
        node = graph.placeholder(f"x{len(values)}")
        context: Any = StatelessSymbolicContext(dynamic_sizes=dims) if varies else None
        node.meta["val"] = values[node] = mode.from_tensor(real, symbolic_context=context)
        return node

    def argument(kind: str) -> Any:
        # Also what may be None: PyTorch reads the mean of a batch normalization without asking whether there is one.
        if kind in ("Tensor", "Optional[Tensor]"):
            return tensor()
        if kind.startswith("List[") and "Tensor" in kind:
            return [tensor(), tensor()]
        if kind.startswith("List["):
            return [argument(kind[5:-1])] * max(rank, 1)
        simple = {"int": 1, "number": 2, "float": 0.5, "bool": False, "str": "", "Device": "cpu"}
        return simple.get(kind)

    arguments = op._schema.arguments
    required = [argument for argument in arguments if not argument.has_default_value()]
    args = tuple(
        argument(str(parameter.type)) for parameter in required if not parameter.kwarg_only
    )
    kwargs = {
        parameter.name: argument(str(parameter.type))
        for parameter in required
        if parameter.kwarg_only
    }
    if not values:
        return None
    node = graph.call_function(op, args, kwargs)
    graph.output(node)
    GraphModule(torch.nn.Module(), graph)  # some read the module from the graph

    try:
        with mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            called, named = torch.fx.map_arg((args, kwargs), values.__getitem__)
            node.meta["val"] = op(*called, **named)
    except Exception:  # whatever an op raises for arguments that are not its own
        return None
    return node


def snapshot(node: Node) -> Any:
    """Returns everything of a node's graph that a validator could change, to compare."""
    return [
        (
            graph_node.name,
            graph_node.op,
            graph_node.target,
            repr(graph_node.args),
            repr(graph_node.kwargs),
            tuple(user.name for user in graph_node.users),
            {name: (id(value), _text(value)) for name, value in graph_node.meta.items()},
        )
        for graph_node in node.graph.nodes
    ]


def _text(value: Any) -> str:
    """Returns a value as text; of a fake tensor, whose own text takes long, what may change in place."""
    if type(value) is FakeTensor:
        return f"{value.dtype} {value.device} {value.requires_grad} {value.shape} {value.stride()}"
    return str(value)
