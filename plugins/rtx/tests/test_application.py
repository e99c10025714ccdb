"""The steps of docs/rtx-application.md, in the processes that they belong to: the build machine's, and the PC's."""

import re

import pytest

import torchtrt_rtx
from tests.support.processes import run_python
from tools.import_graph import ROOT
from torchtrt_cli import main

pytestmark = [
    pytest.mark.slow,  # tests/test_docs.py runs the page as one program
    pytest.mark.skipif(
        not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
    ),
]
PAGE = (ROOT / "docs" / "rtx-application.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
"""The program that compiles, the one that saves, and the application."""
APPLICATION = """
import sys

for name in ("torchtrt_compiler", "torchtrt_converters_aten_core", "torchtrt_reference"):
    sys.modules[name] = None  # step 4 does not install them

import torch
import torchtrt
from torchtrt.errors import EngineError
"""
CALL = """
try:
    loaded(torch.rand(4, 64))
except EngineError as error:
    print(error)
print(loaded.runtime_settings)
"""


def test_an_application_needs_the_saved_file_and_the_runtime_alone(tmp_path, monkeypatch, capsys):
    """The same file is inspected on the one machine and loaded on the other one."""
    build, save, application = BLOCKS
    monkeypatch.chdir(tmp_path)

    exec(compile(build + save, "rtx-application.md", "exec"), {})
    (tmp_path / "pc").mkdir()
    (tmp_path / "model.pt2").rename(tmp_path / "pc" / "model.pt2")
    main(["inspect", str(tmp_path / "pc" / "model.pt2")])
    inspected = " ".join(capsys.readouterr().out.split())
    program = APPLICATION + application + CALL
    ran = run_python("-c", program, cwd=tmp_path / "pc", libraries=())

    assert "GPUs of compute capability 8.0, 8.6, 8.9, 12.0+" in inspected
    assert 0 == ran.returncode, ran.stderr
    assert "my_app" in ran.stdout
    if "cpu" in ran.stdout:
        assert "RTX GPUs of compute capability 8.0, 8.6, 8.9, and 12.0 or later" in ran.stdout
