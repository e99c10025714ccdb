"""The demo's models on the real TensorRT and an NVIDIA GPU; skipped everywhere else.

Run with ``TORCHTRT_TENSORRT=real pytest tests/gpu plugins``.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchtrt
from docs.demo.models import Decoder, ResNet18
from docs.demo.sentences import SENTENCES, load_encoder, sizes, tokenize
from tests.support.compiled import assert_same, engines_of
from torchtrt.errors import EngineError, InputError
from torchtrt.tensorrt import is_real

pytestmark = [
    pytest.mark.tensorrt,
    pytest.mark.skipif(not is_real(), reason="needs the real TensorRT and an NVIDIA GPU"),
    # Of PyTorch's importing Inductor.
    pytest.mark.filterwarnings("ignore:`torch.jit"),
    # Of Inductor, where PyTorch may not use TF32.
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]

SETTINGS = {"require_full_compilation": True, "disable_tf32": True, "tactic_sources": 0}


@pytest.fixture(autouse=True)
def full_precision(monkeypatch):
    """Keeps TF32 off on PyTorch's side too."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def test_the_sentence_encoder_matches_eager_at_every_size():
    """One engine for 1 to 32 sentences of 2 to 128 tokens."""
    encoder, tokenizer = load_encoder()
    encoder.cuda()
    ids, mask = (tensor.cuda() for tensor in tokenize(tokenizer, SENTENCES))

    compiled = torchtrt.compile(encoder, (ids, mask), dynamic_shapes=sizes(), **SETTINGS)

    assert_same(compiled, encoder, ids, mask)
    for batch, length in ((1, 2), (3, 17), (32, 128)):
        tokens = torch.randint(1000, 2000, (batch, length), device="cuda")
        assert_same(compiled, encoder, tokens, torch.ones_like(tokens))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_the_convolutional_network_matches_eager(dtype):
    """A dynamic batch, in single and in half precision."""
    torch.manual_seed(0)
    model = ResNet18(classes=10).eval().cuda().to(dtype)
    shapes = torchtrt.Input(
        min_shape=(1, 3, 64, 64), opt_shape=(4, 3, 64, 64), max_shape=(8, 3, 64, 64), dtype=dtype
    )

    compiled = torchtrt.compile(model, [shapes], optimization_level=1, **SETTINGS)

    for batch in (1, 4, 8):
        images = torch.rand(batch, 3, 64, 64, device="cuda", dtype=dtype)
        tolerance = 1e-4 if dtype is torch.float32 else 2e-2
        assert_same(compiled, model, images, tolerance=tolerance)


def test_the_decoder_matches_eager_at_every_length():
    """Dynamic batch and length, 64-bit token ids."""
    torch.manual_seed(0)
    model = Decoder(vocabulary=100, width=32, heads=4, layers=2, context=64).eval().cuda()
    shapes = torchtrt.Input(
        min_shape=(1, 2), opt_shape=(2, 16), max_shape=(4, 64), dtype=torch.int64
    )

    compiled = torchtrt.compile(model, [shapes], **SETTINGS)

    for batch, length in ((1, 2), (2, 16), (3, 33), (4, 64)):
        assert_same(compiled, model, torch.randint(0, 100, (batch, length), device="cuda"))


def test_outputs_of_unknown_size_come_out_at_their_own():
    """An output allocator provides memory once the engine has its size."""

    class Positions(torch.nn.Module):
        def forward(self, x):
            return torch.nonzero(torch.relu(x)) * 2

    compiled = torchtrt.compile(Positions().eval(), (torch.rand(3, 4).cuda(),), **SETTINGS)

    for count in (1, 5, 12):
        x = -torch.ones(3, 4, device="cuda")
        x.view(-1)[:count] = 1.0
        assert_same(compiled, Positions(), x)


def test_pytorch_runs_between_two_engines():
    """An op that no pack has splits the model; values pass through GPU memory."""
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.Tanh(), WithoutConverter(), torch.nn.ReLU()
    )
    model.eval().cuda()

    compiled = torchtrt.compile(
        model, (torch.rand(4, 8).cuda(),), min_block_size=1, disable_tf32=True, tactic_sources=0
    )

    engines = engines_of(compiled)
    assert 2 == len(engines)
    assert_same(compiled, model, torch.rand(4, 8).cuda())


class WithoutConverter(torch.nn.Module):
    """An op without a converter."""

    def forward(self, x):
        """Returns the incomplete gamma function."""
        return torch.igamma(x.abs() + 1, x.abs() + 2)


