"""TensorRT for RTX as the TensorRT in use: it builds anywhere, with an error for what it cannot do here."""

import json
import subprocess
import sys

import pytest
import torch

import torchtrt
import torchtrt_rtx
from tests.support.modules import Function
from tools import rtx_refusals
from tools.import_graph import ROOT
from torchtrt.errors import EngineError, SettingsError, TensorRTUnavailableError
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs
from torchtrt.tensorrt import selection
from torchtrt_cli import main
from torchtrt_kernels.calls import PluginCall
from torchtrt_kernels.tensorrt_plugins import make_plugin

GPUS = r"RTX GPUs of compute capability 8\.0, 8\.6, 8\.9, and 12\.0 or later"

needs_wheels = pytest.mark.skipif(
    not torchtrt_rtx.VERSIONS, reason="the wheels of TensorRT for RTX are not installed"
)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a CPU cannot do")


def compiled(**settings):
    """Returns a small model with a batch that varies, compiled by the TensorRT in use."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten())
    images = torchtrt.Input(min_shape=(1, 3, 8, 8), opt_shape=(2, 3, 8, 8), max_shape=(4, 3, 8, 8))
    return torchtrt.compile(model.eval(), [images], require_full_compilation=True, **settings)


@needs_wheels
@without_gpu
def test_an_engine_builds_without_a_gpu_and_a_call_names_the_gpus_that_run_it(rtx):
    """The builder needs no GPU, and the runtime one of few kinds."""
    model = compiled()

    assert model.report.tensorrt == f"rtx@{torchtrt_rtx.VERSIONS[0]}"
    assert len(model.report.blocks) == 1
    with pytest.raises(EngineError, match=f"block_0 cannot run: .*{GPUS}.* on cpu"):
        model(torch.rand(2, 3, 8, 8))


@needs_wheels
@without_gpu
def test_a_saved_model_loads_and_tells_its_tensorrt(rtx, tmp_path, capsys):
    """A server with an RTX GPU loads what a laptop built."""
    path = tmp_path / "model.ttrt"
    torchtrt.save(compiled(), path)

    loaded = torchtrt.load(path)
    main(["inspect", str(path)])

    assert f"rtx@{rtx.__version__}" in capsys.readouterr().out
    with pytest.raises(EngineError, match=GPUS):
        loaded(torch.rand(2, 3, 8, 8))


@needs_wheels
def test_converters_see_the_version_of_tensorrt_whose_interface_it_has(rtx):
    """Packs give ranges of TensorRT's own versions, and TensorRT for RTX counts from 1.0."""
    assert rtx.__version__.startswith("1.")
    assert selection.version() == "11.4.0"
    assert selection.describe() == f"rtx@{rtx.__version__}"


@needs_wheels
def test_a_version_that_is_not_installed_is_refused_by_name():
    """One version is installed at a time."""
    with (
        pytest.raises(TensorRTUnavailableError, match=r"has no version '0\.1'"),
        torchtrt.use_tensorrt("rtx@0.1"),
    ):
        pass


@needs_wheels
@without_gpu
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"immutable_weights": False}, "immutable_weights=False needs .* needs a GPU while"),
        (
            {"immutable_weights": False, "strip_engine_weights": True},
            "immutable_weights=False needs .* needs a GPU while",
        ),
        ({"version_compatible": True}, "version_compatible=True needs .* needs the lean runtime"),
    ],
)
def test_a_setting_that_it_cannot_build_with_is_an_error_before_exporting(rtx, setting, reason):
    """An engine without the property that was asked for would be of no use."""
    with pytest.raises(SettingsError, match=reason):
        compiled(**setting)


@needs_wheels
@pytest.mark.parametrize(
    "settings",
    [
        {"sparse_weights": True, "disable_tf32": True},
        {"enable_weight_streaming": True, "optimization_level": 5},
        {"max_aux_streams": 1, "tactic_sources": 0},
    ],
)
def test_the_other_settings_build(rtx, settings):
    """They need no GPU, and nothing is parted because of them."""
    model = compiled(**settings)

    assert len(model.report.blocks) == 1
    assert not model.report.splits


