"""Saved models in NVIDIA's server give clients what eager PyTorch gives, with core and runtime alone.

They are slow because a server starts, and imports PyTorch once for each model.
"""

import concurrent.futures
import dataclasses
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
SERVER = ["torchtrt-core", "torchtrt-kernels", "torchtrt-runtime", "torchtrt-reference"]
BATCHED = ServingOptions(dynamic_batching=True, max_queue_delay=20_000)


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
        return {f"{name}_out": torch.cat([x[2:], x[:2]]) for name, x in values.items()}


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

    two = dataclasses.replace(BATCHED, instances=2)
    add("classifier", Classifier, [varying((1, 16), 8)], two)
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


def same(expected, actual):
    """Compares, NaN equal to NaN."""
    torch.testing.assert_close(actual, expected, equal_nan=True)


def test_concurrent_requests_of_every_batch_size_get_their_own_rows(server, models):
    """Though the server runs them together."""

    def call(count):
        x = torch.randn(count, 8)
        return x, server.infer("classifier", {"x": x}).outputs

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for x, answer in threads.map(call, [*range(1, 17)] * 6):
            expected = models["classifier"](x)
            same(expected["logits"], answer["logits"])
            same(expected["best"].unsqueeze(-1), answer["best"])
    statistics = json.loads(server.request("/v2/models/classifier/stats")[0])["model_stats"][0]
    assert 96 == statistics["inference_stats"]["success"]["count"]
    assert statistics["execution_count"] < 96


def test_requests_of_different_lengths_are_not_mixed(server, models):
    """Neither when they are on their way together."""

    def call(sizes):
        arguments = {"ids": torch.randint(0, 50, sizes), "mask": torch.rand(sizes).round()}
        return arguments, server.infer("words", arguments).outputs

    sizes = [(batch, length) for batch in (1, 3, 8) for length in (1, 5, 12)] * 4
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for arguments, answer in threads.map(call, sizes):
            same(models["words"](**arguments), answer["output_0"])


def test_every_dtype_comes_back(server, models):
    """As bytes; JSON has no BF16, and FP16 only as bytes too."""
    values = {f"values_{name}": value for name, value in KINDS.items()}
    expected = models["kinds"](KINDS)

    answer = server.infer("kinds", values).outputs

    assert {*expected} == {*answer}
    for name, value in expected.items():
        assert value.dtype == answer[name].dtype
        same(value, answer[name])
    with pytest.raises(Refused, match="via JSON is not supported"):
        server.infer("kinds", values, binary=False)


def test_numbers_and_values_without_dimensions_have_one_element(server, models):
    """The names are those of the dictionary's keys; None is left out."""
    x, scale, extra = torch.randn(5, 4), torch.tensor(3.0), torch.rand(3)
    arguments = {"x": x, "scale": scale.reshape(1), "extra": extra}

    for binary in (True, False):
        answer = server.infer("numbers", arguments, binary=binary).outputs
        expected = models["numbers"](x, scale, extra=extra)
        assert ["scaled", "sum", "rows", "pair_0", "pair_1", "pair_2"] == list(answer)
        same(expected["scaled"], answer["scaled"])
        same(expected["sum"].reshape(1), answer["sum"])
        same(torch.tensor([5]), answer["rows"])
        same(extra + 1, answer["pair_0"])
        same(torch.tensor([0.5], dtype=torch.float64), answer["pair_1"])
        same(torch.tensor([True]), answer["pair_2"])


def test_json_not_a_number_and_large_values(server, models):
    """Bytes keep NaN and infinity; a view that is not contiguous is its elements."""
    x = torch.randn(8, 4).T.repeat(1, 2)[:, :8]
    x[1] = torch.nan
    x[2, 3] = torch.inf

    same(models["classifier"](x)["logits"], server.infer("classifier", {"x": x}).outputs["logits"])
    y = torch.rand(2, 8)
    answer = server.infer("classifier", {"x": y}, binary=False).outputs
    same(models["classifier"](y)["logits"], answer["logits"])


