"""Only the converter of a plugin that the library registered itself."""

# ruff: noqa

from torch_tensorrt.dynamo.conversion.plugins import generate_plugin_converter

generate_plugin_converter("published::blend", supports_dynamic_shapes=True)
