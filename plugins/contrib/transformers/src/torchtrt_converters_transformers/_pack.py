"""The entry point: who this pack is, and which folder of modules fills it. Nothing here imports transformers."""

from torchtrt.packs import ConverterPack, hookimpl, import_modules

pack = ConverterPack(
    "transformers",
    api=(1, 0),
    summary="attention over a cache, for text generation with transformers",
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
    import_modules(f"{__package__}.decompositions")
    from torchtrt_converters_transformers.exporting import without_cache

    pack.while_exporting(without_cache)
