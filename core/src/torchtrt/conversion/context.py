"""The context of converters: the network under construction, and the known facts about its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from torchtrt.conversion.network import CheckedNetwork
from torchtrt.conversion.recording import WeightRecorder
from torchtrt.conversion.values import (
    Size,
    as_torch_tensor,
    is_array,
    is_constant_value,
    is_network_tensor,
)
from torchtrt.errors import ConversionError
from torchtrt.settings import CompilationSettings
from torchtrt.tensorrt import to_torch_dtype
from torchtrt.tensorrt.dtypes import engine_dtype
from torchtrt.tensorrt.interfaces import NetworkTensor
from torchtrt.tensorrt.shims import add_cast, add_shape, weights_of

if TYPE_CHECKING:
    from torchtrt.conversion.values import Constant

SymbolicSize: TypeAlias = int | torch.SymInt | None
"""A size that is known, known as an expression of the model's symbols, or unknown until run time."""


@dataclass
class ConversionContext:
    """The first argument of every converter.

    Attributes:
        net: The TensorRT network under construction. Calls that TensorRT refuses raise, and layers that
            no converter names have the node's name.
        compilation_settings: The settings of this compilation.
        requires_output_allocator: Whether an output's size depends on the data.
        cpu_weights_reference_holder: Owners of the memory that the network's weights point to.
        node: The graph node in conversion. ``node.meta["val"]`` is what PyTorch returns for it:
            dtype, and shape in the model's symbols. ``None`` when a converter is called by hand.
        convert_graph: From a graph inside the node (a branch, a loop's body) and the network tensors
            for its placeholders to its results. ``None`` when a converter is called by hand.
        depth: How many branches and loops the node in conversion is inside of.
        recorder: What records how the network's weights follow from the model's, so that engines can be refitted.
        attachments: What a front end keeps for the length of this conversion, by its name.
        plugins: The keys of the plugins in the network, by which an engine asks for them.
    """

    net: Any
    compilation_settings: CompilationSettings = field(default_factory=CompilationSettings)
    requires_output_allocator: bool = False
    cpu_weights_reference_holder: list[Any] = field(default_factory=list)
    node: Node | None = None
    convert_graph: Callable[[GraphModule, Sequence[Any]], list[Any]] | None = None
    depth: int = 0
    recorder: WeightRecorder = field(default_factory=WeightRecorder)
    attachments: dict[str, Any] = field(default_factory=dict)
    plugins: set[Any] = field(default_factory=set)
    _weights: dict[Any, tuple[torch.Tensor, Any]] = field(default_factory=dict)
    _values: dict[str, Any] = field(default_factory=dict)
    _shapes: dict[str, NetworkTensor] = field(default_factory=dict)
    _sizes: dict[tuple[str, int], NetworkTensor] = field(default_factory=dict)
    _constants: dict[Any, NetworkTensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.net, CheckedNetwork):
            self.net = CheckedNetwork(self.net)

    def part(self, name: str) -> AbstractContextManager[None]:
        """Names the layers that are added inside a ``with`` block after a part of the node: ``op/node/name/kind``."""
        network: CheckedNetwork = self.net
        return network.part(name)

    def tensor(
        self, value: NetworkTensor | Constant, dtype: torch.dtype | None = None
    ) -> NetworkTensor:
        """Returns a network tensor for a value; see ``torchtrt.conversion.get_trt_tensor``."""
        if is_network_tensor(value):
            if dtype is None or self.dtype_of(value) is engine_dtype(dtype):
                return value
            return add_cast(self.net, value, dtype)
        if not is_constant_value(value):
            message = f"A {type(value).__name__} cannot become a TensorRT constant: {value!r}."
            raise ConversionError(message)
        tensor = as_torch_tensor(value, dtype)
        if tensor.numel() > 1 or isinstance(value, torch.Tensor) or is_array(value):
            return self.add_constant(tensor)
        # The text distinguishes -0.0 from 0.0.
        key = (tensor.dtype, tuple(tensor.shape), repr(tensor.tolist()))
        if key not in self._constants:
            self._constants[key] = self.add_constant(tensor)
        return self._constants[key]

    def add_constant(
        self, tensor: torch.Tensor, shape: tuple[int, ...] | None = None
    ) -> NetworkTensor:
        """Returns a new constant with a tensor's values, in another shape of as many elements if one is given."""
        if tensor.dtype is torch.bool:
            # Boolean weights are undocumented on some versions: an integer constant and a cast are safe on all.
            return add_cast(self.net, self.add_constant(tensor.to(torch.int32), shape), torch.bool)
        sizes = tuple(tensor.shape) if shape is None else shape
        constant: NetworkTensor = self.net.add_constant(sizes, self.weights(tensor)).get_output(0)
        return constant

    def weights(self, tensor: torch.Tensor) -> Any:
        """Returns ``trt.Weights`` over a tensor's values, which this context keeps alive."""
        with self.recorder.paused():
            weights, owner = weights_of(tensor)
            # TensorRT identifies weights by their memory, and what shares it has one name.
            _, other = self._weights.get(_address(owner), (tensor, weights))
            if (other.dtype, other.size) != (weights.dtype, weights.size):
                weights, owner = weights_of(tensor.clone())
            if weights.size:
                self._weights.setdefault(_address(owner), (tensor, weights))
        self.cpu_weights_reference_holder.append(owner)
        return weights

    def name_recorded_weights(self) -> None:
        """Names all weights that follow from the model's, whichever converter made them."""
        for tensor, weights in self._weights.values():
            self.recorder.name_weights(tensor, partial(self.net.set_weights_name, weights))

    def clear_cpu_weights_reference_holder(self) -> None:
        """Lets go of the weights' memory. Call it once the engine is built, not before."""
        self.cpu_weights_reference_holder.clear()
        self._weights.clear()

    def set_known_value(self, tensor: NetworkTensor, value: Any) -> None:
        """Records PyTorch's value of a network tensor: a fake tensor, or a symbolic number for a scalar."""
        self._values[tensor.name] = value

    def known_value(self, tensor: NetworkTensor) -> Any:
        """Returns what ``set_known_value`` recorded for ``tensor``, or ``None``."""
        return self._values.get(tensor.name)

    def names_of(self, dtype: torch.dtype) -> set[str]:
        """Returns the names of the network tensors that have a dtype in PyTorch."""
        return {
            name for name, value in self._values.items() if getattr(value, "dtype", None) is dtype
        }

    def dtype_of(self, tensor: NetworkTensor) -> torch.dtype:
        """Returns the dtype of a network tensor inside the network, as PyTorch names it."""
        return to_torch_dtype(tensor.dtype)

    def symbolic_shape(self, tensor: NetworkTensor) -> tuple[SymbolicSize, ...]:
        """Returns the sizes of a network tensor, as far as they are known before run time."""
        shape = tuple(None if size < 0 else size for size in tuple(tensor.shape))
        value = self.known_value(tensor)
        if isinstance(value, torch.Tensor) and value.dim() == len(shape):
            return tuple(
                symbolic_size if size is None else size
                for size, symbolic_size in zip(shape, value.shape, strict=True)
            )
        return shape

    def shape_of(self, tensor: NetworkTensor) -> NetworkTensor:
        """Returns the run-time shape of ``tensor``: int32, shape ``(rank,)``. Made once per tensor."""
        if tensor.name not in self._shapes:
            self._shapes[tensor.name] = add_shape(self.net, tensor)
        return self._shapes[tensor.name]

    def size_of(self, tensor: NetworkTensor, dim: int) -> Size:
        """Returns one size of ``tensor``: an ``int`` where it is fixed, else a 0-d int32 tensor."""
        dim %= len(tensor.shape)
        if tensor.shape[dim] >= 0:
            return int(tensor.shape[dim])
        key = (tensor.name, dim)
        if key not in self._sizes:
            shape = self.shape_of(tensor)
            self._sizes[key] = self.net.add_gather(shape, self.tensor(dim), 0).get_output(0)
        return self._sizes[key]


def _address(owner: Any) -> int:
    """Returns where the memory of weights begins, which a tensor or an array owns."""
    return int(owner.data_ptr() if isinstance(owner, torch.Tensor) else owner.ctypes.data)
