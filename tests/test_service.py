"""The service of docs/serve.md answers in a server of its own, and several clients at a time.

It is slow because the server imports PyTorch in a process of its own.
"""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
import torch

import torchtrt
from tests.test_docs import CODE_BLOCK, PAGES

pytestmark = pytest.mark.slow
(SERVICE,) = (block for block in CODE_BLOCK.findall(PAGES["serve.md"]) if "FastAPI(" in block)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of the service, and the eager model."""
    folder = tmp_path_factory.mktemp("service")
    (folder / "service.py").write_text(SERVICE, encoding="utf-8")
    layers = torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)
    model = torch.nn.Sequential(*layers).eval()
    rows = torchtrt.Input(min_shape=(1, 16), opt_shape=(8, 16), max_shape=(64, 16))
    torchtrt.save(torchtrt.compile(model, [rows], min_block_size=1), folder / "compiled.pt2")
    return folder, model


@pytest.fixture(scope="module")
def address(model):
    """The address of the running service."""
    folder, _ = model
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port)],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/ready", timeout=10).close()
                break
            except OSError:
                is_waiting = process.poll() is None and time.monotonic() < end
                assert is_waiting, (folder / "log.txt").read_text()
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def predict(address, body):
    """Returns the status and the data of an answer."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/predict", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_each_client_gets_its_own_rows(address, model):
    """Requests of every size, eight at a time."""

    def call(count):
        x = torch.randn(count, 16)
        return x, predict(address, json.dumps({"rows": x.tolist()}).encode())

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        for x, (status, body) in threads.map(call, range(1, 65)):
            assert 200 == status
            torch.testing.assert_close(torch.tensor(body["rows"]), model[1](x))


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"{}",
        b'{"rows": []}',
        b'{"rows": [[1, 2]]}',
        b'{"rows": [[1, 2], [3]]}',
        b'{"rows": [["a"]]}',
        json.dumps({"rows": [[0.0] * 16] * 65}).encode(),
        json.dumps({"rows": [[3e38] * 16]}).encode(),  # whose result is not finite
    ],
)
def test_a_bad_request_is_the_clients_fault(address, body):
    """And the service goes on."""
    assert 422 == predict(address, body)[0]
    assert 200 == predict(address, json.dumps({"rows": [[0.0] * 16]}).encode())[0]


def test_not_a_number_is_never_an_answer(address):
    """JSON has none: FastAPI cannot even repeat it in its message."""
    status, _ = predict(address, json.dumps({"rows": [[float("nan")] * 16]}).encode())

    assert 400 <= status
    assert 200 == predict(address, json.dumps({"rows": [[0.0] * 16]}).encode())[0]
