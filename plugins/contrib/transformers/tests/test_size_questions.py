"""Models of transformers ask about a batch of 1 and a length of 1, and are compiled for both."""

import pytest
import torch

import torchtrt
from tests.support.later import later
from tests.support.modules import Function

transformers = later("transformers")


def encoder():
    """Returns a small BERT."""
    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=32
    )
    return transformers.BertModel(config).eval()


def decoder():
    """Returns a small GPT-2, whose attention is causal and has no mask."""
    config = transformers.GPT2Config(n_layer=2, n_embd=16, n_head=2)
    return transformers.GPT2Model(config).eval()


@pytest.mark.parametrize("make", [encoder, decoder])
def test_a_batch_and_a_length_of_1_are_compiled(make):
    """No size that was asked for is left out, alone or together."""
    inner = make()
    model = Function(lambda ids: inner(ids, use_cache=False).last_hidden_state).eval()
    sizes = torchtrt.Input(min_shape=(1, 1), opt_shape=(2, 8), max_shape=(4, 16), dtype=torch.int64)
    compiled = torchtrt.compile(model, [sizes], min_block_size=1)

    assert [] == compiled.report.narrowed
    for shape in ((1, 1), (1, 7), (3, 1), (4, 16)):
        ids = torch.randint(0, 100, shape)
        torch.testing.assert_close(compiled(ids), model(ids), atol=1e-4, rtol=1e-4)


def test_the_attention_functions_are_as_they_were():
    """The wrapper is only there while a model is exported."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    test_a_batch_and_a_length_of_1_are_compiled(encoder)
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
