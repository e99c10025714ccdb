"""torchvision's ops for detection: non-maximum suppression, pooling of regions, deformable convolution."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "torchvision",
    api=(1, 0),
    summary="torchvision's ops for detection",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "decompositions", "passes"),
)
