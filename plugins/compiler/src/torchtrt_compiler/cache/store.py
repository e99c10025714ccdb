"""The engines of a cache, wherever their bytes are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from torch.fx import GraphModule

from torchtrt.errors import RefitError, TorchTRTError
from torchtrt.graphs.nodes import resolution_of
from torchtrt_compiler.cache.engines import BuiltEngine, EngineRequest
from torchtrt_compiler.cache.entries import ENGINE, packed, unpacked
from torchtrt_compiler.cache.key import engine_key
from torchtrt_compiler.cache.storage import Storage
from torchtrt_compiler.refit.refitting import engine_changes
from torchtrt_runtime.reports.report import BlockReport
from torchtrt_runtime.serialization.engine_metadata import (
    check_description,
    describe_engine,
    load_engine,
)
from torchtrt_runtime.weights.recipe import digest


class EngineCache:
    """The engines in a storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def get_or_build(
        self,
        request: EngineRequest,
        build: Callable[[], BuiltEngine],
        waits: bool = True,
    ) -> BuiltEngine:
        """Returns a block's engine and its line in the report: those that were kept, or what ``build`` returns.

        An engine that was kept with other values of its replaceable weights gets the block's own.

        Args:
            request: The block.
            build: Builds the engine.
            waits: Whether to wait for another process that builds it.

        Raises:
            BeingBuiltError: Another process builds it, and this one does not wait.
        """
        key = engine_key(request)
        if key is None:
            return build()
        weights = {name: digest(tensor) for name, tensor in request.replaceable.items()}
        try:
            engine = self._read(request, key, weights)
        except OSError as error:  # another user may own the file: it stays as it is
            self.storage.warn(error)
            return build()
        if engine is None:
            with self.storage.lock(key[:2], waits) as may_be_there:
                engine = self._read_again(request, key, weights) if may_be_there else None
                if engine is None:
                    engine = build()
                    self._keep(key, engine, weights)
        return engine

    def _read_again(
        self, request: EngineRequest, key: str, weights: Mapping[str, str]
    ) -> BuiltEngine | None:
        """Returns an engine that another process may have built meanwhile."""
        try:
            return self._read(request, key, weights)
        except OSError:
            return None

    def _read(
        self, request: EngineRequest, key: str, weights: Mapping[str, str]
    ) -> BuiltEngine | None:
        """Returns a kept engine, for a block of its own names and weights.

        Args:
            request: The block.
            key: Its key.
            weights: The digests of its replaceable weights.

        Returns:
            None if there is no such engine, or if values of its weights are compiled into it. A damaged entry, or one
            of another key, is discarded.

        Raises:
            OSError: The storage cannot be read.
        """
        entry = self.storage.load(f"{key}{ENGINE}")
        if entry is None:
            return None
        name, block = request.name, request.block
        try:
            header, plan = unpacked(entry)
            if header["key"] != key:
                raise ValueError("the engine of another key")
            description = check_description(header["engine"])
            report = BlockReport(**{**header["report"], "name": name, "cached": True})
            description = {**description, "name": name, "converted_by": _converted_by(block)}
            engine = load_engine(description, plan[: description["plan_bytes"]])
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
        except RefitError:
            return None
        except (ValueError, KeyError, TypeError, TorchTRTError) as error:
            self.storage.discard(f"{key}{ENGINE}", f"unusable: {type(error).__name__}: {error}")
            return None
        return BuiltEngine(engine, report)

    def _keep(self, key: str, built: BuiltEngine, weights: Mapping[str, str]) -> None:
        """Keeps an engine."""
        engine, report = built
        header = {
            "key": key,
            "engine": describe_engine(engine),
            "report": asdict(report),
            "weights": weights,
        }
        try:
            self.storage.save(f"{key}{ENGINE}", packed(header, engine.plan))
        except OSError as error:
            self.storage.warn(error)


def _converted_by(block: GraphModule) -> dict[str, str]:
    """Returns for each node of a block the pack and version that converted it."""
    resolutions = {node.name: resolution_of(node) for node in block.graph.nodes}
    return {
        name: resolution.chosen.pack.label
        for name, resolution in resolutions.items()
        if resolution is not None and resolution.chosen is not None
    }
