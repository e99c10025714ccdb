"""The models of the demo: each is one engine, at every size."""

from __future__ import annotations

import torch

import torchtrt
from docs.demo.models import Decoder, ResNet18
from docs.demo.sentences import SENTENCES, load_encoder, sizes, tokenize
from tests.support.compiled import assert_same, engines_of


def test_the_sentence_encoder_runs_in_one_engine_at_every_size(version):
    """A published model with its weights: one engine, equal to eager at least, odd and maximum sizes."""
    encoder, tokenizer = load_encoder()
    ids, mask = tokenize(tokenizer, SENTENCES)

    compiled = torchtrt.compile(
        encoder, (ids, mask), dynamic_shapes=sizes(), require_full_compilation=True
    )

    assert 1 == len(engines_of(compiled))
    for batch, length in ((1, 2), (3, 17), (6, ids.shape[1]), (4, 128)):
        tokens = torch.randint(1000, 2000, (batch, length))
        attended = torch.ones_like(tokens)
        attended[:, length // 2 + 1 :] = 0
        assert_same(compiled, encoder, tokens, attended)


def test_the_convolutional_network_runs_in_one_engine(version):
    """ResNet-18's shape with dynamic batch and image size; its in-place ReLU is no obstacle."""
    torch.manual_seed(0)
    model = ResNet18(classes=10).eval()
    shapes = torchtrt.Input(
        min_shape=(1, 3, 64, 64), opt_shape=(2, 3, 64, 64), max_shape=(4, 3, 64, 64)
    )

    compiled = torchtrt.compile(model, [shapes], require_full_compilation=True)

    assert 1 == len(engines_of(compiled))
    for batch in (1, 2, 4):
        assert_same(compiled, model, torch.rand(batch, 3, 64, 64))


def test_the_decoder_runs_in_one_engine_at_every_length(version):
    """A causal decoder with dynamic batch and length, and weights used twice."""
    torch.manual_seed(0)
    model = Decoder(vocabulary=100, width=32, heads=4, layers=2, context=64).eval()
    shapes = torchtrt.Input(
        min_shape=(1, 2), opt_shape=(2, 16), max_shape=(4, 64), dtype=torch.int64
    )

    compiled = torchtrt.compile(model, [shapes], require_full_compilation=True)

    assert 1 == len(engines_of(compiled))
    for batch, length in ((1, 2), (2, 16), (3, 33), (4, 64)):
        assert_same(compiled, model, torch.randint(0, 100, (batch, length)))
