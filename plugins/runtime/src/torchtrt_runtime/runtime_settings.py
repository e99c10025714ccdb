"""How the runtime executes engines: whose memory they compute in, and the kernels of TensorRT for RTX.

TensorRT for RTX compiles kernels on the machine that runs an engine. These settings are no part of the engine, so a
compiled model takes others at any time, on whichever machine it runs.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchtrt.callers import warn_caller
from torchtrt.errors import CacheWarning, EngineError, SettingsError
from torchtrt.setting_kinds import INTEGER_OR_NONE, SWITCH
from torchtrt.settings import CompilationSettings, declarations
from torchtrt.stores import ByteStore, load_from, save_to
from torchtrt.tensorrt import Capability, lacking, supports, trt
from torchtrt.tensorrt.logging import ErrorLog, logger
from torchtrt.tensorrt.selection import describe

_SETTINGS = {
    "cache": "runtime_cache",
    "kernel_specialization": "kernel_specialization",
    "cuda_graphs": "cuda_graphs",
    "share_execution_memory": "share_execution_memory",
    "dla_core": "dla_core",
}
"""The setting of a compilation that each field is. The other fields are not settings of a compilation."""


@dataclass(frozen=True)
class RuntimeSettings:
    """How the runtime executes a compiled model. The first two attributes need TensorRT for RTX.

    Attributes:
        cache: The folder, or the ``torchtrt.ByteStore``, that keeps compiled kernels from one process to the next;
            ``None`` for no cache.
        kernel_specialization: When the runtime compiles kernels for the sizes of a call: ``"lazy"``, in the
            background; ``"eager"``, before the call; ``"none"``, never. ``None`` leaves TensorRT's default, ``"lazy"``.
        cuda_graphs: Replay calls on a GPU as CUDA graphs; with ``"overwrite"`` each over the last one's results. With
            ``"runtime"`` the runtime of TensorRT for RTX captures each engine itself.
        share_execution_memory: Whether engines compute in memory that PyTorch's allocator lends for one call at a time.
        overwrite_results: Whether engines write into the memory of the last call's results, even if the program holds
            them. It excludes CUDA graphs of PyTorch.
        dla_core: The core of a deep-learning accelerator (DLA) that runs the engines that were built for one.
        optimization_profile: The optimization profile that every call uses: the number of its range, from 0. ``None``
            uses the first one that fits.

    Raises:
        SettingsError: A value is unusable.
    """

    cache: str | os.PathLike[str] | ByteStore | None = None
    kernel_specialization: str | None = None
    cuda_graphs: bool | str = False
    share_execution_memory: bool = False
    overwrite_results: bool = False
    dla_core: int | None = None
    optimization_profile: int | None = None

    def __post_init__(self) -> None:
        """Checks each value."""
        for name, setting in _SETTINGS.items():
            declarations()[setting].kind.check(name, getattr(self, name))
        INTEGER_OR_NONE.check("optimization_profile", self.optimization_profile)
        SWITCH.check("overwrite_results", self.overwrite_results)
        if self.overwrite_results and self.cuda_graphs in (True, "overwrite"):
            raise SettingsError(
                f"overwrite_results=True excludes cuda_graphs={self.cuda_graphs!r}. "
                "cuda_graphs='overwrite' alone overwrites the results of captured calls."
            )

    @classmethod
    def of(cls, settings: CompilationSettings) -> RuntimeSettings:
        """Returns the settings of the runtime among those of a compilation."""
        return cls(**{name: getattr(settings, setting) for name, setting in _SETTINGS.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> RuntimeSettings:
        return (
            self  # which does not change, and may hold a store, which is no part of a copied model
        )

    @property
    def _captures(self) -> bool:
        """Whether the runtime captures each engine."""
        return self.cuda_graphs == "runtime"

    def check(self) -> None:
        """Checks that the TensorRT in use has what these settings need.

        Raises:
            SettingsError: It lacks a capability; the message names the setting and the TensorRT that has it.
        """
        asked = (
            (self.cache is not None, "runtime_cache", Capability.RUNTIME_CACHE),
            (
                self.kernel_specialization is not None,
                "kernel_specialization",
                Capability.KERNEL_SPECIALIZATION,
            ),
            (self._captures, "cuda_graphs='runtime'", Capability.CUDA_GRAPH_STRATEGY),
        )
        for is_asked, name, capability in asked:
            if is_asked and (problem := lacking(f"The setting {name}", capability)):
                raise SettingsError(f"{problem}.")
        if self.dla_core is not None and self.dla_core >= (
            count := trt.Runtime(logger()).num_DLA_cores
        ):
            raise SettingsError(
                f"The setting dla_core={self.dla_core} needs a DLA with this core, and {describe()} finds "
                f"{count or 'no'} such core{'s' * (count != 1)} here."
            )

    def new_context(self, engine: Any, plan: Any) -> Any:
        """Returns an execution context of an engine, configured by these settings.

        Args:
            engine: The deserialized engine.
            plan: Its plan, in any kind of buffer: it names the file of the cache.

        Raises:
            EngineError: The runtime refuses a setting.
        """
        configures = self._captures or (self.cache, self.kernel_specialization) != (None, None)
        if not configures and self.share_execution_memory:
            return _context_without_memory(engine)
        if not configures:
            return engine.create_execution_context()
        config = engine.create_runtime_config()
        if self.share_execution_memory:
            config.set_execution_context_allocation_strategy(
                trt.ExecutionContextAllocationStrategy.USER_MANAGED
            )
        if self.kernel_specialization is not None:
            strategies = trt.DynamicShapesKernelSpecializationStrategy
            config.dynamic_shapes_kernel_specialization_strategy = getattr(
                strategies, self.kernel_specialization.upper()
            )
        if self._captures:
            config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        cache = None if self.cache is None else KernelCache(self.cache, kernels_key(plan), config)
        with ErrorLog() as log:
            context = engine.create_execution_context(config)
        if context is None:
            raise EngineError(f"The runtime refuses {self}: {log.text()}")
        if cache is not None:
            _KEPT[context] = cache
            weakref.finalize(context, cache.save)  # at the end of the process at the latest
        return context

    def save_kernels(self, plan: Any) -> None:
        """Keeps the kernels that the runtime has compiled so far for the engine of a plan.

        Raises:
            SettingsError: These settings keep none.
        """
        if self.cache is None:
            raise SettingsError(
                "This model keeps no kernels. Give it runtime_cache when you compile it, or assign runtime_settings."
            )
        key = kernels_key(plan)
        for cache in list(_KEPT.values()):
            if cache.key == key and cache.where == self.cache:
                cache.save()


_KEPT: weakref.WeakKeyDictionary[Any, KernelCache] = weakref.WeakKeyDictionary()
"""The cache of each execution context, which ends with it."""


def kernels_key(plan: Any) -> str:
    """Returns the name of an engine's kernels: that of its plan, as each engine has kernels of its own."""
    checksum = zlib.crc32(memoryview(plan).cast("B"))
    return f"{checksum:08x}-{memoryview(plan).nbytes}.kernels"


