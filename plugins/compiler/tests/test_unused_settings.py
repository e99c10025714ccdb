"""No setting is silently ignored."""

import warnings

import pytest
import torch

import torchtrt
import torchtrt_rtx
from tests.support.modules import Function
from torchtrt.errors import SettingsWarning

X = torch.rand(3, 4)
MODEL = Function(lambda x: torch.nn.functional.gelu(x) + x.sum()).eval()


def told(**settings):
    """Returns what a compilation warns about settings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torchtrt.compile(MODEL, [X], min_block_size=1, **settings)
    return [str(warning.message) for warning in caught if warning.category is SettingsWarning]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("torch_executed_ops", {"aten.sin"}),
        ("torch_enabled_decompositions", {"aten.sin"}),
        ("torch_disabled_decompositions", {torch.ops.aten.sin.default}),
        ("converter_preferences", {"aten.sin": "aten_core"}),
    ],
)
def test_an_op_that_the_program_does_not_call_is_named(setting, value):
    """It may be misspelled, as aten.softmax for aten._softmax."""
    (text,) = told(**{setting: value})

    assert f"{setting} names aten.sin, which the program does not call." in text


@pytest.mark.parametrize("pattern", ["gelu", "gel.", "GELU", "0|x"])
def test_a_module_that_the_program_does_not_call_is_named(pattern):
    """A part of a path, or of the name of a class, is no match."""
    (text,) = told(torch_executed_modules=[pattern])

    assert f"torch_executed_modules={pattern!r} matches the whole path of no module" in text


def test_all_of_them_are_in_one_warning():
    """One line for each."""
    (text,) = told(torch_executed_ops={"aten.sin", "aten.cos"}, autocast_excluded_nodes={"x"})

    assert len(text.splitlines()) == 4
    assert "autocast_excluded_nodes is for the setting autocast, which is not given." in text


def test_an_op_that_autocast_leaves_out_is_named():
    """Where the program does not call it."""
    (text,) = told(autocast=torch.float16, autocast_excluded_ops={"aten.sin", "aten.gelu"})

    assert text.count("names") == 1
    assert "autocast_excluded_ops names aten.sin" in text


def test_autocast_leaves_out_the_op_that_replaces_a_write():
    """It sees no writes in place: a name of the other op has an effect, and one of the write has none."""
    model = Function(lambda x: (x @ x.t()).mul_(2.0)).eval()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torchtrt.compile(
            model,
            [X],
            min_block_size=1,
            autocast=torch.float16,
            autocast_excluded_ops={"aten.mul", "aten.mul_"},
        )

    (text,) = (str(warning.message) for warning in caught if warning.category is SettingsWarning)
    assert text.count("names") == 1
    assert "names aten.mul_, which lowering replaces by others" in text


def test_an_overload_is_named_where_the_program_calls_another():
    """The program does call an op of this name."""
    (text,) = told(torch_executed_ops={"aten.add.Scalar"})

    assert "names aten.add, and the program calls other overloads than aten.add.Scalar." in text


@pytest.mark.parametrize(
    ("function", "name", "op"),
    [
        ("torch.relu", "torch.relu", "aten.relu"),
        (torch.add, "torch.add", "aten.add"),
        (torch.nn.functional.gelu, "torch._C._nn.gelu", "aten.gelu"),
        (torch.nn.functional.softmax, "torch.nn.functional.softmax", "aten.softmax"),
    ],
)
def test_the_op_that_a_function_calls_is_named(function, name, op):
    """Programs call ops: the function that a model's code calls is in none."""
    (text,) = told(torch_executed_ops={function})

    assert f"names {name}, a function and no op: write {op!r}, which it calls." in text


def test_an_op_that_is_replaced_is_named():
    """Writes in place are rewritten: who names the op that writes means the other."""
    model = Function(lambda x: (x + 1).relu_() * 2).eval()

    with pytest.warns(SettingsWarning, match=r"aten\.relu_, which lowering replaces by others"):
        torchtrt.compile(model, [X], min_block_size=1, torch_executed_ops={"aten.relu_"})


@pytest.mark.parametrize(
    "settings",
    [
        {"torch_executed_ops": {"aten.sum"}},
        {"torch_executed_ops": {"aten.add"}},
        {"torch_enabled_decompositions": {"aten.gelu"}},
        {"torch_executed_ops": {"aten.erf"}, "torch_enabled_decompositions": {"aten.gelu"}},
        {"converter_preferences": {"aten.gelu": "aten_core"}},
        {"autocast": torch.float16, "autocast_excluded_ops": {"aten.gelu"}},
    ],
)
def test_what_has_an_effect_is_not_told(settings):
    """Also on an op inside a decomposition, and for one overload of several."""
    assert not told(**settings)


def test_a_preference_of_the_environment_is_for_all_programs(monkeypatch):
    """Not for this one."""
    monkeypatch.setenv("TORCHTRT_PACKS_PREFER", "aten.sin=aten_core")

    assert not told()


def test_a_preferred_pack_that_rejects_each_node_is_named():
    """With its reason."""
    name = "aten.scaled_dot_product_attention"
    model = Function(lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x)).eval()
    preferred = {name: "aten_experimental"}

    with (
        torchtrt.use_tensorrt("reference@8.6.0"),
        pytest.warns(SettingsWarning, match=rf"prefers aten_experimental for {name}, .*: .*8\.6"),
    ):
        torchtrt.compile(
            model, [torch.rand(1, 2, 3, 4)], min_block_size=1, converter_preferences=preferred
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a machine without a GPU says")
@pytest.mark.parametrize("graphs", [True, "overwrite"])
def test_cuda_graphs_without_a_gpu_are_told(graphs):
    """Calls run, one by one, which somebody who measures them must know."""
    (text,) = told(cuda_graphs=graphs)

    assert f"cuda_graphs={graphs!r} replays calls on a GPU, and PyTorch finds none" in text


def test_a_setting_for_another_machine_is_used():
    """TensorRT for RTX builds here for GPUs elsewhere, and says which setting it needs not."""
    if not torchtrt_rtx.VERSIONS:
        pytest.skip("the wheels of TensorRT for RTX are not installed")
    with torchtrt.use_tensorrt("rtx"):
        (text,) = told(cuda_graphs=True, hardware_compatible=True)

    assert "cuda_graphs" not in text
    assert "hardware_compatible=True: engines of rtx@" in text
    assert "target_compute_capabilities" in text