def test_tensors_on_the_cpu_are_refused():
    """An engine of the real TensorRT reads GPU memory only."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval().cuda()
    compiled = torchtrt.compile(model, (torch.rand(2, 4).cuda(),), **SETTINGS)

    with pytest.raises(EngineError, match="runs on CUDA tensors"):
        compiled(torch.rand(2, 4))
    with pytest.raises(InputError):
        compiled(torch.rand(3, 4).cuda())


class Mixed(torch.nn.Module):
    """Computes in float16, and in float32 what has never been anything else."""

    def __init__(self):
        super().__init__()
        self.narrow = torch.nn.Linear(16, 16, dtype=torch.float16)
        self.wide = torch.nn.Linear(16, 16)

    def forward(self, x):
        """Returns both, and the second of the first, cast."""
        half = self.narrow(x.half()) * 300
        mean = half.float().pow(2).mean(-1)  # beyond what float16 holds
        return half, self.wide(x), torch.log(x.abs() + 1), torch.full_like(x, -1.7658), mean


def test_float32_beside_float16_keeps_its_digits():
    """TensorRT 8.6 computes in float16 whatever is not held to float32, where it may."""
    model = Mixed().eval().cuda()
    x = torch.randn(8, 16, device="cuda")

    compiled = torchtrt.compile(model, [x], **SETTINGS)

    with torch.no_grad():
        results, expected = compiled(x)[1:], model(x)[1:]
    torch.testing.assert_close(results[:-1], expected[:-1], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results[-1], expected[-1], rtol=1e-2, atol=1e-2)


class NormedLayers(torch.nn.Module):
    """Products, and between them what Inductor makes one kernel of."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = (
            torch.nn.Linear(32, 64),
            torch.nn.LayerNorm(64),
            torch.nn.Linear(64, 8),
        )

    def forward(self, x):
        """Returns the products, and what comes between them."""
        hidden = self.first(x).relu()
        hidden = self.norm(hidden) * 2 + hidden
        return self.second(hidden), hidden


@pytest.mark.parametrize("graphs", [False, True, "overwrite"])
def test_inductor_compiles_what_lies_between_engines(graphs, tmp_path):
    """For sizes that vary, from threads, recorded, and after loading."""
    model = NormedLayers().eval().cuda()
    rows = torchtrt.Input(min_shape=(1, 32), opt_shape=(4, 32), max_shape=(64, 32))
    left = {"aten.layer_norm", "aten.mul", "aten.add"}
    settings = {"disable_tf32": True, "tactic_sources": 0, "min_block_size": 1}

    compiled = torchtrt.compile(
        model, [rows], inductor=True, cuda_graphs=graphs, torch_executed_ops=left, **settings
    )

    assert 2 == len(compiled.report.blocks)
    torchtrt.save(compiled, tmp_path / "model.pt2")
    for module in (compiled, torchtrt.load(tmp_path / "model.pt2")):
        for count in (4, 4, 4, 9, 64, 1, 4):
            assert_same(module, model, torch.rand(count, 32, device="cuda"))

    def call(count):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                x = torch.rand(count, 32).cuda()  # on the GPU while another records: refused
                assert_same(compiled, model, x)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(call, (2, 4, 9, 64)))


def test_tuning_keeps_what_is_right():
    """Whatever is fastest: engines, PyTorch, or Inductor."""
    model = NormedLayers().eval().cuda()
    x = torch.rand(16, 32, device="cuda")

    compiled = torchtrt.compile(
        model,
        [x],
        tune=True,
        cuda_graphs=True,
        min_block_size=1,
        disable_tf32=True,
        tactic_sources=0,
    )

    lines = compiled.report.tried
    assert any("compiled by Inductor" in line for line in lines)
    assert not any("fails" in line for line in lines), lines
    for _ in range(4):
        assert_same(compiled, model, torch.rand(16, 32, device="cuda"))


DROPPED = """
import torch, torchtrt

def run():
    model = torch.nn.Linear(4, 4).eval().cuda()
    x = torch.rand(2, 4, device="cuda")
    compiled = torchtrt.compile(model, [x], min_block_size=1, cuda_graphs=True, tactic_sources=0)
    for _ in range(5):
        result = compiled(x)

run()
"""


def test_a_process_that_dropped_recordings_ends_well():
    """What recordings leave behind is nothing that the interpreter stumbles over when it ends."""
    ended = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True)

    assert 0 == ended.returncode, ended.stderr


def test_generating_replays_what_was_recorded(monkeypatch):
    """A step's inputs differ from token to token in nothing but numbers and places; the cache stays where it is."""
    transformers = pytest.importorskip("transformers")
    from torchtrt_converters_transformers import compile_for_generation

    config = transformers.GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=100, eos_token_id=None, bos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config).eval().cuda()
    compiled = compile_for_generation(model, max_length=64, cuda_graphs=True, **SETTINGS)
    options = {"max_new_tokens": 30, "min_new_tokens": 30, "do_sample": False, "pad_token_id": 0}
    unrecorded = []
    run = compiled.step.executor.inner
    monkeypatch.setattr(
        compiled.step.executor, "inner", lambda *args: unrecorded.append(args) or run(*args)
    )

    for length in (8, 20, 8):
        prompt = torch.randint(1, 100, (1, length), device="cuda")
        expected = model.generate(prompt, **options)
        assert torch.equal(compiled.generate(prompt, **options), expected)

    assert len(unrecorded) < 10  # of 87 steps
