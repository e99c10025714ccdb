"""Followed models with adapters of PEFT: each state computes what eager PyTorch computes, with few builds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import exports_of_followed
from tests.support.later import later, needs

peft = later("peft")
pytestmark = [
    needs("peft"),
    *(
        pytest.mark.filterwarnings(f"ignore:{message}:UserWarning")
        for message in ("Already found a `peft_config`", "Already unmerged", "Already following")
    ),
]

X = torch.rand(3, 8)


class Model(nn.Module):
    """Layers that adapters are for."""

    def __init__(self):
        super().__init__()
        self.ids = nn.Embedding(5, 8)
        self.first = nn.Linear(8, 16)
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)
        self.second = nn.Linear(16, 8)

    def forward(self, x):
        y = self.convolution(self.first(x + self.ids(torch.tensor([1, 2, 3]))).relu()[:, None])
        return self.second(y[:, 0])


def adapter(rank=4, targets=("first", "second", "convolution", "ids"), **options):
    """Returns the configuration of an adapter that changes results."""
    return peft.LoraConfig(r=rank, target_modules=list(targets), init_lora_weights=False, **options)


def followed(*names, **options):
    """Returns a model with adapters, followed."""
    torch.manual_seed(0)
    model = Model()
    for name in names:
        peft.inject_adapter_in_model(adapter(**options), model, name)
    return torchtrt.follow(model.eval(), min_block_size=1)


def layers(model):
    """Returns the layers with adapters."""
    return [module for module in model.modules() if isinstance(module, peft.tuners.lora.LoraLayer)]


def agree(model):
    """Compares a call with eager PyTorch, and returns the programs that are there."""
    with torch.no_grad():
        torch.testing.assert_close(model(X), model.torchtrt.model(X), rtol=1e-3, atol=1e-4)
    return model.torchtrt.programs


def test_scaling_and_merging_refit():
    """The program without adapters serves the merged ones."""
    torch.manual_seed(0)
    model = torchtrt.follow(nn.Sequential(nn.Linear(8, 8)).eval(), min_block_size=1)
    agree(model)
    peft.inject_adapter_in_model(adapter(targets=["0"]), model, "one")
    programs = agree(model)
    assert 2 == len(programs)
    for change in (
        lambda adapters: adapters.set_scale("one", 0.3),
        lambda adapters: adapters.merge(),
        lambda adapters: (adapters.unmerge(), adapters.set_scale("one", 2), adapters.merge()),
        lambda adapters: adapters.unmerge(),
    ):
        change(model[0])
        assert {id(program) for program in programs} == {id(adapters) for adapters in agree(model)}


@pytest.mark.slow  # each state of the adapters is exported
def test_an_adapter_that_is_loaded_switched_scaled_and_merged_needs_two_programs():
    """One with adapters and one without; everything else is a refit."""
    model = followed()
    (plain,) = agree(model)
    peft.inject_adapter_in_model(adapter(), model, "one")
    assert 2 == len(agree(model))
    peft.inject_adapter_in_model(adapter(), model, "two")
    agree(model)
    for change in (
        lambda adapters: adapters.set_adapter("two"),
        lambda adapters: adapters.set_scale("two", 0.3),
        lambda adapters: adapters.set_scale("two", 3),
        lambda adapters: adapters.merge(),
        lambda adapters: adapters.unmerge(),
        lambda adapters: adapters.merge(safe_merge=True),
        lambda adapters: (adapters.unmerge(), adapters.set_scale("two", 0.5), adapters.merge()),
        lambda adapters: (adapters.unmerge(), adapters.set_adapter("one"), adapters.merge()),
        lambda adapters: (adapters.unmerge(), adapters.enable_adapters(False)),
        lambda adapters: adapters.enable_adapters(True),
        lambda adapters: (adapters.merge(), adapters.set_scale("one", 2), adapters.unmerge()),
    ):
        for layer in layers(model):
            change(layer)
        programs = agree(model)
        assert 2 == len(programs)
        assert plain in programs


def test_switching_back_exports_nothing(monkeypatch):
    """Pipelines activate adapters by a new list each time. A list that is written to later is another matter."""
    model = followed("one", "two")
    exported = exports_of_followed(monkeypatch)
    for names in (["one"], ["two"], ["one"], ["two"], ["one"]):
        for layer in layers(model):
            layer.set_adapter(list(names))
        before = agree(model)
    assert 2 == len(exported)
    assert 1 == len(before)
    for index in layers(model):
        index._active_adapter.append("two")
    agree(model)
    assert 3 == len(exported)


def test_weights_of_an_adapter_are_enough():
    """A state dict of the adapter alone, active or merged."""
    model = followed("one")
    before = agree(model)
    weights = {name: index * 0.5 for name, index in model.state_dict().items() if "lora_" in name}
    model.load_state_dict(weights, strict=False)
    assert before == agree(model)
    for index in layers(model):
        index.merge()
    agree(model)
    for index in layers(model):
        index.unmerge()
    model.load_state_dict({name: weight * 3 for name, weight in weights.items()}, strict=False)
    for layer in layers(model):
        layer.merge()
    agree(model)


def test_other_ranks_and_several_adapters_are_other_programs():
    """And an adapter with magnitudes (DoRA), whose scale does not only multiply."""
    model = followed("one")
    agree(model)
    peft.inject_adapter_in_model(adapter(rank=2), model, "small")
    for index in layers(model):
        index.set_adapter("small")
    assert 2 == len(agree(model))
    for index in layers(model):
        index.set_adapter(["one", "small"])
    assert 3 == len(agree(model))
    dora = followed("one", use_dora=True)
    agree(dora)
    for layer in layers(dora):
        layer.set_scale("one", 0.5)
    agree(dora)


def test_a_model_of_peft_is_followed():
    """``PeftModel`` around the model; and the model inside of one that is wrapped later."""
    torch.manual_seed(0)
    wrapped = peft.get_peft_model(Model(), adapter()).eval()
    model = torchtrt.follow(wrapped, min_block_size=1)
    assert isinstance(model, peft.PeftModel)
    agree(model)
    model.base_model.merge_adapter()
    agree(model)
    with model.disable_adapter():
        agree(model)
    model.base_model.unmerge_adapter()
    agree(model)
    inner = torchtrt.follow(Model().eval(), min_block_size=1)
    outer = peft.get_peft_model(inner, adapter()).eval()
    with torch.no_grad():
        torch.testing.assert_close(outer(X), inner.torchtrt.model(X), rtol=1e-3, atol=1e-4)
    assert 1 == len(inner.torchtrt.programs)


def test_hotswapping_an_adapter_refits_after_a_refresh():
    """PEFT writes the new adapter's weights into the old one's through ``.data``, which nothing counts."""
    swapping = pytest.importorskip("peft.utils.hotswap")

    torch.manual_seed(0)
    targets = ("first", "second")
    wrapped = peft.get_peft_model(Model(), adapter(targets=targets)).eval()
    model = torchtrt.follow(wrapped, min_block_size=1)
    before = agree(model)
    for alpha in (8, 3):  # the scale stays as it is, and changes
        state = {
            name: weight * 2 for name, weight in wrapped.state_dict().items() if "lora_" in name
        }
        swapping.hotswap_adapter_from_state_dict(
            wrapped, state, "default", adapter(targets=targets, lora_alpha=alpha)
        )
        model.torchtrt.refresh(weights_only=True)
        assert before == agree(model)


@pytest.mark.parametrize("name", ["load_lora_adapter", "load_adapter"])
def test_a_loader_of_adapters_may_write_through_data(name):
    """As PEFT does with ``hotswap=True``, which nothing counts."""

    def load(self, factor):
        self[0].weight.data.mul_(factor)
        return factor

    kind = type("Model", (torch.nn.Sequential,), {name: load})
    model = kind(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    followed = torchtrt.follow(model, min_block_size=1)
    x = torch.rand(2, 4)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(followed(x), model(x))
            assert 3 == getattr(followed, name)(3)
        torch.testing.assert_close(followed(x), model(x))
    assert 1 == len(followed.torchtrt.programs)
