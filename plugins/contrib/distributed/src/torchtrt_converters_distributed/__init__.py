"""Collectives of ``torch.distributed`` inside engines."""

from torchtrt_blocks.registration import CheckedPack

pack = CheckedPack(
    "distributed",
    api=(1, 0),
    summary="collectives of torch.distributed",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters",),
)
