"""Complex numbers as pairs of real numbers, and Fourier transforms."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "complex",
    api=(1, 0),
    summary="complex numbers and Fourier transforms",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("passes",),
)
