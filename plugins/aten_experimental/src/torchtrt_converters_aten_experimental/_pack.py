"""Says who this pack is, and fills it."""

from torchtrt.packs import ConverterPack, hookimpl

pack = ConverterPack(
    "aten_experimental",
    api=(1, 0),
    summary="data-dependent operators, fused attention, new ideas",
    torch=">=2.9",
    tensorrt=">=8.6",
)


@hookimpl
def torchtrt_converter_pack() -> ConverterPack:
    """Returns the pack, still empty."""
    return pack


@hookimpl
def torchtrt_register_converters(pack: ConverterPack) -> None:
    """Imports the modules whose decorators fill the pack."""
    from torchtrt_converters_aten_experimental import attention, data_dependent  # noqa: F401
