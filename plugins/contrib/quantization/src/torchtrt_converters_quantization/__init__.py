"""Fake quantization, as models trained or calibrated for int8 contain it, as Quantize and Dequantize layers."""
