"""The one place that distinguishes TensorRT versions.

``trt`` forwards every name to the TensorRT in use. That is the installed ``tensorrt`` module on a machine
with an NVIDIA GPU, or an implementation such as the reference TensorRT anywhere. Converters write
``trt.ActivationType.RELU`` inside their bodies, never at module level, where it would be bound to one version.
``add_cast`` and ``propagate_float16`` add what the versions spell differently.
``supports(Capability.ATTENTION)`` returns whether the TensorRT in use has a capability.
"""

from torchtrt.capability import Capability
from torchtrt.tensorrt.dtypes import (
    INT4,
    dtype_name,
    engine_dtype,
    has_dtype,
    to_torch_dtype,
    to_trt_dtype,
)
from torchtrt.tensorrt.probes import capability_table, lacking, supports
from torchtrt.tensorrt.selection import describe, is_real, trt, use_tensorrt, version
from torchtrt.tensorrt.shims import add_cast, propagate_float16

__all__ = [
    "INT4", "Capability", "add_cast", "capability_table", "describe", "dtype_name", "engine_dtype", "has_dtype",
    "is_real", "lacking", "propagate_float16", "supports", "to_torch_dtype", "to_trt_dtype", "trt", "use_tensorrt",
    "version",
]  # fmt: skip