@needs_wheels
def test_sums_in_float32_keep_weights_in_float16(rtx):
    """The casts around a product become a part of it, so the plan has no float32 copy of the weights."""
    model = torch.nn.Linear(256, 512, bias=False).eval().half()
    x = torch.randn(8, 256).half()

    plans = [
        torchtrt.compile(model, [x], min_block_size=1, use_fp32_acc=required).report.blocks[0]
        for required in (False, True)
    ]

    assert plans[0].plan_bytes > 2 * model.weight.numel()
    assert plans[1].plan_bytes < 1.1 * plans[0].plan_bytes


@needs_wheels
def test_engines_are_cached_without_timings(rtx, tmp_path):
    """TensorRT for RTX times nothing, and warns where a timing cache is made."""
    first, second = (compiled(engine_cache=tmp_path) for _ in range(2))

    assert [block.cached for block in (*first.report.blocks, *second.report.blocks)] == [
        False,
        True,
    ]
    assert not list(tmp_path.glob("timings/*"))


class Places(torch.nn.Module):
    """Where a tensor is positive, which depends on data."""

    def forward(self, x):
        return torch.nonzero(x > 0)


@needs_wheels
def test_an_op_that_needs_an_absent_layer_stays_in_pytorch_for_that_reason(rtx):
    """The builder accepts a NonZero layer, and then finds no implementation of it."""
    report = torchtrt.explain(Places().eval(), [torch.randn(3, 4)])

    reasons = {row.op: row.reason for row in report.in_torch}
    assert "TensorRT for RTX has no NonZero layer" in reasons["aten.nonzero.default"]


@needs_wheels
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_a_transposed_convolution_of_bfloat16_builds(rtx, dims):
    """In float32, because TensorRT for RTX has no Deconvolution of bfloat16."""
    kind = getattr(torch.nn, f"ConvTranspose{dims}d")
    model = kind(3, 4, 3, stride=2, output_padding=1).eval().bfloat16()
    x = torch.randn(2, 3, *[5] * dims, dtype=torch.bfloat16)

    built = torchtrt.compile(model, [x], require_full_compilation=True)

    assert not built.report.splits


@needs_wheels
def test_the_doctor_names_it():
    """With the GPUs that its engines run on."""
    environment = "import os; os.environ['TORCHTRT_TENSORRT'] = 'rtx'"
    code = f"{environment}; from torchtrt_cli import main; main(['doctor', '--json'])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    versions = json.loads(done.stdout)["versions"]
    assert versions["TensorRT"].startswith(f"rtx@{torchtrt_rtx.VERSIONS[0]}, NVIDIA TensorRT for")
    assert "torchtrt-rtx" in versions["TensorRTs installed"]


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (12, 0), (12, 1)])
def test_a_supported_gpu_runs_engines(machine, capability):
    """NVIDIA's list: these, and all from 12.0 on."""
    machine.has_gpu(capability)

    assert torchtrt_rtx.device_objection(torch.device("cuda", 0)) == ""


@needs_wheels
@pytest.mark.parametrize(
    ("capability", "is_installed", "expected"),
    [
        (None, False, "reference@"),
        ((9, 0), False, "reference@"),
        ((12, 0), False, "rtx@"),
        ((8, 9), False, "rtx@"),
        ((8, 9), True, "TensorRT 10.9.0"),
    ],
)
def test_without_a_choice_an_rtx_gpu_gets_it(machine, capability, is_installed, expected):
    """Unless the package ``tensorrt`` is installed; an H100 gets the reference."""
    if is_installed:
        machine.has_tensorrt("10.9.0")
    else:
        machine.lacks("tensorrt")
    if capability is None:
        machine.has_no_gpu()
    else:
        machine.has_gpu(capability)

    with torchtrt.use_tensorrt("auto"):
        assert selection.describe().startswith(expected)


