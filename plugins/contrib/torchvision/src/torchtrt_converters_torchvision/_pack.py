"""The entry point: who this pack is, and which folders of modules fill it."""

from torchtrt.packs import ConverterPack, hookimpl, import_modules

pack = ConverterPack(
    "torchvision",
    api=(1, 0),
    summary="torchvision's operators for detection",
    torch=">=2.9",
    tensorrt=">=8.6",
)


@hookimpl
def torchtrt_converter_pack() -> ConverterPack:
    """Returns the pack, still empty."""
    return pack


@hookimpl
def torchtrt_register_converters() -> None:
    """Imports the modules whose decorators fill the pack."""
    import_modules(f"{__package__}.converters")
    import_modules(f"{__package__}.decompositions")
