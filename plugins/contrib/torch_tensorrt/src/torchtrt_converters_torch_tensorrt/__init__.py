"""Converters, decompositions and lowering passes that were written for Torch-TensorRT, unchanged.

``adopt`` puts those of a module into use, and ``adopt_torch_tensorrt`` those of the installed Torch-TensorRT.
"""

from torchtrt.lazy import lazy_names

__all__ = ["adopt", "adopt_torch_tensorrt"]

_LAZY = {"torchtrt_converters_torch_tensorrt.adoption": ("adopt", "adopt_torch_tensorrt")}

__getattr__, __dir__ = lazy_names(globals(), _LAZY)
