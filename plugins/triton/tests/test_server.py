"""Saved models in NVIDIA's server give clients what eager PyTorch gives, with core and runtime alone.

They are slow because a server starts, and imports PyTorch once for each model.
"""

import concurrent.futures
import json
import os
import venv
import warnings

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.environment import Environment
from tests.support.triton_server import TYPES, Refused, TritonServer, needs_serving
from torchtrt_triton import ServingOptions, add_model

pytestmark = [pytest.mark.slow, needs_serving]
SERVER = ["torchtrt-core", "torchtrt-runtime", "torchtrt-reference"]
BATCHED = ServingOptions(dynamic_batching=True, max_queue_delay=20_000, instances=2)


def varying(*sizes, dtype=torch.float32):
    """An input whose sizes vary where they are pairs of a minimum and a maximum."""
    low, high = ([size if isinstance(size, int) else size[end] for size in sizes] for end in (0, 1))
    return torchtrt.Input(min_shape=low, opt_shape=high, max_shape=high, dtype=dtype)


class Classifier(nn.Module):
    """Logits and a class for each row."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 5))

    def forward(self, x):
        logits = self.layers(x)
        return {"logits": logits, "best": logits.argmax(-1)}


class Words(nn.Module):
    """Sentences of any length in a batch, with a mask."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 6)

    def forward(self, ids, mask):
        return (self.table(ids) * mask.unsqueeze(-1)).cumsum(1)


class Kinds(nn.Module):
    """A value of each dtype that Triton and PyTorch have."""

    def forward(self, values):
        return {f"{name}_out": value.flip(0) for name, value in values.items()}


class Numbers(nn.Module):
    """Inputs without dimensions and of several first sizes, and numbers among the outputs."""

    def forward(self, x, scale, *, extra, factor=2):
        scaled = x * scale * factor
        pair = extra + 1, 0.5, True
        return {"scaled": scaled, "sum": x.sum(), "no": None, "rows": x.shape[0], "pair": pair}


KINDS = {name.lower(): torch.tensor([0, 1, 1, 1, 0]).to(dtype) for name, dtype in TYPES.items()}


def save(model, path, inputs, **settings):
    """Compiles a model on the reference, and saves it."""
    torch.manual_seed(0)
    model = model().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that PyTorch runs all of it
        torchtrt.save(torchtrt.compile(model, inputs, min_block_size=1, **settings), path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the repository. Its name has no space, which the Python backend could not read."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def models(folder):
    """The eager models by their names in the repository."""
    made = {}
    repository = folder / "repository"

    def add(name, model, inputs, options=None, **settings):
        path = folder / f"{name} model.pt2"
        made[name] = save(model, path, inputs, **settings)
        return add_model(path, repository, name, options=options)

    add("classifier", Classifier, [varying((1, 16), 8)], BATCHED)
    words = [varying((1, 8), (1, 12), dtype=torch.int64), varying((1, 8), (1, 12))]
    add("words", Words, words, BATCHED)
    add("kinds", Kinds, [KINDS])
    extra = torch.rand(3)
    inputs = [varying((2, 9), 4), torch.tensor(2.0)]
    add("numbers", Numbers, inputs, kwarg_inputs={"extra": extra})
    wide = [torchtrt.Input(ranges=[((1, 4), (2, 4), (4, 4)), ((1, 64), (1, 64), (1, 64))])]
    add("ranges", lambda: nn.Softmax(-1), wide, BATCHED)
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment, first on PATH, with the distributions of a server and no others."""
    path = tmp_path_factory.mktemp("server")
    venv.create(path)
    (packages,) = path.glob("lib/python*/site-packages")
    Environment(packages, SERVER)
    return {"PATH": f"{path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}


@pytest.fixture(scope="module")
def server(folder, models, environment, tmp_path_factory):
    """A running server."""
    work = tmp_path_factory.mktemp("work")
    with TritonServer(folder / "repository", work, environment) as running:
        yield running


def same(expected, found):
    """Compares, NaN equal to NaN."""
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_concurrent_requests_of_every_batch_size_get_their_own_rows(server, models):
    """Though the server runs them together."""

    def call(count):
        x = torch.randn(count, 8)
        return x, server.infer("classifier", {"x": x}).outputs

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for x, found in threads.map(call, [*range(1, 17)] * 6):
            expected = models["classifier"](x)
            same(expected["logits"], found["logits"])
            same(expected["best"].unsqueeze(-1), found["best"])
    statistics = json.loads(server.request("/v2/models/classifier/stats")[0])["model_stats"][0]
    assert 96 == statistics["inference_stats"]["success"]["count"]
    assert statistics["execution_count"] < 96


def test_requests_of_different_lengths_are_not_mixed(server, models):
    """Neither when they are on their way together."""

    def call(sizes):
        given = {"ids": torch.randint(0, 50, sizes), "mask": torch.rand(sizes).round()}
        return given, server.infer("words", given).outputs

    sizes = [(batch, length) for batch in (1, 3, 8) for length in (1, 5, 12)] * 4
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for given, found in threads.map(call, sizes):
            same(models["words"](**given), found["output_0"])
