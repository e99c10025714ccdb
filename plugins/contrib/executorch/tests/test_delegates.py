"""The bytes of delegates, and the engines that a delegate cannot run; nothing here needs ExecuTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torchtrt
from torchtrt.errors import UnreadableFileError, UnsupportedProgramError
from torchtrt_executorch.blobs import engine_blob
from torchtrt_executorch.engines import delegate_of, engine_nodes

from .delegates import parse


class Model(torch.nn.Module):
    """One engine with two inputs and two outputs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x) - y, (x * y).sum(-1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model of one engine."""
    rows = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(8, 4))
    with torchtrt.use_tensorrt("reference@11.4.0"):
        compiled = torchtrt.compile(Model().eval(), [rows, rows])
    path = tmp_path_factory.mktemp("delegates") / "model.pt2"
    torchtrt.save(compiled, path)
    return path


def described(path: Path, **changes: Any) -> Any:
    """Returns the program of a file, whose engine is described with other fields."""
    program = torch.export.load(path)
    (node,) = engine_nodes(program.graph)
    inputs, plan, text = node.args
    node.args = (inputs, plan, json.dumps({**json.loads(str(text)), **changes}))
    return program


@pytest.mark.parametrize("size", [0, 1, 15, 16, 1000])
def test_a_delegate_has_its_plan_at_a_multiple_of_16_bytes(size: int) -> None:
    """Behind the names, which are as they are, and before nothing else."""
    plan = bytes(range(256)) * 4

    blob = engine_blob(plan[:size], ["größe", 'a"b'], ["y"], on_later_gpus=True)

    metadata, kept = parse(blob)
    assert kept == plan[:size]
    assert [binding["name"] for binding in metadata["io_bindings"]] == ["größe", 'a"b', "y"]
    assert [binding["is_input"] for binding in metadata["io_bindings"]] == [True, True, False]
    assert metadata["hardware_compatible"]
    assert "größe".encode() in blob


def test_a_delegate_has_the_engine_and_its_names(path: Path) -> None:
    """In the order of the arguments and of the results."""
    program = torch.export.load(path)
    (plan,) = (value.numpy().tobytes() for value in program.constants.values())

    metadata, kept = parse(delegate_of(program))

    assert kept == plan
    assert [binding["name"] for binding in metadata["io_bindings"]] == [
        "x", "y", "output_0", "output_1",
    ]  # fmt: skip
    assert not metadata["hardware_compatible"]
    assert parse(delegate_of(described(path, compatible=["hardware"])))[0]["hardware_compatible"]


def wide(path: Path, **changes: Any) -> dict[str, Any]:
    """Returns the field of inputs with other entries."""
    (node,) = engine_nodes(torch.export.load(path).graph)
    inputs = json.loads(str(node.args[2]))["inputs"]
    return {"inputs": [{**inputs[0], **changes}, inputs[1]]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (lambda _: {"stripped": {"attributes": ["w"]}}, "it has no weights"),
        (lambda _: {"collectives": [["all_reduce", "0", []]]}, "exchanges tensors"),
        (lambda _: {"requires_output_allocator": True}, "depends on the data"),
        (lambda path: wide(path, ranges=[1, 2]), "several ranges"),
        (lambda path: wide(path, dtype="float64"), "computes in 32 bits"),
        (
            lambda path: {**wide(path, dtype="int64"), "tensorrt": "TensorRT 8.6.0"},
            "computes in 32 bits",
        ),
        (
            lambda _: {"plugins": [{"pack": "p", "name": "p::box", "version": "1"}]},
            r"the kernel of p::box, which needs Python.*pack\.plugin\(\.\.\., aot=",
        ),
    ],
)
def test_an_engine_that_needs_more_than_a_delegate_is_refused(
    path: Path, changes: Callable[[Path], dict[str, Any]], reason: str
) -> None:
    """With its name and the reason."""
    program = described(path, **changes(path))

    with pytest.raises(
        UnsupportedProgramError, match=f"cannot run the engine of block_0: .*{reason}"
    ):
        delegate_of(program)


def test_a_kernel_in_the_plan_is_no_obstacle(path: Path) -> None:
    """It needs no Python; 64-bit integers are none on a TensorRT that has them."""
    plugin = {"pack": "p", "name": "p::box", "version": "1", "kernel": "box"}

    assert delegate_of(described(path, plugins=[plugin]))
    assert delegate_of(described(path, **wide(path, dtype="int64")))


def test_a_damaged_plan_is_refused(path: Path) -> None:
    """Its checksum is in the description."""
    with pytest.raises(UnreadableFileError, match="plan of block_0 is damaged"):
        delegate_of(described(path, plan_crc32=1))


def test_results_that_are_not_those_of_the_engine_are_refused(path: Path) -> None:
    """The runtime binds them by their positions."""
    program = torch.export.load(path)
    output = program.graph.output_node()
    (results,) = output.args
    for wrong in (results[:1], (results[1], results[0]), (*results, results[0])):  # type: ignore[index, misc]
        output.args = (wrong,)
        with pytest.raises(UnsupportedProgramError, match="does not return the 2 outputs"):
            delegate_of(program)


def test_arguments_that_are_not_those_of_the_engine_are_refused(path: Path) -> None:
    """An input twice, and an argument that the engine does not read."""
    program = torch.export.load(path)
    (node,) = engine_nodes(program.graph)
    (first, _), plan, text = node.args  # type: ignore[misc]

    node.args = ([first, first], plan, text)
    with pytest.raises(UnsupportedProgramError, match="has other arguments"):
        delegate_of(program)


def test_without_executorch_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing the package needs nothing."""
    import sys

    import torchtrt_executorch

    monkeypatch.setitem(sys.modules, "executorch", None)
    monkeypatch.delitem(sys.modules, "torchtrt_executorch.lowering", raising=False)
    with pytest.raises(ImportError, match=r"needs ExecuTorch .*pip install executorch"):
        torchtrt_executorch.lower  # noqa: B018
