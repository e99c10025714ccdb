"""Calls of a compiled model, captured as CUDA graphs and replayed.

A call of a small model is mostly launching: Python, TensorRT and the driver take longer than the GPU. A CUDA graph
launches all of it at once. It reads and writes the addresses that it was captured with, so three things need care:

- Inputs. A captured graph reads the caller's own memory where the caller keeps passing the same. An input that has
  moved is read from a buffer, into which each call copies. If it then stays at one place, as the inputs do that follow
  those of a warm-up, it is read there again, until it moves once more.
- Outputs. They are the captured graph's memory. If the caller holds the last call's outputs, or a view, the next call
  replays a second captured graph. If those are held as well, it replays a third, whose outputs are copied. With
  ``"overwrite"`` there is one captured graph, whose outputs each call overwrites.
- Everything else that a captured graph holds on to: engines, weights and buffers. Where one is another than it was, the
  captured graphs are dropped.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from torchtrt.callers import warn_caller
from torchtrt.graphs.nodes import writes
from torchtrt_runtime.checks.tensors import significant_strides
from torchtrt_runtime.executors import captured_graphs
from torchtrt_runtime.executors.capture_sources import Source, refusal_of
from torchtrt_runtime.executors.captured_graphs import CapturedGraph, CapturedShapes
from torchtrt_runtime.modules.execution import Executor
from torchtrt_runtime.torch_internals import device_in_use, is_capturing, stream_in_use

_SHAPES = 8
"""The maximum number of combinations of shapes that are captured for one stream; the longest unused goes first."""
_STREAMS = 8
"""The maximum number of streams that are captured for; on others the model runs as without."""
_CAPTURE_LOCK = threading.Lock()
"""PyTorch records one graph at a time."""
_MAX_LIVE_OUTPUTS = 2
"""The captured graphs of one combination whose outputs callers get; those of one more are copied."""


_capturing_streams: weakref.WeakValueDictionary[int, StreamCapture] = weakref.WeakValueDictionary()
"""The captured graphs in progress, by the handle of the stream. (Weak references to PyTorch's streams dangle.)"""


def _own_stream(device: torch.device, capture: StreamCapture) -> Any:
    """Returns a stream that no other code works on while it records.

    PyTorch hands out each of its 32 streams of a priority again and again; those of high priority go to few.
    """
    for _ in range(32):
        stream = torch.cuda.Stream(device, priority=-1)
        if stream.cuda_stream not in _capturing_streams:
            break
    _capturing_streams[stream.cuda_stream] = capture
    return stream


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keeps Python from freeing engines and captured graphs meanwhile: that ends whatever their thread captures."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class StreamCapture:
    """One stream of the caller's, and what is captured for it of one graph.

    Args:
        stream_key: The index of the device, and the handle of the stream.
        source: What is captured.
    """

    def __init__(self, stream_key: tuple[int, int], source: Source) -> None:
        self.stream_key, self.source = stream_key, source
        self.lock = threading.Lock()
        self.side = _own_stream(torch.device("cuda", stream_key[0]), self)
        self.entries: OrderedDict[Any, CapturedShapes] = OrderedDict()
        self.latest: CapturedShapes | None = None

    @staticmethod
    def place_of(leaves: Sequence[Any]) -> Any:
        """Returns the key of the caller's stream, or None where these inputs cannot be captured now."""
        index = -1
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                if not leaf.is_cuda:
                    return None
                index = leaf.get_device()
        if index < 0 or index != device_in_use() or is_capturing():
            return None
        return index, stream_in_use(index)

    def is_current(self) -> bool:
        """Returns whether the caller's stream is the one in use, and nothing is captured in it."""
        index, stream = self.stream_key
        return bool(
            device_in_use() == index and stream_in_use(index) == stream and not is_capturing()
        )

    @staticmethod
    def wait() -> None:
        """Waits for the GPU, which ends a capture that failed."""
        torch.cuda.synchronize()

    def run(self, function: Callable[[], Any], leaves: Sequence[Any]) -> Any:
        """Calls a function on the stream that captured graphs are made on, which makes everything ready for one."""
        current = torch.cuda.current_stream()
        self.side.wait_stream(current)
        with torch.cuda.stream(self.side):
            outputs = function()
        current.wait_stream(self.side)
        for tensors, stream in ((leaves, self.side), (outputs, current)):
            for tensor in tensors:
                if isinstance(tensor, Tensor):
                    tensor.record_stream(stream)
        return outputs

    def capture_graph(self, function: Callable[[], Any]) -> tuple[Callable[[], Any], Any]:
        """Returns what replays a function's work on the current stream, and the outputs that it writes to."""
        graph = torch.cuda.CUDAGraph()
        with (
            _CAPTURE_LOCK,
            _without_garbage_collection(),
            torch.cuda.graph(graph, stream=self.side, capture_error_mode="thread_local"),
        ):
            outputs = function()
        return graph.replay, outputs


class CudaGraphs(Executor):
    """Runs the graph of a compiled model, from a captured graph where it has been called with inputs like these before.

    Args:
        overwrites: Whether a call's results are where those of the last one are.
        capture: The class of what captures; for tests.
        inner: What runs a graph that is captured, or that cannot be.
    """

    captures = True

    def __init__(
        self, overwrites: bool = False, capture: Any = StreamCapture, inner: Executor | None = None
    ) -> None:
        self._overwrites, self._capture_class = overwrites, capture
        self.inner: Executor = Executor() if inner is None else inner
        self._lock = threading.Lock()
        self._reset(None)

    @property
    def failures(self) -> Sequence[str]:
        """Why Inductor could not compile fallback segments, each reason once."""
        return self.inner.failures

    def _reset(self, graph_module: GraphModule | None) -> None:
        self._captures: dict[Any, Any] = {}
        self._latest: Any = None
        self._writes, self.refusal = False, ""
        if graph_module is not None:
            self._writes = any(map(writes, graph_module.graph.nodes))
            self.refusal = refusal_of(graph_module)
        # Last: a thread that sees it looks for nothing else.
        self._source = Source(graph_module)
        self._refuse(self.refusal)

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        if reason:
            warn_caller(f"cuda_graphs: the model runs without, because {reason}.")

    def drop_calls(self) -> None:
        """Drops what is captured, and the addresses of inputs."""
        with self._lock:
            self._reset(None)

    def __deepcopy__(self, memo: Any) -> CudaGraphs:
        return CudaGraphs(self._overwrites, self._capture_class, copy.deepcopy(self.inner, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return CudaGraphs, (self._overwrites, StreamCapture, self.inner)

    def replay(self, graph_module: GraphModule, leaves: Sequence[Any], /) -> Sequence[Any] | None:
        """Returns what the graph returns for inputs like those of the last call, or None where that takes another look.

        They need not be checked before: what is captured was, with inputs of these sizes.
        """
        capture = self._latest
        if capture is None or capture.source.graph_module is not graph_module:
            return None
        if not capture.is_current():
            return None
        for leaf in leaves:
            if getattr(leaf, "is_nested", False):
                return None
        with capture.lock:
            entry = capture.latest
            if not entry.matches(*leaves) or capture.source.has_changed():
                return None
            return entry.replay(leaves, self._overwrites)  # type: ignore[no-any-return]

    def __call__(self, graph_module: GraphModule, leaves: Sequence[Any], /) -> Sequence[Any]:
        """Returns what the graph returns for these inputs."""
        stream_key = self._capture_class.place_of(leaves)
        if stream_key is None or any(map(_has_no_memory, leaves)):
            return self.inner(graph_module, leaves)
        source = self._source
        if source.graph_module is not graph_module or source.has_changed():
            with self._lock:
                self._reset(graph_module)
        if self.refusal:
            return self.inner(graph_module, leaves)
        capture = self._captures.get(stream_key) or self._new_capture(stream_key)
        if capture is None or capture.source.graph_module is not graph_module:  # replaced meanwhile
            return self.inner(graph_module, leaves)
        with capture.lock:
            outputs = self._run(capture, graph_module, leaves)
        with self._lock:
            if self._captures.get(stream_key) is capture:  # nothing has dropped it meanwhile
                self._latest = None if self.refusal else capture
        return outputs

    def _new_capture(self, stream_key: Any) -> Any:
        with self._lock:
            if stream_key not in self._captures and len(self._captures) < _STREAMS:
                self._captures[stream_key] = self._capture_class(stream_key, self._source)
            return self._captures.get(stream_key)

    def _run(self, capture: Any, graph_module: GraphModule, leaves: Sequence[Any]) -> Sequence[Any]:
        """Returns the graph's outputs, from a captured graph or from a first call that a later one records."""
        entry: CapturedShapes | None = capture.latest
        if entry is None or not entry.matches(*leaves):
            key = _key(leaves, capture.source.exact)
            entry = capture.entries.get(key)
            if entry is None:
                if self._writes and capture.entries:
                    self._refuse(
                        "it writes to its buffers, and is called with inputs of several shapes"
                    )
                    return self.inner(graph_module, leaves)
                return self._run_first(capture, key, graph_module, leaves)
            capture.entries.move_to_end(key)
            capture.latest = entry
        outputs = entry.replay(leaves, self._overwrites)
        if outputs is None:
            entry.note(leaves)
            outputs = entry.replay(leaves, self._overwrites)
        if outputs is not None:
            return outputs
        copies = not self._overwrites and (
            not captured_graphs.storage_use_count or len(entry.graphs) == _MAX_LIVE_OUTPUTS
        )
        if copies and entry.copied is not None:
            outputs = entry.copied.run(leaves, overwrites=True)
        if outputs is None:
            try:
                captured = self._capture(capture, graph_module, leaves, entry.moved)
            except _NotCapturedError as error:
                self._refuse(str(error))
                return self.inner(graph_module, leaves)
            entry.add(captured, copies)
            outputs = captured.run(leaves, overwrites=True)
        entry.count(leaves)
        return _cloned(outputs) if copies else outputs  # type: ignore[return-value]  # it was just captured

    def _run_first(
        self, capture: Any, key: tuple[Any, ...], graph_module: GraphModule, leaves: Sequence[Any]
    ) -> Sequence[Any]:
        """Runs the graph for inputs of new shapes, and keeps an entry for the calls that follow."""
        outputs: Sequence[Any] = capture.run(lambda: self.inner(graph_module, leaves), leaves)
        while len(capture.entries) >= _SHAPES:
            capture.entries.popitem(last=False)
        # Last: where that call failed, the next one is not captured, but has to make ready again.
        capture.entries[key] = capture.latest = CapturedShapes(leaves, capture.source.exact)
        return outputs

    def _capture(
        self, capture: Any, graph_module: GraphModule, leaves: Sequence[Any], moved: set[int]
    ) -> CapturedGraph:
        """Captures the graph anew.

        Raises:
            _NotCapturedError: The graph cannot be captured, or what is captured would return an input.
        """
        try:
            if len(capture.entries) > 1:
                # What TensorRT puts off when shapes change must be done before it is captured. A model that writes to
                # its buffers would write twice, and has one entry.
                capture.run(lambda: self.inner(graph_module, leaves), leaves)
            captured = CapturedGraph(
                capture, lambda read: self.inner(graph_module, read), leaves, moved
            )
        except RuntimeError as error:
            capture.wait()
            raise _NotCapturedError(f"it cannot be captured: {error}") from error
        if captured.returns_inputs:
            raise _NotCapturedError("a result is an input, or a view of one")
        return captured


class _NotCapturedError(Exception):
    """A graph is not captured; the text is the reason."""


def _cloned(outputs: Sequence[Any] | None) -> list[Any]:
    assert outputs is not None
    return [output.clone() if isinstance(output, Tensor) else output for output in outputs]


def _key(leaves: Sequence[Any], exact: Collection[int]) -> tuple[Any, ...]:
    """Returns what a captured graph depends on, but for addresses."""
    kinds = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, Tensor):
            strides = tuple(leaf.stride() if index in exact else significant_strides(leaf))
            leaf = leaf.shape, strides, leaf.dtype, leaf.is_neg(), leaf.is_conj()
        kinds.append(leaf)
    return *kinds, torch.is_inference_mode_enabled()


def _has_no_memory(leaf: Any) -> bool:
    """Returns whether a leaf is a tensor of zeros that takes no memory, as forward mode has them."""
    return isinstance(leaf, Tensor) and leaf._is_zerotensor()
