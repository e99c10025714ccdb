"""Ops whose own kernels run as layers of engines: which ops, one call of such an op, and the sizes of its results.

``ConverterPack.plugin`` registers an op; ``torchtrt.tensorrt.plugins`` makes TensorRT's plugin of a call.
"""
