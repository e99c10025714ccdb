"""Parallel models: collectives of ``torch.distributed`` inside engines, and rows divided among processes."""

from torchtrt_blocks.registration import CheckedPack

pack = CheckedPack(
    "distributed",
    api=(1, 0),
    summary="collectives of torch.distributed, and asynchronous tensor parallelism",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "passes"),
)
