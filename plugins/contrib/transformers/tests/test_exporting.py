"""Models of transformers that are compiled as any other model."""

import pytest
import torch
import transformers

import torchtrt
from torchtrt.errors import ExportError, UnsupportedProgramError

from .conftest import CONFIGS, DEVICE

IDS = torch.tensor([[5, 8, 13, 21]], device=DEVICE)


def test_a_model_that_returns_its_cache_says_how_it_returns_none():
    """And is compiled once the advice is followed."""
    model = transformers.GPT2LMHeadModel(CONFIGS["gpt2"]).eval().to(DEVICE)
    with pytest.raises(UnsupportedProgramError, match=r"use_cache = False(.|\n)*generation"):
        torchtrt.compile(model, [IDS])

    model.config.use_cache = False
    compiled = torchtrt.compile(model, [IDS])

    torch.testing.assert_close(compiled(IDS).logits, model(IDS).logits)


def test_what_else_cannot_be_exported_is_told_as_it_is():
    """Only a cache is this pack's business."""
    with pytest.raises(ExportError, match="could not trace Linear"):
        torchtrt.compile(torch.nn.Linear(3, 3).eval(), [torch.rand(2, 4)])
