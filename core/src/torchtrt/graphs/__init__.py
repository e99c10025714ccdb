"""Facts about an FX graph for passes, converters and the compiler: its nodes, its symbols, its memory."""

from torchtrt.expressions.bounds import size_bounds, symbol_bounds
from torchtrt.graphs.facts import ProgramFacts, facts_of
from torchtrt.graphs.memory import is_same_memory, storage_of
from torchtrt.graphs.nodes import (
    declares_alias,
    draws_random_numbers,
    inner_graphs,
    leave_in_torch,
    miss_layer,
    model_line,
    mutates,
    never_fold,
    put_into_group,
    resolution_of,
    writes,
)
from torchtrt.graphs.symbols import (
    no_new_assumptions,
    same_for_all_answers,
    shape_env_of,
    size_at,
    sizes_from_data,
)

__all__ = [
    "ProgramFacts",
    "declares_alias",
    "draws_random_numbers",
    "facts_of",
    "inner_graphs",
    "is_same_memory",
    "leave_in_torch",
    "miss_layer",
    "model_line",
    "mutates",
    "never_fold",
    "no_new_assumptions",
    "put_into_group",
    "resolution_of",
    "same_for_all_answers",
    "shape_env_of",
    "size_at",
    "size_bounds",
    "sizes_from_data",
    "storage_of",
    "symbol_bounds",
    "writes",
]
