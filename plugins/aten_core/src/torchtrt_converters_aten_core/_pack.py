"""The entry point: who this pack is, and which folders of modules fill it."""

from torchtrt.packs import ConverterPack, hookimpl, import_modules

pack = ConverterPack(
    "aten_core",
    api=(1, 0),
    summary="ATen, prims and Python operators",
    torch=">=2.9",
    tensorrt=">=8.6",
)


@hookimpl
def torchtrt_converter_pack() -> ConverterPack:
    """Returns this pack."""
    return pack


@hookimpl
def torchtrt_register_converters() -> None:
    """Imports the modules whose decorated functions are this pack's converters, decompositions and passes."""
    for folder in ("converters", "decompositions", "exporting", "passes"):
        import_modules(f"{__package__}.{folder}")
