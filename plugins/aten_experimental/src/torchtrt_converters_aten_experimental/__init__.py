"""Converters that are new, need a recent TensorRT, or make outputs whose size depends on data."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "aten_experimental",
    api=(1, 0),
    summary="data-dependent ops, fused attention, new ideas",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("converters", "passes"),
)
