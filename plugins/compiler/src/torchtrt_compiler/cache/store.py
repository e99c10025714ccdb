"""A folder of engines that many processes read and write at once.

An engine is one file, named by its key, that appears complete. Its age is the time when it was last used. A build
holds a lock, so that other processes wait and find the engine there. A process that dies releases it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from filelock import FileLock, Timeout
from torch.fx import GraphModule

from torchtrt.callers import warn_caller
from torchtrt.errors import CacheWarning, RefitError, SettingsError, TorchTRTError
from torchtrt.graphs.nodes import resolution_of
from torchtrt.setting_kinds import SWITCHES
from torchtrt.tensorrt import Capability, selection, supports
from torchtrt_compiler.cache.engines import (
    FOLDER_VARIABLE,
    BeingBuiltError,
    BuiltEngine,
    EngineRequest,
)
from torchtrt_compiler.cache.files import UNFINISHED, open_regular, write_complete
from torchtrt_compiler.cache.key import engine_key
from torchtrt_compiler.refit.refitting import engine_changes
from torchtrt_runtime.reports.report import BlockReport
from torchtrt_runtime.serialization.engine_metadata import (
    buffer_of,
    check_description,
    describe_engine,
    load_engine,
)
from torchtrt_runtime.weights.recipe import digest

SIZE_VARIABLE = "TORCHTRT_CACHE_SIZE"
DEFAULT_LIMIT = 10 * 10**9

_MAGIC = b"TRTCACHE"
_PREFIX = struct.Struct("<8sIQ")  # magic, CRC-32 of the header, its length
_SUFFIX = ".engine"
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_ABANDONED_SECONDS = 24 * 3600


@dataclass(frozen=True)
class CachedEngine:
    """A file of the cache.

    Attributes:
        key: The engine's key.
        tensorrt: The TensorRT that built it.
        gpu: The GPU that it was built on.
        nodes: How many calls of a graph it computes.
        bytes: The size of the file.
        used: When it was last used, in seconds since 1970.
    """

    key: str
    tensorrt: str
    gpu: str
    nodes: int
    bytes: int
    used: float


def open_cache(where: bool | str | os.PathLike[str]) -> EngineCache:
    """Returns the cache in a folder; ``True`` stands for the default one.

    Raises:
        SettingsError: ``TORCHTRT_CACHE_SIZE`` is no size.
    """
    folder = default_folder() if isinstance(where, bool) else Path(where)
    return EngineCache(folder.expanduser(), size_limit())


def default_folder() -> Path:
    """Returns the folder that ``TORCHTRT_CACHE`` names, or the one that belongs to this user's caches."""
    named = os.environ.get(FOLDER_VARIABLE, "")
    is_folder = named.lower() not in SWITCHES
    return Path(named) if is_folder else platformdirs.user_cache_path("torchtrt")


def size_limit() -> int:
    """Returns how many bytes a cache may have: ``TORCHTRT_CACHE_SIZE``, or 10 GB.

    Raises:
        SettingsError: The variable holds no size.
    """
    text = os.environ.get(SIZE_VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    parsed = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text, re.IGNORECASE)
    if parsed is None:
        message = f"{SIZE_VARIABLE}={text!r} is no size. Write bytes, or a number with a unit: 500MB, 20GB."
        raise SettingsError(message)
    return int(float(parsed[1]) * _UNITS[parsed[2].lower()])


