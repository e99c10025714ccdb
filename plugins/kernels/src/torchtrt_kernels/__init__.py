"""Kernels of PyTorch ops as layers of engines.

``ConverterPack.plugin`` registers an op here. A call of it becomes data that a plan keeps, and ``tensorrt_plugins``
makes TensorRT's plugin of these data.
"""

from torchtrt_kernels.compiled_kernels import CompiledKernel
from torchtrt_kernels.operators import PluginKey, PluginOp
from torchtrt_kernels.registering import register_kernel

__all__ = ["CompiledKernel", "PluginKey", "PluginOp", "register_kernel"]
