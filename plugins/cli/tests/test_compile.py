"""``torchtrt compile``, and ``--set`` of every command: settings as text."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

import torchtrt
from torchtrt.errors import SettingsError
from torchtrt.tensorrt import Capability
from torchtrt_cli import main
from torchtrt_cli.settings import parse_settings
from torchtrt_testing.faults import watched_tensorrt


class Model(torch.nn.Module):
    """Two results and a size that varies."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, y):
        return torch.nn.functional.gelu(self.linear(x)), torch.cat([x, y], 1) > 0.5


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The model, exported for 1 to 8 rows and saved."""
    path = tmp_path_factory.mktemp("model") / "model.pt2"
    torch.manual_seed(0)
    rows = torch.export.Dim("rows", min=1, max=8)
    example = torch.rand(4, 4), torch.rand(4, 2)
    sizes = ({0: rows}, {0: rows})
    torch.export.save(torch.export.export(Model().eval(), example, dynamic_shapes=sizes), path)
    return path


def test_a_program_becomes_a_model_and_a_plan_and_is_compared(program, tmp_path, capsys):
    """For each limit of its sizes, with the names that were asked for."""
    model, plan = tmp_path / "out.pt2", tmp_path / "out.plan"
    named = ["--set", "input_names=rows,more", "--set", "output_names=scores,above"]
    assert (
        main(["compile", str(program), "--output", str(model), "--engine", str(plan), *named]) == 0
    )

    out = capsys.readouterr().out
    assert f"Wrote {plan}" in out
    assert out.count("output 0") == out.count("output 1") == 3
    x, y = torch.rand(5, 4), torch.rand(5, 2)
    loaded = torchtrt.load(model)
    for mine, theirs in zip(
        torchtrt.engine_module(plan)(rows=x, more=y), loaded(x, y), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_a_difference_is_told_with_its_place_and_the_exit_status(program, tmp_path, capsys):
    """As JSON too."""

    def off_at_one_place(execution):
        for output in execution.outputs.values():
            if output.dtype is torch.float32:
                output[0, 2] += 9

    arguments = ["compile", str(program), "--output", str(tmp_path / "out.pt2")]
    arguments += ["--set", "min_block_size=1"]

    with watched_tensorrt(changes=off_at_one_place):
        assert main(arguments) == 1
    out = capsys.readouterr().out
    assert "[0, 2]" in out
    assert "output 0 differs by more than its tolerance" in out
    with watched_tensorrt(changes=off_at_one_place):
        assert main([*arguments, "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["differences"][0]
    assert first["indices"] == [0, 2]
    assert first["largest"] == pytest.approx(9)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --output OUT.pt2"),
        (["--output", "{program}"], "would overwrite the model"),
        (["--output", "{folder}/a", "--engine", "{folder}/a"], "would overwrite the other file"),
        (["--output", "{folder}/none/a"], "There is no folder"),
        (["--output", "{folder}/a", "--set", "dryrun=true"], "builds nothing"),
        (["--output", "{folder}/a", "--set", "tune"], "write --set NAME=VALUE"),
        (["--engine", "{folder}/a", "--set", "torch_executed_ops=aten.gelu"], "stay in PyTorch"),
    ],
)
def test_what_cannot_be_written_is_an_error_before_anything_is_built(
    program, tmp_path, capsys, arguments, said
):
    """And leaves no file."""
    options = [argument.format(program=program, folder=tmp_path) for argument in arguments]
    assert main(["compile", str(program), *options]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_engine_of_a_model_with_two_parts_is_refused_with_the_reasons(tmp_path, capsys):
    """Without a build, and whatever ``require_full_compilation`` allows."""

    class Returned(torch.nn.Module):
        def forward(self, x):
            return x, x.relu() + 1

    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Returned(), (torch.rand(3),)), path)
    assert main(["compile", str(path), "--engine", str(tmp_path / "a.plan")]) == 2
    assert "Result 0 is the input 'x'" in capsys.readouterr().err


TEXTS = {
    "torch_executed_ops": ("aten.gelu, aten::add.Tensor", None),
    "torch_executed_modules": (r"a\.\d", frozenset({r"a\.\d"})),
    "torch_executed_on_failure": ("on", True),
    "fallback_data_dependent_ops": ("on", True),
    "min_block_size": ("3", 3),
    "require_full_compilation": ("False", False),
    "dryrun": ("1", True),
    "assume_dynamic_shape_support": ("yes", True),
    "converter_preferences": ("aten.gelu=aten_core", None),
    "torch_enabled_decompositions": ("aten.silu", None),
    "torch_disabled_decompositions": ('{"aten.silu"}', None),
    "disabled_capabilities": ("ATTENTION", frozenset({Capability.ATTENTION})),
    "disabled_passes": ("aten_core.autocast", frozenset({"aten_core.autocast"})),
    "nccl_in_engines": ("true", True),
    "async_tensor_parallel": ("true", True),
    "truncate_double": ("true", True),
    "allow_dequantized_weights": ("no", False),
    "autocast": ("bfloat16", torch.bfloat16),
    "autocast_excluded_ops": ("aten.mul", None),
    "autocast_excluded_nodes": (r"mul_\d{1,2}", frozenset({r"mul_\d{1,2}"})),
    "autocast_calibration_dataloader": ("none", None),
    "autocast_max_output_threshold": ("512.5", 512.5),
    "autocast_max_depth_of_reduction": ("1_000", 1000),
    "max_engine_bytes": ("1_000_000", 1_000_000),
    "offload_module_to_cpu": ("on", True),
    "workspace_size": ("1_000", 1000),
    "optimization_level": ("none", None),
    "tiling_optimization_level": ("full", "full"),
    "l2_limit_for_tiling": ("1_000", 1000),
    "num_avg_timing_iters": ("8", 8),
    "disable_tf32": ("true", True),
    "use_fp32_acc": ("true", True),
    "immutable_weights": ("off", False),
    "strip_engine_weights": ("on", True),
    "tactic_sources": ("0x3", 3),
    "sparse_weights": ("true", True),
    "version_compatible": ("true", True),
    "hardware_compatible": ("true", True),
    "enable_weight_streaming": ("true", True),
    "engine_capability": ("safety", "safety"),
    "enable_cross_compile_for_windows": ("on", True),
    "dla_core": ("1", 1),
    "allow_gpu_fallback": ("on", True),
    "dla_sram_size": ("1_000", 1000),
    "dla_local_dram_size": ("1_000", 1000),
    "dla_global_dram_size": ("none", None),
    "max_aux_streams": ("0", 0),
    "target_compute_capabilities": ("8.6,12.0", ("8.6", "12.0")),
    "user_allocation": ("true", True),
    "share_execution_memory": ("on", True),
    "input_names": ("a,b", ("a", "b")),
    "output_names": ("[]", ()),
    "runtime_cache": ("folder", "folder"),
    "kernel_specialization": ("none", None),
    "verify": ("reference", "reference"),
    "cuda_graphs": ("overwrite", "overwrite"),
    "engine_cache": ("folder", "folder"),
    "timing_cache": ("folder", "folder"),
    "inductor": ("max-autotune", "max-autotune"),
    "tune": ("true", True),
    "progress": ("none", None),
}
"""A text for each setting and, but for ops, its value."""


@pytest.mark.parametrize(
    "name", [field.name for field in dataclasses.fields(torchtrt.CompilationSettings)]
)
def test_every_setting_can_be_given_as_text(name):
    """By its type."""
    text, expected = TEXTS[name]
    parsed = parse_settings([f"{name}={text}"])
    settings = torchtrt.CompilationSettings.from_keywords(**parsed)

    value = getattr(settings, name)
    if expected is None and parsed[name] is not None:
        assert value
    else:
        assert value == expected


def test_a_collection_that_is_given_twice_has_the_elements_of_both():
    """And of anything else the last one counts."""
    texts = ["torch_executed_ops=aten.gelu", "torch_executed_ops=aten.relu", "min_block_size=1"]
    assert parse_settings([*texts, "min_block_size=2"]) == {
        "torch_executed_ops": ["aten.gelu", "aten.relu"],
        "min_block_size": 2,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("optimization_level=high", "optimization_level='high' is not usable: it must be 0 to 5"),
        ("dryrun=maybe", "dryrun='maybe' is not usable: it must be True or False"),
        ("autocast=float8", "autocast='float8' is not usable: it must be torch.float16"),
        ("autocast=int8", "must be torch.float16"),
        ("converter_preferences=aten.gelu", "must be a dictionary"),
        ("optimisation_level=1", "Did you mean 'optimization_level'"),
        ("device=cuda", "no setting named 'device'. It is a setting of Torch-TensorRT. Drop it"),
        ("=1", "write --set NAME=VALUE"),
        ("disabled_capabilities=FAST", "disabled_capabilities=.*ATTENTION"),
        ("torch_executed_ops=aten.nosuch", "--set torch_executed_ops=aten.nosuch: There is no op"),
    ],
)
def test_a_text_that_is_no_setting_is_an_error_with_name_and_values(text, said):
    """The check of the setting itself lists what is accepted."""
    with pytest.raises(SettingsError, match=said):
        parse_settings([text])


def test_explain_takes_settings_and_says_that_a_file_is_missing(program, tmp_path, capsys):
    """A file that is named like none of PyTorch's is no op either."""
    assert main(["explain", str(program), "--set", "torch_executed_ops=aten.gelu"]) == 0
    assert "torch_executed_ops" in capsys.readouterr().out
    for name in ("model.pt", "folder/model", "model.pt2", str(tmp_path / "x.onnx")):
        assert main(["explain", name]) == 2
        assert f"There is no file {name}" in capsys.readouterr().err
    assert main(["explain", "aten.gelu", "--set", "dryrun=1"]) == 2
    assert "--set is for a model" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["explain", "profile"])
def test_a_record_is_kept_with_the_profile(program, tmp_path, capsys, command):
    """And never written over another."""
    arguments = [command, str(program), "--keep", str(tmp_path), "--set", "min_block_size=1"]
    assert main(arguments) == 0
    assert "profile.trace.json" in capsys.readouterr().out
    files = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert {"compilation.log", "layers/block_0.json", "profile.trace.json"} <= files
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert "is not empty" in printed.err
    assert not printed.out  # before anything is compiled
