"""A quantizer for PyTorch's export quantization that quantizes what TensorRT computes in int8.

This module needs torchao, and is imported by nothing else of the pack.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver, PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
)

from torchtrt_converters_quantization.placement import PRODUCTS, quantized_inputs

_KEY = "quantization_annotation"


class TensorRTQuantizer(Quantizer):  # type: ignore[misc]  # torchao has no types
    """Annotates convolutions, linear layers, products of matrices and residual sums for int8.

    Inputs get one scale, for integers from -128 to 127. Weights get one for each output channel, for integers from
    -127 to 127. There are no zero points. If a convolution or a linear layer is added to another value, that value
    is quantized, so that TensorRT adds it in the kernel of the layer.

    Args:
        matrix_products: Quantize the operands of ``matmul`` and ``bmm`` too.
        histogram: Choose the scales of inputs by a histogram, which leaves outliers out; otherwise by their largest
            magnitude.
    """

    def __init__(self, *, matrix_products: bool = True, histogram: bool = False) -> None:
        super().__init__()
        self.matrix_products = matrix_products
        observer = HistogramObserver if histogram else MinMaxObserver
        self._input = QuantizationSpec(
            dtype=torch.int8,
            observer_or_fake_quant_ctr=observer.with_args(eps=2**-16),
            quant_min=-128,
            quant_max=127,
            qscheme=torch.per_tensor_symmetric,
        )
        self._weight = QuantizationSpec(
            dtype=torch.int8,
            observer_or_fake_quant_ctr=PerChannelMinMaxObserver.with_args(eps=2**-16),
            quant_min=-127,
            quant_max=127,
            qscheme=torch.per_channel_symmetric,
            ch_axis=0,
        )

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotates the nodes of a graph; ``prepare_pt2e`` calls it."""
        for node in model.graph.nodes:
            inputs = quantized_inputs(node, self.matrix_products)
            if inputs:
                weights = node.args[1:2] if node.target in PRODUCTS else ()
                node.meta[_KEY] = QuantizationAnnotation(
                    input_qspec_map={
                        input_: self._weight if input_ in weights else self._input
                        for input_ in inputs
                    },
                    _annotated=True,
                )
        return model

    def validate(self, model: GraphModule) -> None:
        """Accepts every graph."""
