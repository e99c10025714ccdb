"""The pack, which the entry point names. Nothing here imports transformers."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "transformers",
    api=(1, 0),
    summary="attention over a cache and mixtures of experts of transformers",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("decompositions", "exporting", "followed", "limits"),
)
