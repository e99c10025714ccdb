"""Fake quantization, as models trained or calibrated for int8 contain it, as Quantize and Dequantize layers."""

from torchtrt.packs import ConverterPack

pack = ConverterPack(
    "quantization",
    api=(1, 0),
    summary="fake quantization as Quantize and Dequantize layers",
    torch=">=2.9",
    tensorrt=">=8.6",
    modules=("ops", "converters", "passes", "exporting"),
)
