"""Facts about an FX graph for passes, converters and the compiler: its nodes, its symbols, its memory."""

from torchtrt.graphs.nodes import inner_graphs, model_line, resolution_of, writes
from torchtrt.graphs.symbols import no_new_assumptions, same_for_all_answers, shape_env_of

__all__ = [
    "inner_graphs",
    "model_line",
    "no_new_assumptions",
    "resolution_of",
    "same_for_all_answers",
    "shape_env_of",
    "writes",
]
