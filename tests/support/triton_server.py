"""NVIDIA's Triton Inference Server, started on the loopback interface, and a client of its REST protocol.

``make serving`` downloads the server. ``SERVING`` names another folder that has it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from tools.import_graph import ROOT

FOLDER = Path(os.environ.get("SERVING", ROOT / ".cache" / "serving"))
_STUB = "triton_python_backend_stub"
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_START = 300.0  # two cores import PyTorch for each model

TYPES = {
    "BOOL": torch.bool, "UINT8": torch.uint8, "UINT16": torch.uint16, "UINT32": torch.uint32,
    "UINT64": torch.uint64, "INT8": torch.int8, "INT16": torch.int16, "INT32": torch.int32,
    "INT64": torch.int64, "FP16": torch.float16, "FP32": torch.float32, "FP64": torch.float64,
    "BF16": torch.bfloat16,
}  # fmt: skip
"""PyTorch's dtype for each type of the protocol."""
_NAMES = {dtype: name for name, dtype in TYPES.items()}

needs_serving = pytest.mark.skipif(
    not (FOLDER / "ready").exists(),
    reason="the servers are not installed: run `make serving`",
)


class Refused(Exception):
    """The server's answer to a bad request.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Reply(NamedTuple):
    """The outputs of a request, and the version of the model that computed them."""

    outputs: dict[str, torch.Tensor]
    version: str


class TritonServer:
    """A server for a repository, in a ``with`` block.

    Args:
        repository: The model repository.
        work: An empty folder for its log and its backends.
        environment: Variables to add: how the Python backend finds Python and its packages.
    """

    def __init__(self, repository: Path, work: Path, environment: Mapping[str, str]) -> None:
        self.repository = repository
        self.log = work / "log.txt"
        self.backends = work / "backends"
        own = FOLDER / "pytriton" / "tritonserver"
        self.binary = own / "bin" / "tritonserver"
        shutil.copytree(own / "backends", self.backends)
        stub = own / "python_backend_stubs" / _VERSION / _STUB
        if not stub.exists():
            pytest.skip(f"the server has no Python backend for Python {_VERSION}")
        for program in (shutil.copy(stub, self.backends / "python"), self.binary):
            Path(program).chmod(0o755)
        libraries = (
            FOLDER / "nvidia_pytriton.libs",
            own / "lib",
            os.environ.get("LD_LIBRARY_PATH"),
        )
        self.environment = {
            **os.environ,
            **environment,
            "LD_LIBRARY_PATH": ":".join(str(library) for library in libraries if library),
            "OMP_NUM_THREADS": "1",
        }
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def __enter__(self) -> TritonServer:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    self.binary,
                    f"--model-repository={self.repository}",
                    f"--backend-directory={self.backends}",
                    "--http-address=127.0.0.1",
                    f"--http-port={self.port}",
                    "--disable-auto-complete-config",
                    "--allow-grpc=false",
                    "--allow-metrics=false",
                    "--exit-on-error=false",
                    "--exit-timeout-secs=5",
                ],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + _START
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.request("/v2/health/live")
                return self
            except (OSError, Refused):
                time.sleep(0.2)
        self.__exit__()
        raise AssertionError(self.log.read_text(errors="replace")[-5000:])

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def request(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        """Returns the body and the headers of an answer.

        Raises:
            Refused: The status is not 200.
        """
        url = f"http://127.0.0.1:{self.port}{path}"
        request = urllib.request.Request(url, body, dict(headers or {}))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            raise Refused(error.code, error.read().decode()) from None

    def is_ready(self, model: str) -> bool:
        """Returns whether the server runs a model."""
        try:
            self.request(f"/v2/models/{model}/ready")
        except Refused:
            return False
        return True

    def infer(
        self,
        model: str,
        inputs: Mapping[str, torch.Tensor],
        version: int | None = None,
        binary: bool = True,
    ) -> Reply:
        """Returns a model's outputs.

        Args:
            model: The model's name.
            inputs: The inputs, none of them 0-d.
            version: The version; the server's choice if omitted.
            binary: Whether numbers travel as bytes, not as JSON.

        Raises:
            Refused: The server, or the model, refuses the inputs.
        """
        path = f"/v2/models/{urllib.parse.quote(model)}"
        path += f"/versions/{version}/infer" if version else "/infer"
        described, data = [], b""
        for name, tensor in inputs.items():
            entry = {"name": name, "datatype": _NAMES[tensor.dtype], "shape": list(tensor.shape)}
            if binary:
                own = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                entry["parameters"] = {"binary_data_size": len(own)}
                data += own
            else:
                entry["data"] = tensor.reshape(-1).tolist()
            described.append(entry)
        header = json.dumps(
            {"inputs": described, "parameters": {"binary_data_output": binary}}
        ).encode()
        length = {"Inference-Header-Content-Length": str(len(header))} if binary else {}
        body, headers = self.request(path, header + data, length)
        split = int(headers.get("Inference-Header-Content-Length", len(body)))
        answer = json.loads(body[:split])
        return Reply(_outputs(answer["outputs"], body[split:]), answer["model_version"])


def _outputs(described: list[dict[str, Any]], data: bytes) -> dict[str, torch.Tensor]:
    """Returns the outputs of an answer by name."""
    outputs, position = {}, 0
    for output in described:
        dtype = TYPES[output["datatype"]]
        if "data" in output:
            tensor = torch.tensor(output["data"], dtype=dtype)
        else:
            size = output["parameters"]["binary_data_size"]
            own = bytearray(data[position : position + size])
            tensor = torch.frombuffer(own, dtype=dtype) if size else torch.empty(0, dtype=dtype)
            position += size
        outputs[output["name"]] = tensor.reshape(output["shape"])
    return outputs
