"""Factorizations of small matrices, and systems of equations."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "linalg",
    api=(1, 0),
    summary="factorizations of small matrices",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("decompositions",),
)
