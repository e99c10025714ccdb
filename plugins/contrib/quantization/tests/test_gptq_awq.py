"""Checkpoints of GPTQ and AWQ, with small random weights, and layers that libraries make of them."""

import json
import warnings

import pytest
import torch

import torchtrt
import torchtrt_rtx
from torchtrt.errors import UnsupportedProgramError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

from torchtrt_converters_quantization.checkpoints import packed, packed_checkpoints

pytestmark = pytest.mark.filterwarnings("ignore")
IDS = torch.arange(8)[None]
SIZES = {
    "vocab_size": 64, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": False,
    "use_cache": False, "dtype": "float16",
}  # fmt: skip
GROUP = 64
AWQ_COLUMNS = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column that is stored at each place of a word, as AutoAWQ packs it."""


def stored(values, bits, columns=None):
    """Returns unsigned integers ``(rows, n)`` in int32 words, the first in the lowest bits."""
    count = 32 // bits
    if columns is not None:
        values = values.unflatten(1, (-1, 8))[..., list(columns)].flatten(1)
    parts = values.to(torch.int64).unflatten(1, (-1, count)) << (torch.arange(count) * bits)
    words = parts.sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def random_layer(out, width, bits, is_symmetric, order):
    """Returns integers ``(in, out)``, zero points, scales and groups, and the weight that they mean."""
    top, groups = 2**bits, width // GROUP
    values = torch.randint(0, top, (width, out))
    zeros = torch.randint(1, top, (groups, out))
    if is_symmetric:
        zeros.fill_(top // 2)
    scales = (torch.rand(groups, out) + 0.5) / top / 4
    group = (torch.randperm(width) if order else torch.arange(width)) // GROUP
    scales = scales.half()
    weight = (values - zeros[group]) * scales[group]
    return values, zeros, scales, group.to(torch.int32), weight.t().contiguous()


def words_of(kind, values, zeros, scales, group, bits):
    """Returns the tensors of a layer in a checkpoint."""
    if kind == "awq":
        packed = (stored(tensor, bits, AWQ_COLUMNS) for tensor in (values, zeros))
        return {**dict(zip(("qweight", "qzeros"), packed, strict=True)), "scales": scales}
    less = 1 if kind == "gptq" else 0
    return {
        "qweight": stored(values.t(), bits).t().contiguous(),
        "qzeros": stored(zeros - less, bits),
        "scales": scales,
        "g_idx": group,
    }


def checkpoint(folder, kind, bits=4, is_symmetric=False, order=False, config=None, other=()):
    """Writes a checkpoint, some layers with other bits, and returns the model with the weights that it means."""
    torch.manual_seed(0)
    config = config or transformers.LlamaConfig(**SIZES)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().half()
    tensors = dict(model.state_dict())
    for path, layer in model.named_modules():
        is_transposed = type(layer).__name__ == "Conv1D"
        if path == "lm_head" or not (is_transposed or isinstance(layer, torch.nn.Linear)):
            continue
        weight = tensors.pop(f"{path}.weight")
        out, width = reversed(weight.shape) if is_transposed else weight.shape
        own = next((dict(other)[name] for name in other if path.endswith(name)), bits)
        *parts, weight = random_layer(out, width, own, is_symmetric, order)
        layer.weight.data = weight.t().contiguous() if is_transposed else weight
        for key, value in words_of(kind, *parts, own).items():
            tensors[f"{path}.{key}"] = value
    save_file(
        {name: value.contiguous() for name, value in tensors.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    method = {"quant_method": kind.split("_")[0], "bits": bits, "group_size": GROUP}
    method |= {"version": "gemm"} if kind == "awq" else {"checkpoint_format": kind}
    written = config.to_dict() | {
        "quantization_config": method | {"desc_act": order},
        "architectures": [type(model).__name__],
    }
    (folder / "config.json").write_text(json.dumps(written))
    return model.requires_grad_(False)


def loaded(folder):
    """Returns the model of a checkpoint."""
    with packed_checkpoints():
        return transformers.AutoModelForCausalLM.from_pretrained(folder).eval()


def compiled_for(tensorrt, model, x, **settings):
    """Returns the model in one engine."""
    with torchtrt.use_tensorrt(tensorrt):
        return torchtrt.compile(model, [x], require_full_compilation=True, **settings)


def quantizing(compiled):
    """Returns how many of the pack's ops there are of each kind."""
    rows = (row for row in compiled.report.converted if "torchtrt_quantization" in row.op)
    return {row.op.split(".")[1]: row.count for row in rows}


@pytest.mark.parametrize(
    ("kind", "bits", "is_symmetric", "order"),
    [
        ("gptq", 4, True, False),
        ("gptq", 4, False, True),
        ("gptq_v2", 8, False, False),
        ("gptq_v2", 2, False, False),
        ("awq", 4, False, False),
    ],
)
def test_a_checkpoint_computes_with_the_weights_that_it_means(
    kind, bits, is_symmetric, order, tmp_path
):
    """Without the library that made it. The weights stay packed."""
    expected = checkpoint(tmp_path, kind, bits, is_symmetric, order)(IDS).logits.float()

    compiled = compiled_for("reference@11.4.0", loaded(tmp_path), IDS)

    form = "int8" if bits == 8 else "int4"
    assert quantizing(compiled) == {f"dequantize_{form}": 7}
    assert (compiled(IDS).logits.float() - expected).norm() < 4e-3 * expected.norm()


