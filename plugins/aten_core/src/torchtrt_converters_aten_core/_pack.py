"""The entry point: who this pack is, and which modules fill it."""

from importlib import import_module

from torchtrt.packs import ConverterPack, hookimpl

pack = ConverterPack(
    "aten_core",
    api=(1, 0),
    summary="ATen, prims and Python operators",
    torch=">=2.9",
    tensorrt=">=8.6",
)

FAMILIES = (
    "activation",
    "attention",
    "bitwise",
    "cast",
    "control_flow",
    "complex_numbers",
    "convolution",
    "creation",
    "cumulation",
    "decompositions",
    "decompositions_of_indexing",
    "decompositions_of_matrices",
    "decompositions_of_pooling",
    "decompositions_of_prims",
    "decompositions_of_rankings",
    "decompositions_of_recurrences",
    "decompositions_of_sampling",
    "decompositions_of_special_functions",
    "elementwise",
    "embedding",
    "evaluators",
    "indexing",
    "matmul",
    "normalization",
    "padding",
    "pooling",
    "random",
    "ranking",
    "recurrent",
    "reduction",
    "resizing",
    "scatter",
    "shape",
    "slicing",
    "softmax",
    "symbolic",
    "unary",
)


@hookimpl
def torchtrt_converter_pack() -> ConverterPack:
    """Returns this pack."""
    return pack


@hookimpl
def torchtrt_register_converters() -> None:
    """Imports the modules whose decorated functions are this pack's converters."""
    for family in FAMILIES:
        import_module(f"torchtrt_converters_aten_core.{family}")
