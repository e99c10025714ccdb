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
    "cast",
    "convolution",
    "creation",
    "cumulation",
    "decompositions",
    "decompositions_of_matrices",
    "elementwise",
    "evaluators",
    "indexing",
    "matmul",
    "normalization",
    "padding",
    "pooling",
    "ranking",
    "reduction",
    "resizing",
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
