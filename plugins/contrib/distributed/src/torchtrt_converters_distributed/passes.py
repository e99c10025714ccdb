"""The pass of the setting ``async_tensor_parallel``."""

from torch.fx import GraphModule

from torchtrt.settings import CompilationSettings
from torchtrt_converters_distributed import pack


@pack.lowering_pass(last=True)
def async_tensor_parallel(graph_module: GraphModule, settings: CompilationSettings) -> None:
    """Divides the rows around all-reduces among the processes."""
    if not settings.async_tensor_parallel:
        return
    # Symbolic sizes and collectives are slow to import, and few programs are parallel.
    from torchtrt.graphs import facts_of
    from torchtrt_converters_distributed.rows.division import find_division
    from torchtrt_converters_distributed.rows.rewriting import divide_rows

    facts = facts_of(graph_module)
    division, outcomes = find_division(graph_module, settings, facts.examples())
    facts.divided.extend(outcomes)
    if division is not None:
        facts.equal_weights.update(division.equal_weights)
        divide_rows(graph_module, division)
