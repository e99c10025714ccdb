"""How transformers loads quantized checkpoints with packed weights, whatever the machine has."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchtrt.errors import UnsupportedProgramError
from torchtrt_converters_quantization.checkpoints.layers import PackedLinear, refusal, unpacked
from torchtrt_converters_quantization.checkpoints.replacement import inconsistency, packed
from torchtrt_converters_quantization.checkpoints.words import awq_values, layer_of

_lock = threading.RLock()
_BITS = (2, 3, 4, 8)
_WORDS = ("qweight", "qzeros", "scales", "g_idx", "bias")


@contextlib.contextmanager
def packed_checkpoints() -> Iterator[None]:
    """Lets ``from_pretrained`` of transformers return models that ``packed`` has been applied to.

    Inside, transformers keeps the weights of FP8 checkpoints on a machine without a GPU, where it would return
    bfloat16. It loads checkpoints of GPTQ and AWQ without the library ``gptqmodel``. Threads take turns.

    Raises:
        UnsupportedProgramError: ``from_pretrained`` raises it for a layer that TensorRT has no format for, and for
            words of GPTQ or AWQ in another format.
    """
    from transformers.quantizers import auto

    with _lock:
        table = auto.AUTO_QUANTIZER_MAPPING
        kept = dict(table)
        table.update(_quantizers(kept))
        try:
            yield
        finally:
            table.clear()
            table.update(kept)


def _quantizers(base_classes: dict[str, Any]) -> dict[str, Any]:
    """Returns a quantizer of transformers for each kind of checkpoint, by its name in configurations."""
    from transformers.quantizers.base import HfQuantizer

    fine_grained, compressed = base_classes["fp8"], base_classes["compressed-tensors"]

    class Packed:
        """Replaces the layers once their weights are there."""

        quantization_config: Any

        def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> Any:
            super()._process_model_after_weight_loading(model, **kwargs)  # type: ignore[misc]
            check_tensors(model)
            return packed(model)

    class FineGrained(Packed, fine_grained):  # type: ignore[misc, valid-type]
        """Needs no GPU: its layers are replaced before they run."""

        def validate_environment(self, *_: Any, **__: Any) -> None:
            """Accepts every machine."""

    class Compressed(Packed, compressed):  # type: ignore[misc, valid-type]
        """Gives packed zero points their shape, which compressed-tensors 0.20 does not pack on the device ``meta``."""

        def _process_model_before_weight_loading(self, model: nn.Module, **kwargs: Any) -> None:
            super()._process_model_before_weight_loading(model, **kwargs)
            for module in model.modules():
                _shape_zero_points(module)

    class Words(HfQuantizer):
        """Checkpoints of GPTQ and AWQ."""

        def _process_model_before_weight_loading(
            self, model: nn.Module, checkpoint_files: Sequence[str] = (), **_: Any
        ) -> None:
            prepare_words(model, checkpoint_files or (), self.quantization_config)

        def _process_model_after_weight_loading(self, model: nn.Module, **_: Any) -> Any:
            for path, module in list(model.named_modules()):
                if isinstance(module, WordsLinear):
                    model.set_submodule(path, module.layer(path).eval())
            return model

        def is_serializable(self) -> bool:
            """Returns that the words are gone."""
            return False

        @property
        def is_trainable(self) -> bool:
            """Whether the model can be trained."""
            return False

    return {
        "fp8": FineGrained,
        "compressed-tensors": Compressed,
        "gptq": Words,
        "awq": Words,
    }


def check_tensors(model: nn.Module) -> None:
    """Checks that a checkpoint had every tensor of its quantized layers.

    In the place of one that is missing, transformers leaves memory as it was.

    Raises:
        UnsupportedProgramError: Some are missing. The message names them.
    """
    for path, module in model.named_modules():
        is_quantized = getattr(module, "quantization_scheme", None) is not None
        if not is_quantized and type(module).__name__ != "FP8Linear":
            continue
        missing = [
            name
            for name, value in module.named_parameters(recurse=False)
            if not getattr(value, "_is_hf_initialized", False)
        ]
        if missing:
            raise UnsupportedProgramError(
                f"The checkpoint has no {' and no '.join(missing)} for the layer {path!r}, whose scheme needs it. "
                "Quantize the model again, with the scheme that the checkpoint's configuration names."
            )


def _shape_zero_points(module: nn.Module) -> None:
    zero = getattr(module, "weight_zero_point", None)
    if zero is None or getattr(module, "weight_packed", None) is None or zero.dtype is torch.int32:
        return
    own: Any = module
    rows = math.ceil(zero.shape[0] * own.quantization_scheme.weights.num_bits / 32)
    shaped = torch.empty((rows, *zero.shape[1:]), dtype=torch.int32, device=zero.device)
    own.weight_zero_point = nn.Parameter(shaped, requires_grad=False)


class WordsLinear(nn.Module):
    """The words of a linear layer, while a checkpoint is loaded.

    Args:
        kind: ``"gptq"``, ``"gptq_v2"`` or ``"awq"``. GPTQ's first format stores zero points less one.
        bits: How many a weight has.
        tensors: What the checkpoint has for the layer, on the device ``meta``.
    """

    def __init__(self, kind: str, bits: int, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        self.kind, self.bits = kind, bits
        self.weight = torch.empty(0)  # which some classes of transformers initialize
        for name in _WORDS:
            self.register_buffer(name, tensors.get(name))

    def layer(self, path: str) -> PackedLinear:
        """Returns the layer that computes with the weights."""
        own: Any = self
        words, zeros, scales = own.qweight, own.qzeros, own.scales
        if self.kind == "awq":
            values, points = awq_values(words, zeros)
        else:
            width = words.shape[0] * 32 // self.bits
            values = unpacked(words.t().contiguous(), self.bits, width)
            points = unpacked(zeros, self.bits, scales.shape[1]).t()
            points = points + 1 if self.kind == "gptq" else points
        made = layer_of(values, points, scales, self.bits, own.bias, own.g_idx)
        if made is None:
            raise refusal(path, "groups of different sizes")
        wrong = inconsistency(made)
        if wrong is not None:
            raise refusal(path, f"tensors that do not belong to its scheme ({wrong})")
        return made


def prepare_words(model: nn.Module, files: Sequence[str], config: Any) -> None:
    """Puts ``WordsLinear`` where a checkpoint has words.

    Args:
        model: On the device ``meta``.
        files: The checkpoint's files, of safetensors.
        config: ``GPTQConfig`` or ``AwqConfig`` of transformers.

    Raises:
        UnsupportedProgramError: The format is another, or the checkpoint has words that belong to no linear layer.
    """
    kind = _format(config)
    words: dict[str, dict[str, Tensor]] = {}
    for name, tensor in _descriptions(files):
        path, _, attribute = name.rpartition(".")
        if attribute in _WORDS:
            words.setdefault(path, {})[attribute] = tensor
    for path, tensors in words.items():
        if "qweight" not in tensors:
            continue
        try:
            module = model.get_submodule(path)
        except AttributeError:
            module = None
        if module is None or not hasattr(module, "weight"):
            raise refusal(path, "words of a layer that the model does not have")
        bits = 4 if kind == "awq" else _bits(path, module, tensors["qweight"], int(config.bits))
        model.set_submodule(path, WordsLinear(kind, bits, tensors))


def _bits(path: str, module: Any, words: Tensor, usual: int) -> int:
    """Returns the bits of a weight of GPTQ, which may be others than those of most layers.

    Args:
        path: The layer's name.
        module: The layer as the model has it: ``Linear``, or ``Conv1D`` of transformers, whose weight is transposed.
        words: The words of its weight, ``(words, out)``.
        usual: The bits that the configuration names.
    """
    width = module.weight.shape[1 if isinstance(module, nn.Linear) else 0]
    bits = len(words) * 32 // width if words.dtype is torch.int32 else 0
    if bits not in _BITS:
        raise refusal(
            path, f"{words.dtype} {tuple(words.shape)} for {width} inputs of {usual} bits"
        )
    return bits


def _format(config: Any) -> str:
    """Returns which layout the packed weights have: ``"gptq"``, ``"gptq_v2"`` or ``"awq"``.

    Raises:
        UnsupportedProgramError: The pack does not read this layout or number of bits.
    """
    method = getattr(config.quant_method, "value", config.quant_method)
    layout = getattr(config, "format", method)
    layout = str(getattr(layout, "value", layout))
    kind = {"awq": {"gemm": "awq"}, "gptq": {"gptq": "gptq", "gptq_v2": "gptq_v2"}}[method].get(
        layout
    )
    if kind is None or (kind == "awq" and int(config.bits) != 4):
        raise UnsupportedProgramError(
            f"The checkpoint has the format {layout!r} of {method} with {config.bits} bits. The pack `quantization` "
            "reads GPTQ, its second format, and AWQ's `gemm` with 4 bits."
        )
    return kind


def _descriptions(files: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields the names of a checkpoint's tensors, with tensors of their shape and dtype on the device ``meta``."""
    from safetensors import safe_open

    for file in files:
        if not str(file).endswith(".safetensors"):
            raise UnsupportedProgramError(
                f"The checkpoint's file {str(file)!r} is not of safetensors, whose header says which layers are "
                "quantized. Save the checkpoint with safetensors."
            )
        with safe_open(file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no dictionary
                part = opened.get_slice(name)
                shape = part.get_shape()
                dtype = opened.get_tensor(name).dtype if not shape else part[:1].dtype
                yield name, torch.empty(shape, dtype=dtype, device="meta")
