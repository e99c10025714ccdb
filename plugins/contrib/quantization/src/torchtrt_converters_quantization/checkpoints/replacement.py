"""The layers of every library in a model, replaced."""

from __future__ import annotations

from torch import nn

from torchtrt_converters_quantization.checkpoints import compressed, fine_grained, words


def packed(model: nn.Module) -> nn.Module:
    """Replaces the quantized linear layers of a model by ``PackedLinear``, in place.

    It knows the layers of compressed-tensors, of ``FineGrainedFP8Config`` of transformers, and layers with the int32
    words of GPTQ and AWQ, of any library.

    Args:
        model: What ``from_pretrained`` of transformers returned, before its first call.

    Returns:
        The model.

    Raises:
        UnsupportedProgramError: A layer has a scheme that TensorRT has no format for. The message names both.
    """
    for path, module in list(model.named_modules()):
        for library in (compressed, fine_grained, words):
            layer = library.replacement(path, module)
            if layer is not None:
                owner, _, name = path.rpartition(".")
                setattr(model.get_submodule(owner), name, layer.eval())
                break
    compressed.forget_decompression(model)
    return model
