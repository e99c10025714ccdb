"""A setting turns off layers of current TensorRT, and the report says which engines use them and why others do not."""

import dataclasses
import io
import json
import threading

import pytest
import torch
from rich.console import Console
from torch import nn

import torchtrt
from tests.support.modules import Function
from torchtrt.errors import SettingsError
from torchtrt.registry import DYNAMO_CONVERTERS
from torchtrt.tensorrt import Capability, supports
from torchtrt.tensorrt.probes import disabling
from torchtrt_runtime.reports.rows import LayerUse
from torchtrt_testing.building import BUILT, build

ATTENTION = "aten.scaled_dot_product_attention.default"


def rotated(x):
    """Returns a rotary embedding."""
    once = torch.outer(torch.arange(x.shape[-2]).float(), torch.tensor([1.0, 0.1]))
    angles = torch.cat((once, once), -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


def attention(x):
    """Returns causal attention."""
    return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


LAYERS = {
    Capability.ATTENTION: (attention, "attention_v2"),
    Capability.ATTENTION_V2: (attention, "attention_v2"),
    Capability.ROTARY_EMBEDDING: (rotated, "rotary_embedding"),
    Capability.NORMALIZATION_V2: (lambda x: nn.functional.group_norm(x, 2), "normalization_v2"),
    Capability.CUMULATIVE: (lambda x: x.cumsum(1), "cumulative"),
    Capability.BFLOAT16_DECONVOLUTION: (
        lambda x: nn.functional.conv_transpose2d(x.bfloat16(), torch.ones(4, 2, 2, 2).bfloat16()),
        "cast",
    ),
}
"""For a capability: a function that uses its layer, and a kind of layer that is there with it and not without."""
X = torch.rand(2, 4, 3, 4, generator=torch.Generator().manual_seed(0))


def compiled_for(function, x=X, version="11.4.0", **settings):
    """Returns the model and the compiled model."""
    model = Function(function).eval()
    with torchtrt.use_tensorrt(f"reference@{version}"):
        return model, torchtrt.compile(model, [x], require_full_compilation=True, **settings)


def kinds(function, **settings):
    """Returns the kinds of layers of the network."""
    exported = torch.export.export(Function(function).eval(), (X,))
    with torchtrt.use_tensorrt("reference@11.4.0"):
        result = build(exported, **settings)
    assert BUILT == result.outcome
    return [kind for layers, _ in result.networks for kind, _ in layers]


@pytest.mark.parametrize("capability", LAYERS, ids=lambda layer: layer.name)
def test_without_a_layer_the_values_are_the_same(capability):
    """The network has other layers."""
    function, kind = LAYERS[capability]
    counts = [kinds(function, disabled_capabilities=off).count(kind) for off in ((), capability)]

    if capability is Capability.BFLOAT16_DECONVOLUTION:
        counts.reverse()  # there are more casts without it
    assert counts[0] > counts[1]
    model, compiled = compiled_for(function, disabled_capabilities=capability.name)
    tolerance = 1e-2 if capability is Capability.BFLOAT16_DECONVOLUTION else 1e-5
    torch.testing.assert_close(compiled(X), model(X), rtol=tolerance, atol=tolerance)
    rows = {row.capability: row.nodes for row in compiled.report.layers}
    assert () == rows[capability.name]


def test_a_layer_is_off_while_compiling_alone():
    """Neither another thread nor the next compilation is concerned."""
    seen = []
    with torchtrt.use_tensorrt("reference@11.4.0"), disabling(frozenset({Capability.ATTENTION})):
        assert not supports(Capability.ATTENTION)
        thread = threading.Thread(target=lambda: seen.append(_supports_attention()))
        thread.start()
        thread.join()

    _, compiled = compiled_for(attention)
    assert [True] == seen
    assert [("ATTENTION", 1)] == [
        (row.capability, len(row.nodes)) for row in compiled.report.layers
    ]


def _supports_attention():
    with torchtrt.use_tensorrt("reference@11.4.0"):
        return supports(Capability.ATTENTION)


@pytest.mark.parametrize(
    "value", ["ATENTION", "REFIT", ["ATTENTION", 3], Capability.INT64, 5, {"ATTENTION": "NO"}, None]
)
def test_what_is_no_layer_is_refused(value):
    """Other capabilities are what TensorRT is, and no choice of a converter."""
    if isinstance(value, dict):
        settings = torchtrt.CompilationSettings(disabled_capabilities=value)
        assert {Capability.ATTENTION} == settings.disabled_capabilities
        return
    with pytest.raises(SettingsError, match=r"disabled_capabilities.*ROTARY_EMBEDDING"):
        torchtrt.CompilationSettings(disabled_capabilities=value)


def test_a_lookup_reads_the_setting():
    """Also outside of a compilation: settings are an argument of lookups."""
    graph = torch.export.export(Function(attention).eval(), (X,)).graph
    (node,) = (node for node in graph.nodes if str(node.target) == ATTENTION)
    settings = torchtrt.CompilationSettings(disabled_capabilities={"ATTENTION"})

    with torchtrt.use_tensorrt("reference@11.4.0"):
        resolutions = [DYNAMO_CONVERTERS.resolve(node, settings_) for settings_ in (settings, None)]

    assert ["aten_core", "aten_experimental"] == [
        settings_.chosen.pack.name for settings_ in resolutions
    ]
    assert "disabled_capabilities turns it off" in resolutions[0].rejections[0].reason


def test_engines_in_the_cache_differ(tmp_path):
    """GELU is chosen inside a converter: no node of the graph shows it."""
    settings = {"engine_cache": tmp_path, "min_block_size": 1}
    cached = []
    for off in ((), "GELU", ()):
        _, compiled = compiled_for(nn.functional.gelu, disabled_capabilities=off, **settings)
        cached += [block.cached for block in compiled.report.blocks]

    assert [False, False, True] == cached


def test_a_saved_model_keeps_setting_and_report(tmp_path):
    """Both are data."""
    _, compiled = compiled_for(attention, disabled_capabilities=[Capability.ATTENTION])
    with torchtrt.use_tensorrt("reference@11.4.0"):
        torchtrt.save(compiled, tmp_path / "model.ttrt")
        loaded = torchtrt.load(tmp_path / "model.ttrt")

    assert frozenset({Capability.ATTENTION}) == loaded.settings.disabled_capabilities
    assert compiled.settings == loaded.settings
    assert compiled.report.layers == loaded.report.layers
    assert json.dumps(loaded.report.to_json())


def test_the_report_says_why_not():
    """What TensorRT lacks, what a converter declines, and what a pass finds nearly."""

    def function(x):
        narrow = x.squeeze(0)
        return nn.functional.scaled_dot_product_attention(narrow, narrow, narrow), rotated(narrow)

    _, compiled = compiled_for(function, X[:1])
    layers = {row.capability: row for row in compiled.report.layers}

    assert {"ATTENTION", "ROTARY_EMBEDDING"} == set(layers)
    assert ["fused attention takes tensors of four dimensions"] == list(layers["ATTENTION"].missed)
    assert ["the features have 3 dimensions, and the layer takes 4"] == list(
        layers["ROTARY_EMBEDDING"].missed
    )
    console = Console(width=200, file=io.StringIO())
    console.print(compiled.report)
    assert "1 node: fused attention takes tensors of four" in console.file.getvalue()


def test_an_older_tensorrt_says_what_it_lacks():
    """The first version with the layer."""
    _, compiled = compiled_for(attention, version="8.6.0")
    (row,) = compiled.report.layers

    assert ("ATTENTION", ()) == (row.capability, row.nodes)
    (reason,) = row.missed
    assert "from version 10.14 on" in reason


def test_a_dry_run_lists_layers_and_lines():
    """``explain`` has the section, too."""

    class Model(nn.Module):
        def forward(self, x):
            return nn.functional.scaled_dot_product_attention(x, x, x)

    with torchtrt.use_tensorrt("reference@11.4.0"):
        report = torchtrt.explain(Model().eval(), [X], require_full_compilation=True)

    (row,) = report.layers
    assert isinstance(row, LayerUse)
    assert "scaled_dot_product_attention" in row.model_lines[0]
    assert {"capability", "layer", "nodes", "model_lines", "missed"} == set(dataclasses.asdict(row))
