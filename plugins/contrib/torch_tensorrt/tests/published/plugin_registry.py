"""A plugin of TensorRT's registry, which a library that is loaded elsewhere put there."""

# ruff: noqa

import numpy as np
import tensorrt as trt
import torch
from torch_tensorrt.dynamo.conversion import ConversionContext, dynamo_tensorrt_converter
from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor
from torch_tensorrt.fx.converters.converter_utils import set_layer_name


@dynamo_tensorrt_converter(torch.ops.published.blend.default)
def blend(ctx: ConversionContext, target, args, kwargs, name):
    registry = trt.get_plugin_registry()
    creator = registry.get_plugin_creator(type="PublishedBlend", version="1", plugin_namespace="")
    assert creator, "Unable to find the creator of PublishedBlend"
    fields = trt.PluginFieldCollection(
        [trt.PluginField("share", np.array([args[2]], np.float32), trt.PluginFieldType.FLOAT32)]
    )
    plugin = creator.create_plugin(name=name, field_collection=fields)
    inputs = [
        get_trt_tensor(ctx, argument, f"{name}_{index}") for index, argument in enumerate(args[:2])
    ]
    layer = ctx.net.add_plugin_v2(inputs, plugin)
    set_layer_name(layer, target, name)
    return layer.get_output(0)
