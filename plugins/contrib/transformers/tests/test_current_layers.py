"""Models of transformers become the layers that a current TensorRT has, in one engine."""

import pytest
import torch
from torch import nn

import torchtrt

transformers = pytest.importorskip("transformers")
ATTENTION = "aten.scaled_dot_product_attention.default"
ROTARY = "torchtrt_experimental.rotary_embedding.default"
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 16}),
    "Mixtral": ("MixtralForCausalLM", "MixtralConfig", {"num_local_experts": 4}),
}


class Logits(nn.Module):
    """A language model without a cache."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        """Returns the logits."""
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def language_model(name):
    """Returns a small model with random weights."""
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    config = getattr(transformers, config)(**SIZES, **options)
    return Logits(getattr(transformers, model)(config)).eval()


def prompts(batch, length):
    """Returns token ids, and a mask that hides up to three tokens of padding on the left."""
    torch.manual_seed(length)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, : min(3, length - 1)] = 0
    return torch.randint(1, 64, (batch, length)), mask


@pytest.mark.parametrize("version", ["8.6.0", "11.4.0"])
@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_is_one_engine_of_current_layers(name, version):
    """Attention with its mask and grouped queries, rotary embeddings, and the products of experts."""
    model = language_model(name)
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 8), max_shape=(4, 32), dtype=torch.int64)

    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(model, [sizes, sizes], require_full_compilation=True)

    assert 1 == len(compiled.report.blocks)
    layers = {row.op: (row.count, row.pack.split()[0]) for row in compiled.report.converted}
    if version == "11.4.0":
        assert (2, "aten_experimental") == layers[ATTENTION]
        assert (4, "aten_experimental") == layers[ROTARY]
    for batch, length in ((1, 1), (2, 8), (4, 32), (3, 5)):
        given = prompts(batch, length)
        seen = given[1].bool()
        torch.testing.assert_close(
            compiled(*given)[seen], model(*given)[seen], rtol=1e-4, atol=1e-5
        )


class Experts(nn.Module):
    """Products of rows with the matrices of their groups."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4, 5))

    def forward(self, rows, ends):
        """Returns the products."""
        return torch.ops.transformers.grouped_mm_fallback(rows, self.weight, ends)


@pytest.mark.parametrize(
    "ends", [[2, 4, 6], [0, 0, 6], [6, 6, 6], [0, 3, 3], [0, 0, 0], [1, 2, 4]], ids=str
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_rows_are_multiplied_with_the_matrix_of_their_group(ends, dtype):
    """Groups may be empty, and rows behind the last one become 0."""
    model = Experts().eval()
    rows, ends = torch.rand(6, 4), torch.tensor(ends, dtype=dtype)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, (rows, ends), require_full_compilation=True)

    torch.testing.assert_close(compiled(rows, ends), model(rows, ends))