class KernelCache:
    """The kernels that the runtime compiled for an engine, in a file or an entry of a store.

    The runtime refuses kernels of another TensorRT, GPU, driver or system; they are then replaced.

    Args:
        where: The folder, which need not exist, or the store.
        key: The name of the file, or the key.
        config: The ``IRuntimeConfig`` that takes the cache.

    Warns:
        CacheWarning: The kernels cannot be read or written. The engine runs without them.
    """

    def __init__(self, where: str | os.PathLike[str] | ByteStore, key: str, config: Any) -> None:
        self.where = where
        self.key = key
        self.cache = config.create_runtime_cache()
        self._lock = threading.Lock()
        stored = self._read()
        self._checksum = zlib.crc32(stored)
        if stored:
            with ErrorLog():  # a cache of another environment is no error
                self.cache.deserialize(stored)
        config.set_runtime_cache(self.cache)

    def _read(self) -> bytes:
        """Returns the kernels; nothing where there are none."""
        try:
            if isinstance(self.where, ByteStore):
                return load_from(self.where, self.key) or b""
            return Path(self.where, self.key).read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            self._warn(error)
            return b""

    def save(self) -> None:
        """Keeps the kernels that there are now, unless they were kept or refused before."""
        content = bytes(self.cache.serialize() or b"")
        with self._lock:
            if not content or zlib.crc32(content) == self._checksum:
                return
            self._checksum = zlib.crc32(content)
            try:
                if isinstance(self.where, ByteStore):
                    save_to(self.where, self.key, [content])
                else:
                    _replace(Path(self.where, self.key), content)
            except OSError as error:
                self._warn(error)

    def _warn(self, error: OSError) -> None:
        where = "" if isinstance(self.where, ByteStore) else f" in {os.fspath(self.where)}"
        warn_caller(
            f"Kernels cannot be kept{where}: {error}. The engine compiles them in each process. Assign another "
            "cache to runtime_settings of the compiled model, or make room.",
            CacheWarning,
        )


def _replace(file: Path, content: bytes) -> None:
    """Writes a file that is complete or absent at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(name, file)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _context_without_memory(engine: Any) -> Any:
    """Returns an execution context that computes in memory of the caller's."""
    if supports(Capability.ALLOCATION_STRATEGIES):
        return engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
    return engine.create_execution_context_without_device_memory()
