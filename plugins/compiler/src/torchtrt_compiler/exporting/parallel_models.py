"""Tensor-parallel models: from weights that are ``DTensor`` to a program over each process's own part of them.

``torch.export`` keeps a ``DTensor`` whole, because it records ops before they are dispatched to tensor subclasses. Here
it records them afterwards: by then a ``DTensor`` has replaced each of its ops by ops on local tensors, with functional
collectives (``_c10d_functional``) between them. Weights become local through a parametrization, as PyTorch's own
compiler has it.
"""

from __future__ import annotations

import copy
import functools
import operator
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from torchtrt.errors import UnsupportedProgramError
from torchtrt.graphs.nodes import declares_alias
from torchtrt.torch_internals import OpOverload, pytree
from torchtrt_compiler.torch_internals import (
    export_after_dispatch,
    in_order_of_export,
    without_size_guards,
)
from torchtrt_runtime.processes.groups import is_collective, is_distributed
from torchtrt_runtime.torch_internals import PROGRAMS

_ATTENTION = "torchtrt_compiler::attention"
_PARAMETRIZED = ".parametrizations."


def is_parallel(model: torch.nn.Module) -> bool:
    """Returns whether a model has weights or buffers that are spread over several processes."""
    return any(map(is_distributed, (*model.parameters(), *model.buffers())))


def export_module(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Returns a module as ``torch.export`` exports it; a parallel one as the part of this process."""
    with PROGRAMS:
        if is_parallel(model):
            return export_parallel(model, args, kwargs, dynamic_shapes)
        with in_order_of_export(model):
            return torch.export.export(
                model, args, dict(kwargs), dynamic_shapes=dynamic_shapes, strict=False
            )


def export_parallel(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> ExportedProgram:
    """Returns the program of this process: local weights under the model's names, and functional collectives.

    Args:
        model: A module with ``DTensor`` weights. It is left as it is; the program shares their memory.
        args: Its inputs: plain tensors, as ``torch.export.export`` takes them.
        kwargs: Its inputs by name, likewise.
        dynamic_shapes: As ``torch.export.export`` takes them.

    Raises:
        UnsupportedProgramError: A result is a ``DTensor``.
    """
    local = _with_local_weights(model)
    local.register_forward_hook(_check_results)
    with _WholeAttention(), without_size_guards():
        exported = export_after_dispatch(local, args, dict(kwargs), dynamic_shapes)
    _restore_attention(exported)
    _restore_names(exported)
    return exported


def _check_results(module: torch.nn.Module, _: Any, results: Any) -> None:
    """Checks that a parallel model returns plain tensors."""
    for path, value in pytree.tree_flatten_with_path(results)[0]:
        if is_distributed(value):
            raise UnsupportedProgramError(
                f"The output{pytree.keystr(path)} of {type(module).__name__} is a DTensor with the placements "
                f"{value.placements}, and a compiled model returns plain tensors. Keep use_local_output=True in the "
                "plan of the last module, or return result.to_local(), this process's part, or result.full_tensor()."
            )


class _Distributed(torch.nn.Module):
    """The parametrization of a ``DTensor`` by its local part."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self._mesh, self._placements = whole.device_mesh, whole.placements
        self._shape, self._stride = whole.shape, whole.stride()

    def forward(self, local: Tensor) -> Tensor:
        """Returns the tensor of all processes."""
        whole: Tensor = sys.modules["torch.distributed.tensor"].DTensor.from_local(
            local,
            self._mesh,
            self._placements,
            run_check=False,
            shape=self._shape,
            stride=self._stride,
        )
        return whole

    def right_inverse(self, whole: Any) -> tuple[Tensor]:
        """Returns the local part, in a tuple: a single tensor would be put in the place of the model's own."""
        return (whole.to_local().detach(),)


def _with_local_weights(model: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a model's modules over the same memory, whose weights are local tensors."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared)
    for module in list(copied.modules()):
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if is_distributed(tensor):
                parametrize.register_parametrization(
                    module, name, _Distributed(tensor), unsafe=True
                )
    return copied


class _WholeAttention(TorchFunctionMode):
    """Records attention as one op, which dispatching would take apart."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            leaves = (*args, *kwargs.values())
            if not any(map(is_distributed, leaves)):
                func = _attention()
        return func(*args, **kwargs)


@functools.cache
def _attention() -> Any:
    """Returns an op with the schema of PyTorch's attention that dispatching leaves whole."""
    schema = str(torch.ops.aten.scaled_dot_product_attention.default._schema).partition("(")[2]
    torch.library.define(_ATTENTION, f"({schema}")

    @torch.library.impl(_ATTENTION, "CompositeExplicitAutograd")
    def attention(*args: Any, **kwargs: Any) -> Tensor:
        return F.scaled_dot_product_attention(*args, **kwargs).clone()

    def shape(query: Tensor, _: Tensor, value: Tensor, *__: Any, **___: Any) -> Tensor:
        return query.new_empty((*query.shape[:-1], value.shape[-1]))

    torch.library.register_fake(_ATTENTION, shape)
    return torch.ops.torchtrt_compiler.attention.default


def _restore_attention(exported: ExportedProgram) -> None:
    for node in exported.graph.find_nodes(op="call_function", target=_attention()):
        node.target = torch.ops.aten.scaled_dot_product_attention.default
    exported.graph_module.recompile()


def _restore_names(exported: ExportedProgram) -> None:
    """Gives local weights the names that the model has for them."""

    def own(name: str) -> str:
        return (
            name.replace(_PARAMETRIZED, ".")
            .removeprefix(_PARAMETRIZED[1:])
            .removesuffix(".original0")
        )

    for held in (exported.state_dict, exported.constants):
        for name in [key for key in held if _PARAMETRIZED[1:] in key]:
            held[own(name)] = held.pop(name)
    for spec in exported.graph_signature.input_specs:
        if spec.target is not None and _PARAMETRIZED[1:] in spec.target:
            spec.target = own(spec.target)


def wait_before_engines(graph_module: GraphModule) -> None:
    """Lets PyTorch finish each collective that it runs before an engine reads the result."""
    graph = graph_module.graph
    calls = graph.find_nodes(op="call_module")
    pending = [
        (call, source) for call in calls for source in call.all_input_nodes if _is_pending(source)
    ]
    for call, source in pending:
        with graph.inserting_before(call):
            waited = graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (source,))
        waited.meta["val"] = source.meta.get("val")
        call.replace_input_with(source, waited)
    if pending:
        graph_module.recompile()


def _is_pending(source: Any) -> bool:
    """Returns whether a value is the result of a collective that was not waited for, or a view of one."""
    while isinstance(source, Node):
        target = source.target
        if is_collective(target):
            return target is not torch.ops._c10d_functional.wait_tensor.default
        is_view = isinstance(target, OpOverload) and declares_alias(target)
        if not is_view and target is not operator.getitem:
            return False
        source = source.args[0]
    return False
