"""From an exported program to a flat ATen graph in which every node knows who converts it.

:func:`lower` runs the steps in order. :mod:`program` opens the exported program into a graph with its weights as
attributes. :mod:`cleanup` removes what computes nothing. :mod:`constant_folding` computes what depends on no input.
Packs' own passes run. :mod:`decomposition` asks the registry about each node, and inlines a decomposition where that
helps. :mod:`aliasing` knows which tensors may share memory, and has the last word when the blocks are engines. Before,
:mod:`regions` flattens regions under ``torch.autocast``, and :mod:`transforms` applies ``torch.vmap``.
"""

from torchtrt_compiler.lowering.aliasing import keep_results_apart
from torchtrt_compiler.lowering.cleanup import remove_no_ops
from torchtrt_compiler.lowering.constant_folding import fold_constants
from torchtrt_compiler.lowering.decomposition import decompose_added_ops, resolve_nodes
from torchtrt_compiler.lowering.pipeline import lower
from torchtrt_compiler.lowering.program import Program, open_program
from torchtrt_compiler.lowering.regions import without_regions
from torchtrt_compiler.lowering.transforms import without_transforms

__all__ = [
    "Program",
    "decompose_added_ops",
    "fold_constants",
    "keep_results_apart",
    "lower",
    "open_program",
    "remove_no_ops",
    "resolve_nodes",
    "without_regions",
    "without_transforms",
]
