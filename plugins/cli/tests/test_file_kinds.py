"""Files that hold no exported program: the commands say what they are, and what compiles them."""

import json
import struct

import pytest
import torch

import torchtrt
from torchtrt_cli import main

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Model(torch.nn.Module):
    """Two inputs of one batch."""

    def __init__(self):
        super().__init__()
        self.embedding, self.linear = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 3)

    def forward(self, x, y):
        return self.linear(x) + self.embedding(y)[:, :3]


@pytest.fixture
def scripted(tmp_path):
    """A TorchScript model in a file."""
    path = tmp_path / "model.ts"
    torch.jit.script(Model().eval()).save(path)
    return path


def test_a_torchscript_model_is_compiled_for_the_inputs_of_arguments(scripted, tmp_path, capsys):
    """With sizes that vary, an optimum and dtypes."""
    out = tmp_path / "out.pt2"
    inputs = ["--input", "1-2-8,4", "--input", "1-2-8:int64"]
    arguments = ["compile", str(scripted), *inputs, "--output", str(out)]
    assert main([*arguments, "--set", "min_block_size=1"]) == 0

    assert "Compared with eager PyTorch" in capsys.readouterr().out
    model, compiled = torch.jit.load(scripted), torchtrt.load(out)
    for count in (1, 5, 8):
        call = torch.rand(count, 4), torch.arange(count)
        torch.testing.assert_close(compiled(*call), model(*call))
    with pytest.raises(torchtrt.errors.InputError):
        compiled(torch.rand(9, 4), torch.arange(9))


@pytest.mark.parametrize("text", ["a,4", "1-2-3-4,4", "2,4:floating", "-1,4", "2,4:Tensor"])
def test_a_text_that_describes_no_input_is_an_error(scripted, tmp_path, capsys, text):
    """With a text that does."""
    out = tmp_path / "out.pt2"
    assert main(["compile", str(scripted), f"--input={text}", "--output", str(out)]) == 2
    assert "write the sizes and the dtype, as 1,3,224,224" in capsys.readouterr().err


def test_sizes_of_an_exported_program_are_its_own(tmp_path, capsys):
    """An argument would have no effect on them."""
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.rand(3),)), path)
    arguments = ["compile", str(path), "--input", "3", "--output", str(tmp_path / "out.pt2")]
    assert main(arguments) == 2
    assert "vary as it was exported" in capsys.readouterr().err


def write_scripted(path):
    torch.jit.script(Model().eval()).save(path)


def write_partial(path):
    write_scripted(path)
    path.write_bytes(path.read_bytes()[:2000])


def write_safetensors(path):
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def write_folder(path):
    path.mkdir()


def write_pretrained(path):
    path.mkdir()
    (path / "config.json").write_text("{}")


KINDS = {
    "torchscript": (write_scripted, "It is a TorchScript model. Give the sizes"),
    "weights": (lambda path: torch.save(Model().state_dict(), path), "holds a dictionary"),
    "checkpoint": (lambda path: torch.save({"model": Model().state_dict()}, path), "a dictionary"),
    "tensor": (lambda path: torch.save(torch.rand(3), path), "holds tensors and no model"),
    "tensors": (lambda path: torch.save([torch.rand(3)], path), "holds tensors and no model"),
    "module": (lambda path: torch.save(torch.nn.ReLU(), path), "of the class torch.nn.modules"),
    "old": (
        lambda path: torch.save({}, path, _use_new_zipfile_serialization=False),
        "in the format of before PyTorch 1.6",
    ),
    "onnx": (lambda path: path.write_bytes(b"\x08\x08\x12\x07pytorch"), "It is a model in ONNX"),
    "safetensors": (write_safetensors, "It is a file of safetensors"),
    "plan": (lambda path: path.write_bytes(b"ftrt" + bytes(90)), "It is a plan of TensorRT"),
    "pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1"),
        "git lfs pull",
    ),
    "empty": (lambda path: path.touch(), "It is empty"),
    "partial": (write_partial, "as an interrupted copy leaves it"),
    "folder": (write_folder, "It is a folder. Give the file"),
    "pretrained": (write_pretrained, "of transformers or diffusers"),
    "text": (lambda path: path.write_text("hello"), "It is no zip archive"),
}


@pytest.mark.parametrize("command", ["compile", "explain", "profile"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_holds_no_program_is_described(kind, command, tmp_path, capsys):
    """It is not a corrupted program."""
    write, said = KINDS[kind]
    path = tmp_path / "model.pt2"
    write(path)
    output = ["--output", str(tmp_path / "out.pt2")] if command == "compile" else []
    assert main([command, str(path), *output]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "corrupt" not in error


def test_explain_describes_a_file_of_another_name(scripted, capsys):
    """Which is no op either."""
    assert main(["explain", str(scripted)]) == 2
    assert "It is a TorchScript model" in capsys.readouterr().err
