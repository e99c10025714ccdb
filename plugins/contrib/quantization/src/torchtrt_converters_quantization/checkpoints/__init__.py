"""Checkpoints that are quantized already, as models whose weights stay packed.

``packed`` replaces the quantized layers of a model of transformers. ``packed_checkpoints`` lets transformers load such
a model on a machine that has no GPU, or without the library that made the checkpoint.
"""

from torchtrt_converters_quantization.checkpoints.layers import DynamicInput, PackedLinear
from torchtrt_converters_quantization.checkpoints.loading import packed_checkpoints
from torchtrt_converters_quantization.checkpoints.replacement import packed

__all__ = ["DynamicInput", "PackedLinear", "packed", "packed_checkpoints"]
