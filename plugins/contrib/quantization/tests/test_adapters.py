"""Adapters of PEFT over quantized weights."""

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.later import later, needs
from torchtrt_converters_quantization.checkpoints import PackedLinear

peft = later("peft")
pytestmark = [needs("peft"), pytest.mark.filterwarnings("ignore")]
X = torch.randn(4, 128, generator=torch.Generator().manual_seed(1))


def dense():
    """Returns two linear layers, the first of which gets an adapter."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 256), nn.LayerNorm(256), nn.Linear(256, 64)).eval()


def of_torchao():
    """Returns them with weights of INT4."""
    torchao = pytest.importorskip("torchao.quantization")
    model = dense().requires_grad_(False)
    torchao.quantize_(model, torchao.IntxWeightOnlyConfig(torch.int4, torchao.PerGroup(32)))
    return model


def of_modelopt():
    """Returns them with weights and inputs of FP8."""
    mtq = pytest.importorskip("modelopt.torch.quantization")
    return mtq.quantize(dense(), mtq.FP8_DEFAULT_CFG, lambda model: model(X))


def of_a_checkpoint():
    """Returns them as ``packed`` makes them."""
    model = dense()
    for layer in (0, 2):
        width, count = model[layer].in_features, model[layer].out_features
        data = torch.randint(-8, 8, (count, width), dtype=torch.int8)
        scale = torch.rand(count, width // 32) / 50
        model[layer] = PackedLinear("INT4", data, scale, bias=model[layer].bias.detach())
    return model


FORMS = {of_torchao: "int4", of_modelopt: "fp8", of_a_checkpoint: "int4"}


def adapted(make, seed=0):
    """Returns a model with an adapter of random weights around its first layer."""
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=4, target_modules=["0"], init_lora_weights=False)
    model = make()
    torch.manual_seed(seed)
    return peft.get_peft_model(model, config).eval().requires_grad_(False)


@pytest.mark.parametrize("make", FORMS, ids=["torchao", "modelopt", "checkpoint"])
def test_an_adapter_is_computed_beside_packed_weights(make):
    """In the same engine."""
    model = adapted(make)
    expected = model(X)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(model, [X], require_full_compilation=True)

    counts = {row.op.split(".")[1]: row.count for row in compiled.report.converted}
    assert counts[f"dequantize_{FORMS[make]}"] == 2
    assert (compiled(X) - expected).norm() < 2e-6 * expected.norm()
    assert (expected - make()(X)).norm() > 0.1 * expected.norm()


def test_another_adapter_is_a_refit():
    """The packed weights stay as they are."""
    model, other = adapted(of_a_checkpoint), adapted(of_a_checkpoint)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(
            model, [X], require_full_compilation=True, immutable_weights=False
        )
    with torch.no_grad():
        for name, value in other.named_parameters():
            if "lora" in name:
                value.mul_(-2)
    weights = {name: value for name, value in other.state_dict().items() if "lora" in name}

    refitted = torchtrt.refit_module_weights(compiled, weights)

    expected = other(X)
    assert (model(X) - expected).norm() > 0.1 * expected.norm()
    assert (refitted(X) - expected).norm() < 2e-6 * expected.norm()


def test_an_adapter_does_not_merge_into_packed_weights():
    """It would be lost in their rounding."""
    with pytest.raises(AttributeError, match="NoneType"):
        adapted(of_a_checkpoint).merge_adapter()