class EngineCache:
    """The engines in a folder.

    Args:
        folder: The folder. It is made when something is kept.
        limit: How many bytes the engines may have together. The least recently used ones go first.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def get_or_build(
        self,
        request: EngineRequest,
        build: Callable[[], BuiltEngine],
        waits: bool = True,
    ) -> BuiltEngine:
        """Returns a block's engine and its line in the report: those that were kept, or what ``build`` returns.

        An engine that was kept with other values of its replaceable weights gets the block's own. The arguments and the
        errors are those of ``EngineStore.get_or_build``.
        """
        key = engine_key(request)
        if key is None or not self._is_usable(self._path(key)):
            return build()
        weights = {name: digest(tensor) for name, tensor in request.replaceable.items()}
        engine = self._read(request, key, weights)
        if engine is None:
            with self._lock(key[:2], waits):
                # Another process may have built it meanwhile.
                engine = self._read(request, key, weights)
                if engine is None:
                    engine = build()
                    self._keep(key, engine, weights)
        return engine

    def entries(self) -> list[CachedEngine]:
        """Returns the engines, those used last first."""
        engines = []
        for path in self.folder.glob(f"engines/*{_SUFFIX}"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, TorchTRTError):
                status = path.stat()
                with open_regular(path) as stream:
                    header = _read_header(stream)
                engine, nodes = header["engine"], header["report"]["nodes"]
                engines.append(
                    CachedEngine(
                        path.stem,
                        engine["tensorrt"],
                        engine["gpu"],
                        nodes,
                        status.st_size,
                        status.st_mtime,
                    )
                )
        return sorted(engines, key=lambda entry: (-entry.used, entry.key))

    def clear(self) -> int:
        """Removes all engines and timings, and returns how many bytes they had."""
        freed = 0
        for path in (*self.folder.glob("engines/*"), *self.folder.glob("timings/*")):
            with contextlib.suppress(OSError):
                size = path.stat().st_size
                path.unlink()
                freed += size
        return freed

    def use_timings(self, config: Any) -> None:
        """Gives TensorRT the kernels' timings of earlier builds."""
        if supports(Capability.TIMING_CACHE):
            with self._warning():
                timings = config.create_timing_cache(self._read_timings())
                if timings is not None:
                    config.set_timing_cache(timings, ignore_mismatch=False)

    def keep_timings(self, config: Any) -> None:
        """Keeps the timings of a build, beside those that other processes kept meanwhile."""
        timings = config.get_timing_cache() if supports(Capability.TIMING_CACHE) else None
        if timings is None:
            return
        with self._warning(), self._lock("timings"):
            kept = self._read_timings()
            others = config.create_timing_cache(kept) if kept else None
            if others is not None:
                timings.combine(others, ignore_mismatch=False)
            write_complete(self._timings(), [timings.serialize()])
            self._sweep("timings")

    def _timings(self) -> Path:
        what = f"{selection.describe()} {selection.describe_gpu()}"
        return self.folder / "timings" / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.timings"

    def _read_timings(self) -> bytes:
        """Returns the kept timings, or none."""
        try:
            with open_regular(self._timings()) as stream:
                return stream.read()
        except FileNotFoundError:
            return b""

    def _path(self, key: str) -> Path:
        return self.folder / "engines" / f"{key}{_SUFFIX}"

    def _is_usable(self, path: Path) -> bool:
        """Returns whether a file can be read if it exists; warns if it cannot, and another user may own it."""
        try:
            with contextlib.suppress(FileNotFoundError), open_regular(path):
                pass
        except OSError as error:
            self._warn(error)
            return False
        return True

    def _read(
        self, request: EngineRequest, key: str, weights: Mapping[str, str]
    ) -> BuiltEngine | None:
        """Returns a kept engine, for a block of its own names and weights.

        Args:
            request: The block.
            key: Its key.
            weights: The digests of its replaceable weights.

        Returns:
            None if there is no such engine, or if values of its weights are compiled into it. A damaged file, or one of
            another key, is removed.
        """
        name, block = request.name, request.block
        path = self._path(key)
        try:
            with open_regular(path) as stream:
                header = _read_header(stream)
                if header["key"] != key:
                    raise ValueError("another engine")
                description = check_description(header["engine"])
                plan = np.fromfile(stream, np.uint8, description["plan_bytes"])
            report = BlockReport(**{**header["report"], "name": name, "cached": True})
            description = {**description, "name": name, "converted_by": _converted_by(block)}
            engine = load_engine(description, plan)
            if engine.stripped is not None:
                engine.stripped = engine.stripped.with_values(
                    {name: request.followed[name] for name in engine.followed_attributes}
                )
            digests = header["weights"]
            changed = [
                weight for weight, digest in weights.items() if digests.get(weight) != digest
            ]
            if changed:
                engine.reload(**engine_changes(engine, request.replaceable.__getitem__, changed))
        except (OSError, RefitError):
            return None
        except (ValueError, KeyError, TypeError, TorchTRTError):
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return BuiltEngine(engine, report)

    def _keep(self, key: str, built: BuiltEngine, weights: Mapping[str, str]) -> None:
        """Writes an engine into the folder, and removes the oldest ones beyond the limit of its size."""
        engine, report = built
        header = json.dumps(
            {
                "key": key,
                "engine": describe_engine(engine),
                "report": asdict(report),
                "weights": weights,
            }
        ).encode()
        prefix = _PREFIX.pack(_MAGIC, zlib.crc32(header), len(header))
        with self._warning():
            write_complete(self._path(key), [prefix, header, buffer_of(engine.plan)])
            with self._lock("limit"):
                self._evict()

    def _sweep(self, kind: str) -> None:
        """Removes what writers that died left behind."""
        for path in self.folder.glob(f"{kind}/*{UNFINISHED}"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    path.unlink()

    def _evict(self) -> None:
        """Removes what was used least recently beyond the limit, and what writers that died left behind."""
        self._sweep("engines")
        files = []
        for path in self.folder.glob(f"engines/*{_SUFFIX}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime, status.st_size, path))
        size = sum(size for _, size, _ in files)
        for _, bytes_, path in sorted(files):
            if size <= self.limit:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                size -= bytes_

    @contextlib.contextmanager
    def _lock(self, name: str, waits: bool = True) -> Iterator[None]:
        """Holds a lock among all processes and threads; goes on without where the folder has none.

        Raises:
            BeingBuiltError: Another one holds it, and this one does not wait.
        """
        with contextlib.ExitStack() as stack:
            try:
                folder = self.folder / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                path = str(folder / f"{name}.lock")
                timeout = -1 if waits else 0
                stack.enter_context(FileLock(path, timeout, thread_local=False))
            except Timeout as error:
                raise BeingBuiltError from error
            except (OSError, NotImplementedError) as error:
                self._warn(error)
            yield

    @contextlib.contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        warn_caller(
            f"Engines cannot be kept in {self.folder}: {error}. Compiling goes on without. Make room, allow this "
            "user to read and write there, remove what is in the way, or give another folder with engine_cache=... or "
            "TORCHTRT_CACHE.",
            CacheWarning,
        )


def _read_header(stream: Any) -> dict[str, Any]:
    """Returns the contents of a kept engine's header.

    Raises:
        ValueError: The file is truncated or damaged.
    """
    prefix = stream.read(_PREFIX.size)
    if len(prefix) != _PREFIX.size:
        raise ValueError("truncated")
    magic, checksum, length = _PREFIX.unpack(prefix)
    size = os.fstat(stream.fileno()).st_size
    header = stream.read(length) if length <= size else b""
    if magic != _MAGIC or zlib.crc32(header) != checksum:
        raise ValueError("damaged")
    data = json.loads(header)
    if not isinstance(data, dict):
        raise ValueError("damaged")
    return data


def _converted_by(block: GraphModule) -> dict[str, str]:
    """Returns for each node of a block the pack and version that converted it."""
    resolutions = {node.name: resolution_of(node) for node in block.graph.nodes}
    return {
        name: resolution.chosen.pack.label
        for name, resolution in resolutions.items()
        if resolution is not None and resolution.chosen is not None
    }
