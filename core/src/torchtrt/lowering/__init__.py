"""From an exported program to a flat ATen graph in which every node knows who converts it.

The steps, in order: :mod:`program` opens the exported program into a graph with its weights as attributes,
:mod:`cleanup` removes what computes nothing, :mod:`constant_folding` computes what depends on no input, packs' own
passes run, and :mod:`decomposition` asks the registry about each node, inlining a decomposition where that helps.
:mod:`aliasing` knows which tensors may share memory, and has the last word when the blocks are engines.
"""

from torchtrt.lowering.aliasing import keep_results_apart
from torchtrt.lowering.cleanup import remove_no_ops
from torchtrt.lowering.constant_folding import fold_constants
from torchtrt.lowering.decomposition import inner_graphs, resolution_of, resolve_nodes
from torchtrt.lowering.program import Program, open_program
from torchtrt.lowering.symbols import no_new_assumptions, shape_env_of

__all__ = [
    "Program", "fold_constants", "inner_graphs", "keep_results_apart", "no_new_assumptions",
    "open_program", "remove_no_ops", "resolution_of", "resolve_nodes", "shape_env_of",
]  # fmt: skip
