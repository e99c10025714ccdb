"""``Runtime``: what loads plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from torchtrt_reference.graphs.plan import UnreadablePlanError, decode, read_all
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.reporting import report
from torchtrt_reference.running.plugins import create_plugins
from torchtrt_reference.semantics.tensor_facts import RefusedError


class Runtime(Implementation):
    """Loads plans.

    Attributes:
        torch_device: Where its engines execute. An extension of the reference: TensorRT always means a GPU.
    """

    _implements = ("Runtime",)
    _stored: ClassVar[Mapping[str, Any]] = {
        "DLA_core": -1,
        "num_DLA_cores": 0,
        "gpu_allocator": None,
        "error_recorder": None,
        "max_threads": 1,
        "temporary_directory": "",
        "tempfile_control_flags": 3,
        "engine_host_code_allowed": False,
        "dla_workspace_allocation_strategy": "DEFAULT",
    }

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self.torch_device = torch.device("cpu")
        self._values: dict[str, Any] = {}

    @property
    def logger(self) -> Any:
        """The logger that errors go to."""
        return self._logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> Any:
        """Returns the engine in a plan; None, with the reason logged, if the bytes are no plan of this version."""
        try:
            plan = _bytes_from(serialized_engine)
            description, owner = decode(plan, self._rules.version)
            has_code = description.settings.get("has_lean_runtime", False)
            if has_code and not self._values.get("engine_host_code_allowed", False):
                message = (
                    "The plan is version compatible, and has the runtime that executes it in it. Set "
                    "runtime.engine_host_code_allowed = True if you trust it."
                )
                raise UnreadablePlanError(message)
            create_plugins(self._trt, description.graph, self.torch_device)
        except (UnreadablePlanError, RefusedError) as error:
            report(self._logger, f"Error Code 1: Serialization ({error})", self)
            return None
        return self._trt.ICudaEngine._made(self, description, owner)

    def get_plugin_registry(self) -> Any:
        """Returns the registry of plugin creators."""
        return self._trt.get_plugin_registry()

    def load_runtime(self, path: str) -> Any:
        """Returns a runtime loaded from a lean-runtime library; the reference has none."""
        report(self._logger, f"The reference has no lean runtime to load from {path!r}.", self)
        return None


def _bytes_from(source: Any) -> Any:
    """The bytes of a plan: themselves, or what a stream reader gives."""
    if not hasattr(source, "read"):
        return source
    if hasattr(source, "seek"):
        return read_all(lambda size: bytes(source.read(size, 0)))  # on the default stream
    return read_all(lambda size: bytes(source.read(size)))
