"""Collectives of ``torch.distributed`` inside engines."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "distributed",
    api=(1, 0),
    summary="collectives of torch.distributed",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters",),
)
