"""Says who this pack is, and fills it."""

from torchtrt.packs import ConverterPack, hookimpl

pack = ConverterPack(
    "quantization",
    api=(1, 0),
    summary="fake quantization as Quantize and Dequantize layers",
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
    from torchtrt_converters_quantization import fake_quantize  # noqa: F401
