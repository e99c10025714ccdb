"""The network that converters build on: what TensorRT refuses raises at once, and every layer has a name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torchtrt.errors import ConversionError
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import ErrorLog
from torchtrt.tensorrt.selection import describe
from torchtrt.torch_internals import pytree

FOREIGN = "A converter must keep no tensor and no context of another conversion."


class _NewLayer(NamedTuple):
    """A layer of the node in conversion.

    Attributes:
        layer: The layer.
        name: The name that it got when it was added.
        call: The call that added it, in words.
    """

    layer: Any
    name: str
    call: str


class CheckedNetwork:
    """A TensorRT network, used like ``trt.INetworkDefinition``.

    Its ``add_...`` methods, and those of its loops and conditionals, raise where TensorRT refuses.
    A layer that TensorRT finds invalid only with all attributes set raises at the end of the node.
    A layer without a name is called ``scope/kind``, with ``#2`` and so on behind the second of one name.

    Args:
        network: The network of the TensorRT in use. It stays reachable as ``raw``.
    """

    def __init__(self, network: Any) -> None:
        self.raw = network
        self._scope: list[str] = []
        self._description = ""
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}
        self._new: list[_NewLayer] = []  # of the node in conversion
        self._cache_updates: list[Any] = []
        self._tensors: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.raw, name)
        return self._checked(name, value) if name.startswith("add_") else value

    def __len__(self) -> int:
        return int(self.raw.num_layers)

    def __getitem__(self, index: int) -> Any:
        return self.raw[index]

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Names the layers that are added inside a ``with`` block ``.../name/...``."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    @contextlib.contextmanager
    def node(self, name: str, description: str) -> Iterator[None]:
        """Is where one node is converted: its layers carry its name, and its description as metadata.

        Engine inspectors show both; TensorRT refuses networks in which a name occurs twice.
        """
        outer = self._scope, self._description, self._new
        ports = self.raw.num_inputs, self.raw.num_outputs
        self._scope, self._description, self._new = [name], description, []
        try:
            with ErrorLog() as log:
                yield
                for new in self._new:
                    if (
                        new.layer.name != new.name
                    ):  # by the converter, which does not see all others
                        new.layer.name = self._unique(new.layer.name)
                    self._check(new, log)
            if ports != (self.raw.num_inputs, self.raw.num_outputs):
                raise ConversionError(
                    "the converter added an input to the network, or marked an output: the graph decides these. "
                    "Return the result, and compute with the arguments"
                )
        finally:
            self._scope, self._description, self._new = outer

    def owns(self, tensor: Any) -> bool:
        """Returns whether a tensor is of this network. Those of two networks may have the same name.

        TensorRT gives the same Python object for a tensor as long as that object lives.
        """
        if id(tensor) not in self._tensors:
            self._keep(self.raw.get_input(index) for index in range(self.raw.num_inputs))
            for layer in self.raw:
                self._keep(map(layer.get_output, range(layer.num_outputs)))
        return id(tensor) in self._tensors

    def _keep(self, tensors: Iterable[Any]) -> None:
        self._tensors.update((id(tensor), tensor) for tensor in tensors)

    @property
    def updates_caches(self) -> bool:
        """Whether a layer writes into a cache, an input whose memory is an output's."""
        return bool(self._cache_updates)

    def cache_objection(self) -> str:
        """Returns why a layer that writes into a cache may compute wrong values; ``""`` if there is no such layer.

        The layer writes while the engine runs, and nothing defines when others read the same memory.
        """
        for update in self._cache_updates:
            cache = update.get_input(0).name
            for layer in self.raw:
                if layer.name == update.name:
                    continue
                read = [layer.get_input(index) for index in range(layer.num_inputs)]
                if any(tensor is not None and tensor.name == cache for tensor in read):
                    return (
                        f"the layer {update.name} writes into its cache while the engine runs, and the layer "
                        f"{layer.name} reads the same cache: use the result of the first one"
                    )
        return ""

    def _check(self, new: _NewLayer, log: ErrorLog) -> None:
        """Raises a ``ConversionError`` for a layer that TensorRT finds invalid with all of its attributes."""
        outputs = [new.layer.get_output(index) for index in range(new.layer.num_outputs)]
        self._keep(outputs)
        for output in outputs:
            try:
                tuple(output.shape)
            except ValueError as error:  # there is no shape of what is invalid
                raise ConversionError(
                    f"{describe()} refused the {new.call}: {log.text()}"
                ) from error

    def _unique(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        unique = name if count == 1 else f"{name}#{count}"
        if unique in self._names:
            return self._unique(name)
        self._names.add(unique)
        return unique

    def _checked(self, method: str, add: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a method of the network that names its layer, and raises where TensorRT refuses it."""
        kind = method.removeprefix("add_")

        @functools.wraps(add)
        def checked(*args: Any, **kwargs: Any) -> Any:
            """Adds the layer, names it, and returns it."""
            with ErrorLog() as log:
                layer = add(*args, **kwargs)
            call = f"{kind} over ({_describe(args, kwargs)})"
            if layer is None:
                raise ConversionError(
                    f"{describe()} refused the {call}: {log.text()}{self._advice(args, kwargs)}"
                )
            if method == "add_input" and not hasattr(layer, "num_outputs"):
                return layer  # a tensor: the network's input
            name = layer.name = self._unique("/".join((*self._scope, kind)))
            if kind == "kv_cache_update":
                self._cache_updates.append(layer)
            if kind in ("loop", "if_conditional"):
                return _CheckedScope(self, layer)
            if self._description and hasattr(layer, "metadata"):
                layer.metadata = self._description
            self._new.append(_NewLayer(layer, name, call))
            return layer

        return checked

    def _advice(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Returns what to do if an argument is a tensor of another network."""
        tensors = [
            leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, trt.ITensor)
        ]
        return "" if all(map(self.owns, tensors)) else f" {FOREIGN}"


class _CheckedScope:
    """A loop or a conditional of a checked network."""

    def __init__(self, network: CheckedNetwork, scope: Any) -> None:
        object.__setattr__(self, "_network", network)
        object.__setattr__(self, "_raw", scope)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._raw, name)
        if name.startswith("add_") or name == "set_condition":
            return self._network._checked(name.removeprefix("set_"), value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._raw, name, value)


def _describe(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parts = []
    for value in (*args, *kwargs.values()):
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            parts.append(f"{getattr(value.dtype, 'name', value.dtype)} {_shape(value)}")
        elif isinstance(value, (bool, int, float, str, tuple, list)):
            parts.append(repr(value))
    return ", ".join(parts)


def _shape(tensor: Any) -> str:
    try:
        return str(list(tensor.shape))
    except ValueError:  # TensorRT has no shape for what it finds invalid
        return "of no valid shape"
