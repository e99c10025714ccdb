"""Parallel models: collectives of ``torch.distributed`` inside engines, and rows divided among processes."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "distributed",
    api=(1, 0),
    summary="collectives of torch.distributed, and asynchronous tensor parallelism",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "passes"),
)
