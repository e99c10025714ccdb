"""Decides which nodes go to TensorRT, and groups them into blocks.

``blocks`` assigns every node a side and a level. ``division`` divides what is too large for one engine. ``extract``
rebuilds the graph with one submodule per block.
"""

from torchtrt_compiler.partitioning.blocks import NOT_COMPUTED, Partition, TorchNode
from torchtrt_compiler.partitioning.division import partition_nodes
from torchtrt_compiler.partitioning.extract import extract_blocks

__all__ = ["NOT_COMPUTED", "Partition", "TorchNode", "extract_blocks", "partition_nodes"]