@pytest.mark.parametrize("capability", [(7, 5), (9, 0), (10, 0)])
def test_another_gpu_is_named_with_those_that_run_engines(machine, capability):
    """The runtime refuses an H200, for example."""
    machine.has_gpu(capability)

    objection = torchtrt_rtx.device_objection(torch.device("cuda", 0))

    assert "RTX GPUs of compute capability 8.0" in objection
    assert f"NVIDIA Something ({capability[0]}.{capability[1]})" in objection


def test_capabilities_that_need_a_gpu_are_available_where_there_is_one(machine):
    """A capability that TensorRT for RTX lacks stays unavailable."""
    machine.has_gpu((8, 9))

    needing = ("REFIT", "STRIPPED_PLANS")
    assert [torchtrt_rtx.capability_objection(name) for name in needing] == [None, None]
    assert "lean runtime" in torchtrt_rtx.capability_objection("VERSION_COMPATIBILITY")


def test_without_its_wheels_the_error_says_what_to_install(machine):
    """This distribution installs without them, because NVIDIA has them for few platforms."""
    machine.lacks("tensorrt_rtx_bindings")

    with pytest.raises(TensorRTUnavailableError, match=r'pip install "torchtrt-rtx\[tensorrt\]"'):
        torchtrt_rtx.load()


@needs_wheels
@without_gpu
def test_the_page_has_what_the_builder_rejects_in_its_own_words():
    """A version that takes more can declare the capability."""
    page = (ROOT / "docs" / "rtx.md").read_text(encoding="utf-8")

    assert [] == [line for line in rtx_refusals.table() if line not in page]


@torch.library.custom_op("rtx_kernels::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    """Is the op of a plugin."""
    return 2 * x


double.register_fake(torch.empty_like)


@needs_wheels
def test_nvidias_classes_take_our_plugins(rtx):
    """The bindings are those of TensorRT: a registered creator makes a plugin anew from what one serializes."""
    pack = ConverterPack("rtx_bindings")
    pack.plugin(double)
    call = PluginCall([[{"tensor": 0}], {}], ("float32",), (("float32", (["symbol", [0, 0]], 3)),))
    made = make_plugin(pack.plugins[0], call)

    creator = rtx.get_plugin_registry().get_creator("rtx_kernels::double", "1", "rtx_bindings")
    again = creator.create_plugin("layer", made.get_fields_to_serialize(), rtx.TensorRTPhase.BUILD)
    copied = again.clone()

    assert again.call == copied.call == call
    assert isinstance(copied, rtx.IPluginV3 | rtx.IPluginV3OneRuntime)
    assert ("rtx_kernels::double", "1", "rtx_bindings", 1) == (
        copied.plugin_name,
        copied.plugin_version,
        copied.plugin_namespace,
        copied.num_outputs,
    )
    assert copied.get_output_data_types([rtx.DataType.FLOAT]) == [rtx.DataType.FLOAT]
    tensor = rtx.DynamicPluginTensorDesc()
    tensor.desc = description = rtx.PluginTensorDesc()
    for wanted, dtype in ((True, rtx.DataType.FLOAT), (False, rtx.DataType.HALF)):
        description.dims, description.type = rtx.Dims([2, 3]), dtype
        description.format = rtx.TensorFormat.LINEAR
        tensor.desc = description
        assert copied.supports_format_combination(1, [tensor, tensor], 1) is wanted


@needs_wheels
def test_networks_take_no_plugins_and_pytorch_runs_such_an_op(rtx):
    """Its Python interface has the classes of plugins, and no way to add one; the rest is in engines."""
    pack = ConverterPack("rtx_kernels")
    pack.plugin(double)
    model = Function(lambda x: double(x + 1) - 1).eval()

    with use_packs():
        add_pack(pack, PackInfo("rtx_kernels"))
        report = torchtrt.compile(model, [torch.rand(2, 3)], min_block_size=1).report

    assert hasattr(rtx, "IPluginV3")
    assert not hasattr(rtx.INetworkDefinition, "add_plugin_v3")
    (row,) = report.in_torch
    assert "needs plugins of the interface IPluginV3" in row.reason
    assert len(report.blocks) == 2
