"""The one place that distinguishes TensorRT versions.

``trt`` forwards every name to the TensorRT in use. That is the installed ``tensorrt`` module on a machine
with an NVIDIA GPU, or an implementation such as the reference TensorRT anywhere. Converters write
``trt.ActivationType.RELU`` inside their bodies, never at module level, where it would be bound to one version.
Where the versions differ, they call the shims in ``torchtrt.tensorrt.shims``.
``supports(Capability.ATTENTION)`` returns whether the TensorRT in use has a capability.
"""

from torchtrt.capability import Capability
from torchtrt.tensorrt.dtypes import has_dtype, to_torch_dtype, to_trt_dtype
from torchtrt.tensorrt.probes import capability_table, lacking, supports
from torchtrt.tensorrt.selection import is_real, trt, use_tensorrt, version

__all__ = [
    "Capability", "capability_table", "has_dtype", "is_real", "lacking", "supports",
    "to_torch_dtype", "to_trt_dtype", "trt", "use_tensorrt", "version",
]  # fmt: skip
