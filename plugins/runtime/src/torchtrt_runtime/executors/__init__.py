"""Ways to run the graph of a compiled model: op by op, with Inductor's code between engines, as a CUDA graph."""

from torchtrt_runtime.executors.plain import Executor, PlainExecutor

__all__ = ["Executor", "PlainExecutor"]
