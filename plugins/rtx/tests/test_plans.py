"""Plans of TensorRT for RTX, which are written where no engine can be loaded."""

import json

import pytest
import torch

import torchtrt
import torchtrt_rtx
from torchtrt.errors import EngineError

pytestmark = [
    pytest.mark.skipif(not torchtrt_rtx.VERSIONS, reason="TensorRT for RTX is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a CPU cannot do"),
]


def test_a_plan_carries_the_names_and_its_description_the_gpus(rtx, tmp_path):
    """NVIDIA's own builder wrote them; that a plan cannot be read here is an error with the GPUs that can."""
    plan = tmp_path / "model.plan"
    rows = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(8, 4))
    names = {"input_names": ["строки 0"], "output_names": ["scores:0"]}
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    compiled = torchtrt.compile(model, [rows], min_block_size=1, **names)

    torchtrt.export_engine(compiled, plan, **names)

    content = plan.read_bytes()
    assert "строки 0".encode() in content
    assert b"scores:0" in content
    described = json.loads((tmp_path / "model.plan.json").read_text(encoding="utf-8"))
    assert described["tensorrt"] == f"rtx@{torchtrt_rtx.VERSIONS[0]}"
    assert described["compute_capabilities"] == list(torchtrt_rtx.COMPUTE_CAPABILITIES)
    with pytest.raises(EngineError, match=r"could not load the plan .*RTX GPUs of compute"):
        torchtrt.engine_module(plan)
