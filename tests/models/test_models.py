"""The rows of docs/models.md: small random configurations of the real libraries."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torchtrt
from tests.support.models import FOLDER, import_models

transformers = pytest.importorskip("transformers")
if not (FOLDER / "torchvision").exists():
    pytest.skip("`make test-models` downloads the libraries of models", allow_module_level=True)
vision = importlib.import_module("plugins.contrib.torchvision.tests.vision").vision

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
RANDOM = {"weights": None, "weights_backbone": None, "num_classes": 3}
SPEECH = {
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": [16, 16],
    "conv_stride": [5, 2],
    "conv_kernel": [10, 3],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
}
SERIES = {
    "num_input_channels": 2,
    "context_length": 16,
    "patch_length": 4,
    "patch_stride": 4,
    "d_model": 8,
    "prediction_length": 4,
}


class Call(nn.Module):
    """A model with tensors in and out."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        """Calls the model."""
        return self.call(self.model, *inputs)


def assert_compiles_whole(model, inputs, call=nn.Module.__call__):
    """Compiles a model with nothing in PyTorch, and compares all outputs with eager PyTorch's."""
    model = Call(model, call).eval()
    compiled = torchtrt.compile(model, inputs, require_full_compilation=True)

    with torch.no_grad():
        actual, expected = (pytree.tree_leaves(module(*inputs)) for module in (compiled, model))
    assert_close(actual, expected)
    assert 1 == len(compiled.report.blocks)


def assert_close(actual, expected):
    """Compares lists of tensors, relative to the largest value of each."""
    for got, wanted in zip(actual, expected, strict=True):
        scale = float(wanted.abs().max()) if wanted.numel() else 1.0
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-4 * scale)


def first(model, *inputs):
    """Returns the first output of a model of transformers."""
    return model(*inputs, return_dict=False)[0]


def predictions(model, values):
    """Returns the forecast of a model of time series."""
    return model(past_values=values).prediction_outputs


@pytest.fixture(autouse=True)
def seed():
    """The same weights every time."""
    torch.manual_seed(0)


@pytest.mark.slow  # a second or more each
@pytest.mark.parametrize(
    "name",
    ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large",
     "lraspp_mobilenet_v3_large"],
)  # fmt: skip
def test_segmentation_models_of_torchvision_compile_whole(name, version):
    """With their upsampling."""
    model = getattr(vision.models.segmentation, name)(**RANDOM).eval()
    assert_compiles_whole(model, (torch.randn(1, 3, 64, 64),))


DETECTORS = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": ("rpn.head",),
    "retinanet_resnet50_fpn": ("head",),
    "fcos_resnet50_fpn": ("head",),
    "ssdlite320_mobilenet_v3_large": ("head",),
    "maskrcnn_resnet50_fpn": ("rpn.head", "roi_heads.mask_head"),
    "keypointrcnn_resnet50_fpn": ("rpn.head", "roi_heads.keypoint_head"),
}
"""The heads of detectors."""


@pytest.mark.slow  # a backbone has hundreds of ops
@pytest.mark.parametrize("name", DETECTORS)
def test_a_detector_of_torchvision_runs_on_followed_parts(name):
    """PyTorch runs the code between them, whose branches depend on the number of boxes."""
    sizes = {} if "320" in name else {"min_size": 64, "max_size": 64}
    model = getattr(vision.models.detection, name)(**RANDOM, **sizes).eval()
    images = [torch.rand(3, 64, 64)]
    parts = ("backbone", *DETECTORS[name])
    with torch.no_grad():
        expected = pytree.tree_leaves(model(images))
        for part in parts:
            followed = torchtrt.follow(model.get_submodule(part), fallback=False)
            parent, _, child = part.rpartition(".")
            setattr(model.get_submodule(parent), child, followed)
        assert_close(pytree.tree_leaves(model(images)), expected)
    assert [1] * len(parts) == [len(model.get_submodule(part).torchtrt.programs) for part in parts]


@pytest.mark.slow  # two updates are hundreds of ops
def test_optical_flow_compiles_whole():
    """RAFT, with its correlation and its updates."""
    model = vision.models.optical_flow.raft_small(weights=None)
    images = torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)
    with torchtrt.use_tensorrt("reference@11.4.0"):
        assert_compiles_whole(model, images, lambda model, *pair: model(*pair, num_flow_updates=2))


def sam():
    """Returns a SAM in small."""
    vision_config = {
        "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32,
        "patch_size": 8, "output_channels": 8, "window_size": 2, "global_attn_indexes": [1],
        "mlp_dim": 16, "num_pos_feats": 4,
    }  # fmt: skip
    prompt = {"hidden_size": 8, "image_size": 32, "patch_size": 8, "mask_input_channels": 4}
    mask = {
        "hidden_size": 8, "mlp_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "iou_head_hidden_dim": 8,
    }  # fmt: skip
    config = transformers.SamConfig(
        vision_config=vision_config, prompt_encoder_config=prompt, mask_decoder_config=mask
    )
    return transformers.SamModel(config)


