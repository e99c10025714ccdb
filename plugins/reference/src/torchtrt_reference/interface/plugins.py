"""Plugins and parsers, which surround a network and which the reference does not implement.

Creators can be registered and found, so that code which looks for plugins runs. No plugin is executed and no model is
parsed: the layers that plugins make are refused when they are added, and parsers cannot be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from torchtrt_reference.implementation import Implementation
from torchtrt_reference.interface.options import Interface


class PluginField(Implementation):
    """A named array that a plugin is made from."""

    _implements = ("PluginField",)

    def __init__(self, name: str = "", data: Any = None, type: Any = None) -> None:
        self._name = name
        self._data = np.empty(0, np.int8) if data is None else np.asarray(data)
        self._type = self._trt.PluginFieldType.UNKNOWN if type is None else type
        self._size = self._data.size

    @property
    def name(self) -> str:
        """The field's name."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = value

    @property
    def data(self) -> Any:
        """The field's values."""
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = np.asarray(value)
        self._size = self._data.size

    @property
    def type(self) -> Any:
        """The type of one value."""
        return self._type

    @type.setter
    def type(self, value: Any) -> None:
        self._type = value

    @property
    def size(self) -> int:
        """The number of values."""
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        self._size = value


class Collection(Implementation, list[Any]):
    """A list of fields, indices or expressions."""

    _implements = (
        "DimsExprs",
        "ISymExprs",
        "NodeIndices",
        "PluginFieldCollection",
        "PluginFieldCollection_",
        "SubGraphCollection",
    )

    @property
    def nbSymExprs(self) -> int:
        """The number of expressions."""
        return len(self)

    @nbSymExprs.setter
    def nbSymExprs(self, value: int) -> None:
        self[:] = (self + [None] * value)[:value]


class PluginRegistry(Implementation):
    """The creators that a program registers. There are none of a library's."""

    _implements = ("IPluginRegistry",)
    _stored: ClassVar[Mapping[str, Any]] = {"error_recorder": None, "parent_search_enabled": True}

    def _initialize(self) -> None:
        self._values: dict[str, Any] = {}
        self._creators: dict[tuple[str, str, str], Any] = {}

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Adds a creator; returns whether there was none of its name, version and namespace."""
        key = (creator.name, creator.plugin_version, plugin_namespace)
        if key in self._creators:
            return False
        self._creators[key] = creator
        return True

    def deregister_creator(self, creator: Any) -> bool:
        """Removes a creator; returns whether it was registered."""
        before = len(self._creators)
        self._creators = {
            key: registered
            for key, registered in self._creators.items()
            if registered is not creator
        }
        return len(self._creators) < before

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """Returns a creator, None if there is none of this name, version and namespace."""
        return self._creators.get((type, version, plugin_namespace))

    get_plugin_creator = get_creator

    @property
    def plugin_creator_list(self) -> list[Any]:
        """All creators."""
        return list(self._creators.values())

    all_creators = plugin_creator_list
    all_creators_recursive = plugin_creator_list

    def load_library(self, plugin_path: str) -> Any:
        """Returns the handle of a library of plugins; never one, the reference loads none."""
        message = f"The reference TensorRT loads no library of plugins, so {plugin_path!r} neither."
        raise NotImplementedError(message)

    def deregister_library(self, handle: Any) -> None:
        """Removes the plugins of a library: there are none."""

    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:  # noqa: ARG002
        """Returns a resource that plugins share: the one given, as no plugin runs."""
        return resource

    def release_plugin_resource(self, key: str) -> int:  # noqa: ARG002
        """Gives a shared resource back; returns 0."""
        return 0


class Parser(Interface):
    """A parser of models, which the reference does not have."""

    _implements = (
        "CaffeParser",
        "OnnxParser",
        "OnnxParserRefitter",
        "UffParser",
    )

    def __init__(self, *arguments: Any, **named: Any) -> None:
        message = (
            f"The reference TensorRT has no {type(self).__name__}: it executes networks and parses no models. "
            "Convert the PyTorch module instead."
        )
        raise NotImplementedError(message)


def functions(trt: Any) -> Mapping[str, Any]:
    """Returns the functions of a version that have to do with plugins and parsers, by name."""
    registry = trt.IPluginRegistry._made()

    def get_plugin_registry() -> Any:
        """Returns the registry of plugin creators."""
        return registry

    def get_builder_plugin_registry(arg0: Any) -> Any:
        """Returns the registry of plugin creators, whatever the capability."""
        return registry

    def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
        """Returns True, as if NVIDIA's plugins were registered, and logs that the reference has none."""
        if logger is not None:
            severity = trt.ILogger.Severity.__members__["WARNING"]
            logger.log(
                severity, f"The reference TensorRT has no plugins to register in {namespace!r}."
            )
        return True

    def get_nv_onnx_parser_version() -> int:
        """Returns the version of the ONNX parser: 0, there is none."""
        return 0

    def shutdown_protobuf_library() -> None:
        """Frees what parsers hold: nothing."""

    made: Sequence[Any] = (
        get_plugin_registry,
        get_builder_plugin_registry,
        init_libnvinfer_plugins,
        get_nv_onnx_parser_version,
        shutdown_protobuf_library,
    )
    return {function.__name__: function for function in made}
