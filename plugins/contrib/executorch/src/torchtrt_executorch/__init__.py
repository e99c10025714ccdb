"""Models that torchtrt compiled in files of ExecuTorch, with their engines as delegates."""

from torchtrt.lazy import lazy_names

_LAZY = {"torchtrt_executorch.lowering": ["lower"]}  # they import ExecuTorch
__getattr__, __dir__ = lazy_names(globals(), _LAZY)

__all__ = ["lower"]