def segment(model, embeddings, points, labels):
    """Returns SAM's masks and their scores for points."""
    out = model(image_embeddings=embeddings, input_points=points, input_labels=labels)
    return out.pred_masks, out.iou_scores


def test_sams_encoder_compiles_whole(version):
    """Attention in windows and with decomposed relative positions."""
    images = torch.randn(1, 3, 32, 32)
    assert_compiles_whole(sam(), (images,), lambda model, x: model.get_image_embeddings(x))


@pytest.mark.slow  # many ops
def test_sams_decoder_compiles_whole(version):
    """With the encoder of prompts."""
    inputs = torch.randn(1, 8, 4, 4), torch.rand(1, 1, 2, 2) * 32, torch.ones(1, 1, 2).long()
    assert_compiles_whole(sam(), inputs, segment)


def test_a_detector_of_transformers_compiles_whole(version):
    """YOLOS has no NMS: its boxes are queries."""
    config = transformers.YolosConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=[32, 32], patch_size=8, num_detection_tokens=5,
    )  # fmt: skip
    model = transformers.YolosForObjectDetection(config)
    assert_compiles_whole(model, (torch.randn(1, 3, 32, 32),), first)


@pytest.mark.parametrize(
    "positions",
    ["", *(pytest.param(form, marks=pytest.mark.slow) for form in ("relative", "rotary"))],
)
def test_speech_recognizers_compile_whole(positions, version):
    """wav2vec2, and Conformers with each kind of positions."""
    model = transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**SPEECH))
    if positions:
        config = transformers.Wav2Vec2ConformerConfig(
            **SPEECH, conv_depthwise_kernel_size=5, position_embeddings_type=positions
        )
        model = transformers.Wav2Vec2ConformerForCTC(config)
    assert_compiles_whole(model, (torch.randn(2, 400),), first)


def test_models_of_time_series_compile_whole(version):
    """PatchTST and PatchTSMixer."""
    series = torch.randn(2, 16, 2)
    attention = transformers.PatchTSTConfig(
        **SERIES, num_hidden_layers=2, num_attention_heads=2, ffn_dim=16
    )
    mixer = transformers.PatchTSMixerConfig(**SERIES, num_layers=2)
    assert_compiles_whole(transformers.PatchTSTForPrediction(attention), (series,), predictions)
    assert_compiles_whole(transformers.PatchTSMixerForPrediction(mixer), (series,), predictions)


class Packed(nn.Module):
    """A recurrent network over packed sequences."""

    def __init__(self, kind):
        super().__init__()
        self.rnn = kind(4, 8, batch_first=True)

    def forward(self, x, lengths):
        """Returns the outputs, with zeros after the end of each sequence."""
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = self.rnn(packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]


class Masked(Packed):
    """The same over padded sequences."""

    def forward(self, x, lengths):
        """Returns the outputs, with zeros after the end of each sequence."""
        inside = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        return self.rnn(x)[0] * inside[..., None]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_packed_sequences_are_refused_and_a_mask_computes_the_same(kind, version):
    """The number of steps would depend on data; in one direction, no output depends on the padding behind it."""
    x, lengths = torch.randn(3, 6, 4), torch.tensor([6, 2, 4])
    packed, masked = Packed(kind).eval(), Masked(kind).eval()
    masked.load_state_dict(packed.state_dict())

    with pytest.raises(torchtrt.errors.ExportError, match="could not trace"):
        torchtrt.compile(packed, (x, lengths))
    with torch.no_grad():
        torch.testing.assert_close(masked(x, lengths), packed(x, lengths))
    assert_compiles_whole(masked, (x, lengths))


class Graph(nn.Module):
    """Two layers of message passing."""

    def __init__(self, kind, **options):
        super().__init__()
        self.first, self.second = kind(4, 8, **options), kind(8, 3, **options)

    def forward(self, x, edges):
        """Returns the features of the nodes."""
        return self.second(self.first(x, edges).relu(), edges)


ON_8_6 = ["SAGEConv", "GraphConv", "TransformerConv"]
"""Layers that keep the edges as they are."""
LATER = ["GCNConv", "GATConv", "GATv2Conv", "ChebConv"]
"""Layers that drop or add loops, so that the number of edges depends on data."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("SAGEConv", "GATConv") else pytest.mark.slow)
        for name in (*ON_8_6, *LATER)
    ],
)
def test_message_passing_compiles_whole(name, version):
    """TensorRT 8.6 does not return a size that depends on data."""
    kind = getattr(import_models("torch_geometric.nn"), name)
    model = Graph(kind, **({"K": 2} if name == "ChebConv" else {})).eval()
    inputs = torch.randn(9, 4), torch.randint(0, 9, (2, 20))
    if name in ON_8_6 or "8.6" not in version:
        assert_compiles_whole(model, inputs)
        return
    compiled = torchtrt.compile(model, inputs, min_block_size=1)
    with torch.no_grad():
        assert_close([compiled(*inputs)], [model(*inputs)])
    assert any("depends on data" in row.reason for row in compiled.report.in_torch)