def test_sizes_that_do_not_go_together_are_refused_and_others_run(server, models):
    """A batch that is too large for its length runs request by request."""

    def call(sizes):
        x = torch.randn(sizes)
        try:
            return models["ranges"](x), server.infer("ranges", {"input": x}).outputs["output_0"]
        except Refused as error:
            return sizes, error

    sizes = [(1, 64), (4, 4), (1, 64), (2, 4), (1, 64), (2, 64), (1, 64)] * 3
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        for shape, (expected, answer) in zip(sizes, threads.map(call, sizes), strict=True):
            if shape == (2, 64):
                assert 400 == answer.status
                assert "not for all of them together" in str(answer)
            else:
                same(expected, answer)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        ("classifier", {"x": torch.rand(17, 8)}, "batch-size must be <= 16"),
        ("classifier", {"x": torch.rand(2, 9)}, "unexpected shape"),
        ("classifier", {"x": torch.rand(2, 8).double()}, "data-type"),
        ("classifier", {"y": torch.rand(2, 8)}, "unexpected inference input"),
        ("classifier", {}, "inputs"),
        ("nothing", {"x": torch.rand(2, 8)}, "unknown model"),
        ("words", {"ids": torch.ones(1, 13).long(), "mask": torch.ones(1, 13)}, "compiled for 1 to 12"),
        ("words", {"ids": torch.ones(2, 3).long(), "mask": torch.ones(2, 4)}, "size"),
        ("numbers", {"x": torch.rand(1, 4), "scale": torch.rand(1), "extra": torch.rand(3)}, "2"),
    ],
)  # fmt: skip
def test_a_bad_request_is_refused_with_the_reason(server, models, model, inputs, message):
    """By Triton or by the model, and the next request is served."""
    with pytest.raises(Refused, match=message):
        server.infer(model, inputs)

    x = torch.rand(2, 8)
    same(models["classifier"](x)["logits"], server.infer("classifier", {"x": x}).outputs["logits"])


def test_malformed_json_is_refused(server):
    """And the server goes on."""
    for body in (b"{", b"[]", b'{"inputs": 3}', b"\xff"):
        with pytest.raises(Refused, match="error"):
            server.request("/v2/models/classifier/infer", body)
    assert server.is_ready("classifier")


def test_a_restarted_server_has_the_new_version(tmp_path, environment):
    """The last one alone, or those that the policy names. The model has an environment of its own."""
    python = environment["PATH"].partition(":")[0].removesuffix("/bin")
    options = ServingOptions(environment=python)
    repository = tmp_path / "repository"
    path, x = tmp_path / "model.pt2", torch.rand(3, 8)
    first = save(lambda: nn.Linear(8, 2), path, [varying((1, 4), 8)])
    added = add_model(path, repository, "line", options=options)
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    with TritonServer(repository, tmp_path / "one", {}) as server:
        reply = server.infer("line", {"input": x})
        assert "1" == reply.version
        same(first(x), reply.outputs["output_0"])

        second = save(lambda: nn.Sequential(nn.Linear(8, 2), nn.ReLU()), path, [varying((1, 4), 8)])
        assert "2" == add_model(path, repository, "line", options=options).folder.name
        assert "1" == server.infer("line", {"input": x}).version  # it does not poll
    with TritonServer(repository, tmp_path / "two", {}) as server:
        reply = server.infer("line", {"input": x})
        assert "2" == reply.version
        same(second(x), reply.outputs["output_0"])
        with pytest.raises(Refused):
            server.infer("line", {"input": x}, version=1)
    with added.config.open("a") as config:
        config.write("version_policy { all {} }\n")
    with TritonServer(repository, tmp_path / "three", {}) as server:
        same(first(x), server.infer("line", {"input": x}, version=1).outputs["output_0"])
        same(second(x), server.infer("line", {"input": x}, version=2).outputs["output_0"])