def test_layers_may_have_other_bits_than_most(tmp_path):
    """As `dynamic` of gptqmodel has it. Layers of GPT-2 have transposed weights."""
    config = transformers.GPT2Config(
        vocab_size=64,
        n_embd=128,
        n_layer=1,
        n_head=2,
        use_cache=False,
        dtype="float16",
        tie_word_embeddings=False,
    )
    expected = checkpoint(tmp_path, "gptq", config=config, other={"mlp.c_proj": 8})(IDS).logits

    model = loaded(tmp_path)

    assert model.transformer.h[0].mlp.c_proj.form == "INT8"
    assert model.transformer.h[0].mlp.c_fc.form == "INT4"
    compiled = compiled_for("reference@11.4.0", model, IDS)
    assert (compiled(IDS).logits - expected).float().norm() < 4e-3 * expected.float().norm()


def test_words_that_do_not_fill_a_layer_are_refused(tmp_path):
    """The first of them is named."""
    checkpoint(tmp_path, "gptq")
    tensors = load_file(tmp_path / "model.safetensors")
    path = "model.layers.0.self_attn.q_proj.qweight"
    tensors[path] = torch.cat([tensors[path], tensors[path]])[:20].contiguous()
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})

    reason = (
        r"'model.layers.0.self_attn.q_proj' has torch.int32 \(20, 128\) for 128 inputs of 4 bits"
    )
    with pytest.raises(UnsupportedProgramError, match=reason):
        loaded(tmp_path)


@pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed")
def test_nvidias_builder_accepts_zero_points(tmp_path):
    """For GPUs of compute capability 8.9."""
    checkpoint(tmp_path, "awq")

    compiled = compiled_for("rtx", loaded(tmp_path), IDS, target_compute_capabilities="8.9")

    assert quantizing(compiled) == {"dequantize_int4": 7}


def test_other_formats_of_a_checkpoint_are_refused(tmp_path):
    """As they would be read wrongly."""
    checkpoint(tmp_path, "awq")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["version"] = "gemv"
    (tmp_path / "config.json").write_text(json.dumps(config))

    with pytest.raises(UnsupportedProgramError, match="format 'gemv' of awq with 4 bits"):
        loaded(tmp_path)


class Library(torch.nn.Module):
    """A layer as a library makes it, which dequantizes its words in each call.

    Args:
        kind: How it reads the words.
    """

    def __init__(self, kind, order=False, is_broken=False):
        super().__init__()
        torch.manual_seed(0)
        *parts, weight = random_layer(96, 128, 4, False, order)
        for name, value in words_of(kind, *parts, 4).items():
            self.register_buffer(name, value)
        self.register_buffer("bias", torch.randn(96).half())
        self.weight, self.is_broken = weight * 2 if is_broken else weight, is_broken

    def forward(self, x):
        """``(..., 128)`` to ``(..., 96)``."""
        return torch.nn.functional.linear(x, self.weight, self.bias)


@pytest.mark.parametrize(
    ("kind", "order"), [("gptq", False), ("gptq_v2", True), ("gptq", True), ("awq", False)]
)
def test_a_layer_of_a_library_is_read_as_its_results_say(kind, order):
    """Libraries convert words when they load them, and keep the names."""
    layer = Library(kind, order)
    x = torch.randn(2, 3, 128).half()
    expected = layer(x).float()

    compiled = compiled_for("reference@11.4.0", packed(torch.nn.Sequential(layer)), x)

    assert quantizing(compiled) == {"dequantize_int4": 1}
    assert (compiled(x).float() - expected).norm() < 1e-3 * expected.norm()


def test_a_layer_that_computes_something_else_is_refused():
    """A reading that is almost right would differ silently."""
    with pytest.raises(UnsupportedProgramError, match="'0' has results other than those"):
        packed(torch.nn.Sequential(Library("gptq", is_broken=True)))


@pytest.mark.parametrize("is_symmetric", [True, False])
def test_a_layer_of_auto_round_is_packed(is_symmetric):
    """With GPTQ's words, which auto-round reads without a GPU."""
    module = pytest.importorskip("auto_round_extension.torch.qlinear_torch_zp")
    torch.manual_seed(0)
    *parts, weight = random_layer(96, 128, 4, is_symmetric, False)
    layer = module.QuantLinear(4, GROUP, 128, 96, bias=False)
    for name, value in words_of("gptq", *parts, 4).items():
        if name != "g_idx":
            setattr(layer, name, value)
    x = torch.randn(2, 3, 128).half()
    expected = layer(x).float()
    assert (torch.nn.functional.linear(x, weight).float() - expected).norm() < expected.norm() / 50

    compiled = compiled_for("reference@11.4.0", packed(torch.nn.Sequential(layer)), x)

    assert (compiled(x).float() - expected).norm() < 1e-3 * expected.norm()
