"""Layers of ModelOpt that compute their weights when these are read, or run in another way while they are exported."""

import copy

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.later import later, needs
from torchtrt.errors import ExportError, InputError, UnsupportedProgramError
from torchtrt_converters_quantization.passes.graphs import Editor

mtq = later("modelopt.torch.quantization")
layers = later("modelopt.torch.quantization.nn")
recurrent = later("modelopt.torch.quantization.nn.modules.quant_rnn")

pytestmark = [needs("modelopt"), pytest.mark.filterwarnings("ignore")]
X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))
DYNAMIC = {
    "quant_cfg": [
        {"quantizer_name": "*", "enable": False},
        {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": 8, "type": "dynamic"}},
    ],
    "algorithm": "max",
}
"""Magnitudes that the model computes."""


class Recurrent(nn.Module):
    """A recurrent layer, and a linear one of its outputs."""

    def __init__(self, kind, **options):
        super().__init__()
        self.recurrent = kind(16, 16, batch_first=True, **options)
        width = options.get("proj_size", 16) * (2 if options.get("bidirectional") else 1)
        self.last = nn.Linear(width, 8)

    def forward(self, x):
        """``(n, length, 16)`` to ``(n, length, 8)``, and the last states."""
        outputs, states = self.recurrent(x)
        return self.last(outputs), states


class Residual(nn.Module):
    """A layer inside a model."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        """The layer's outputs beside its inputs."""
        return x + self.layer(x)


def quantized(model, config, x=X):
    """Returns a model that ModelOpt has calibrated."""
    config = copy.deepcopy(config if isinstance(config, dict) else getattr(mtq, config))
    return mtq.quantize(model.eval().requires_grad_(False), config, lambda model: model(x))


def unquantized(model, x, part=""):
    """Returns what a model computes without the quantizers of a part."""
    enabled = [
        module
        for name, module in model.named_modules()
        if isinstance(module, layers.TensorQuantizer)
        and name.startswith(part)
        and module.is_enabled
    ]
    for quantizer in enabled:
        quantizer.disable()
    result = model(x)
    for quantizer in enabled:
        quantizer.enable()
    return result


def first(outputs):
    """Returns the first output."""
    return outputs[0] if isinstance(outputs, tuple) else outputs


def distance(result, expected):
    """Returns how far apart two results are, of their size."""
    return float((first(result) - first(expected)).norm() / first(expected).norm())


KINDS = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "two-directions": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "two-gru": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "projected": (nn.LSTM, {"proj_size": 8}),
    "without-bias": (nn.GRU, {"bias": False}),
}
CONFIGS = [
    "INT8_DEFAULT_CFG",
    "FP8_DEFAULT_CFG",
    "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "INT8_WEIGHT_ONLY_CFG",
]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_recurrent_layers_are_quantized(kind, config, version):
    """In its mode for exporting, ModelOpt computes them without their quantizers."""
    torch.manual_seed(0)
    layer, options = KINDS[kind]
    model = quantized(Recurrent(layer, **options), config)
    expected = model(X)

    compiled = torchtrt.compile(model, [X], min_block_size=1)

    assert distance(compiled(X), expected) < 2e-6
    assert distance(unquantized(model, X, "recurrent"), expected) > 3e-4
    assert torch.equal(first(expected), first(model(X)))


def test_recurrent_layers_with_computed_magnitudes_are_quantized(version):
    """A bidirectional layer of ModelOpt has quantizers that never run."""
    torch.manual_seed(0)
    model = quantized(Recurrent(nn.GRU, num_layers=2, bidirectional=True), DYNAMIC)

    compiled = torchtrt.compile(model, [X], min_block_size=1)

    assert distance(compiled(X), model(X)) < 2e-6


@pytest.mark.parametrize("config", ["INT8_WEIGHT_ONLY_CFG", "INT8_DEFAULT_CFG"])
def test_sequences_vary_in_length_where_no_inputs_are_quantized(config, version):
    """The layer is one op then, and so it is where all of its quantizers are disabled."""
    torch.manual_seed(0)
    model = quantized(Recurrent(nn.LSTM), config)
    if config == "INT8_DEFAULT_CFG":
        mtq.disable_quantizer(model, "*recurrent*")
    sizes = torchtrt.Input(min_shape=(1, 2, 16), opt_shape=(2, 5, 16), max_shape=(4, 9, 16))

    compiled = torchtrt.compile(model, [sizes], require_full_compilation=True)

    assert any(row.op == "aten.lstm.input" for row in compiled.report.converted)
    for shape in [(1, 2, 16), (3, 9, 16)]:
        x = torch.randn(shape)
        assert distance(compiled(x), model(x)) < 2e-6


def test_quantized_inputs_of_a_recurrent_layer_fix_its_length():
    """ModelOpt computes one step after the other, and the error has its line."""
    model = quantized(Recurrent(nn.LSTM), "INT8_DEFAULT_CFG")
    sizes = torchtrt.Input(min_shape=(1, 2, 16), opt_shape=(2, 5, 16), max_shape=(4, 9, 16))

    with (
        torchtrt.use_tensorrt("reference@11.4.0"),
        pytest.raises(InputError, match=r"quant_rnn\.py"),
    ):
        torchtrt.compile(model, [sizes])


