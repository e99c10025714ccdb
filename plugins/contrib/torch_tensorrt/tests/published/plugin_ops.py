"""A plugin that TensorRT compiles from Python, as the upstream example of quickly deployable plugins makes one."""

# ruff: noqa

import torch
import torch_tensorrt

torch_tensorrt.dynamo.conversion.plugins.custom_op(
    "published::blend", supports_dynamic_shapes=True, requires_output_allocator=False
)
