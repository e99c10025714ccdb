"""From an exported program to a flat ATen graph in which every node has its resolution.

``lower`` runs the steps in order. ``program`` opens the exported program into a graph with its weights as
attributes. ``cleanup`` removes what computes nothing. ``constant_folding`` computes what depends on no input.
Packs' own passes run. ``decomposition`` looks up each node in the registry, and inlines a decomposition where
that helps. ``aliasing`` determines which tensors may share memory, and runs again when the blocks are engines. Before,
``regions`` flattens regions under ``torch.autocast``, and ``transforms`` applies ``torch.vmap``.
"""

from torchtrt_compiler.lowering.aliasing import clone_aliased_outputs
from torchtrt_compiler.lowering.cleanup import remove_no_ops
from torchtrt_compiler.lowering.constant_folding import fold_constants
from torchtrt_compiler.lowering.decomposition import decompose_added_ops, resolve_nodes
from torchtrt_compiler.lowering.pipeline import lower
from torchtrt_compiler.lowering.program import Program, open_program
from torchtrt_compiler.lowering.regions import without_regions
from torchtrt_compiler.lowering.strides import input_memory
from torchtrt_compiler.lowering.transforms import without_transforms

__all__ = [
    "Program",
    "clone_aliased_outputs",
    "decompose_added_ops",
    "fold_constants",
    "input_memory",
    "lower",
    "open_program",
    "remove_no_ops",
    "resolve_nodes",
    "without_regions",
    "without_transforms",
]