def test_an_error_in_a_recurrent_layer_leaves_the_functions_of_pytorch():
    """ModelOpt replaces them while its layer runs, and does not restore them after an error."""
    model = quantized(Recurrent(nn.LSTM), "INT8_DEFAULT_CFG")
    plain, x = nn.LSTM(16, 16), torch.randn(5, 2, 16)
    expected, functions = plain(x)[0], dict(vars(torch._VF))

    with torchtrt.use_tensorrt("reference@11.4.0"), pytest.raises(ExportError, match="input_size"):
        torchtrt.compile(model, [torch.randn(2, 5, 7)])

    assert torch.equal(expected, plain(x)[0])
    assert functions.get("lstm", torch._VF.lstm) is torch._VF.lstm
    assert "_lstm" not in vars(torch._VF)
    assert distance(model(X), unquantized(model, X, "recurrent")) > 1e-3


class Skipping(nn.Module):
    """A layer of a user's."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x):
        """``(n, 16)`` to the same."""
        return x * self.factor


def skipping(class_):
    """Returns a class of ModelOpt's whose layers quantize their inputs, but not while they are exported."""

    class QuantSkipping(class_):
        def _setup(self):
            self.input_quantizer = layers.TensorQuantizer()
            self.list = nn.ModuleList([layers.TensorQuantizer()])

        def forward(self, x):
            """``(n, 16)`` to the same."""
            if torch.compiler.is_exporting():
                return super().forward(x)
            return self.list[0](super().forward(self.input_quantizer(x)))

    return QuantSkipping


@pytest.fixture
def registered():
    """A layer of a user's that ModelOpt quantizes."""
    mtq.register(Skipping, skipping(layers.QuantModule))
    yield
    mtq.unregister(Skipping)


@pytest.mark.usefixtures("registered")
def test_quantizers_that_the_export_drops_are_an_error_with_their_names():
    """Whatever the reason is."""
    names = ("*input_quantizer", "*list.0")
    config = {
        "quant_cfg": [{"quantizer_name": name, "cfg": {"num_bits": 8}} for name in names],
        "algorithm": "max",
    }
    x = torch.randn(4, 16)
    model = quantized(Residual(Skipping()), config, x)
    message = r"layer\.input_quantizer and 1 more do not run .* a QuantSkipping"

    with torchtrt.use_tensorrt("reference@11.4.0"):
        with pytest.raises(UnsupportedProgramError, match=message):
            torchtrt.compile(model, [x], min_block_size=1)
        mtq.disable_quantizer(model, "*")
        compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert distance(compiled(x), model(x)) < 2e-6


def test_weights_that_modelopt_has_compressed_are_refused():
    """Their class is lost when they are exported."""
    x = torch.randn(4, 32)
    model = quantized(nn.Sequential(nn.Linear(32, 32)), "INT8_DEFAULT_CFG", x)
    mtq.compress(model)

    with (
        torchtrt.use_tensorrt("reference@11.4.0"),
        pytest.raises(UnsupportedProgramError, match=r"mtq\.compress"),
    ):
        torchtrt.compile(model, [x])


def test_a_layer_that_pytorch_computes_without_its_quantizers_is_a_warning():
    """``nn.TransformerEncoderLayer`` has a function of its own for inference."""
    layer = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
    model = quantized(Residual(layer), "INT8_DEFAULT_CFG")

    with torchtrt.use_tensorrt("reference@11.4.0"):
        with pytest.warns(UserWarning, match="set_fastpath_enabled"):
            compiled = torchtrt.compile(model, [X], min_block_size=1)
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert distance(compiled(X), model(X)) < 2e-6
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


EVERY = {
    "conv": (nn.Conv2d(4, 4, 3, padding=1), (2, 4, 6, 6)),
    "transposed": (nn.ConvTranspose2d(4, 4, 3, padding=1), (2, 4, 6, 6)),
    "batch-norm": (nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)), (2, 4, 6, 6)),
    "instance-norm": (nn.Sequential(nn.InstanceNorm2d(4), nn.Conv2d(4, 4, 1)), (2, 4, 6, 6)),
    "layer-norm": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)), (2, 4, 6, 6)),
    "pooling": (nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 4, 1)), (2, 4, 6, 6)),
    "leaky": (nn.Sequential(nn.LeakyReLU(), nn.Linear(6, 6)), (2, 4, 6, 6)),
}
"""A layer that keeps the shape of its input, and that shape."""


@pytest.mark.parametrize("name", EVERY)
def test_every_other_layer_of_modelopt_is_quantized(name, version):
    """With quantizers of its inputs, weights and outputs."""
    torch.manual_seed(0)
    layer, shape = EVERY[name]
    x = torch.randn(shape)
    config = {
        "quant_cfg": [{"quantizer_name": "*", "cfg": {"num_bits": 8, "axis": None}}],
        "algorithm": "max",
    }
    model = quantized(Residual(copy.deepcopy(layer)), config, x)

    compiled = torchtrt.compile(model, [x], min_block_size=1)

    assert distance(compiled(x), model(x)) < 2e-6
    assert distance(unquantized(model, x), model(x)) > 1e-3


def test_a_chain_of_nodes_is_read_once():
    """Each step of a recurrent layer reads the one before several times."""
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    node.meta["val"] = torch.empty(1)
    for _ in range(3000):
        node = graph.call_function(torch.ops.aten.mul.Tensor, (node, node))
        node.meta["val"] = torch.empty(1)
    graph.output(node)

    editor = Editor(torch.fx.GraphModule(nn.Module(), graph))

    assert editor.computed_constant(node) is None
