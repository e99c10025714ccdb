"""Kernels of packs in engines on an NVIDIA GPU: by the reference's protocol, and by the real TensorRT."""

import pytest
import torch

import torchtrt
from tests.support.compiled import assert_same
from tests.support.modules import Function
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs
from torchtrt.tensorrt import Capability, is_real, supports
from torchtrt_kernels import CompiledKernel

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
pytestmark = [pytest.mark.tensorrt, needs_gpu]


@torch.library.custom_op("gpu_kernels::windows", mutates_args=())
def windows(x: torch.Tensor, size: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns windows over the last dimension, and where they are positive."""
    parts = x.unfold(-1, size, step).contiguous()
    return parts, parts > 0


@windows.register_fake
def _(x, size, step):
    shape = *x.shape[:-1], (x.shape[-1] - size) // step + 1, size
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.bool)


@pytest.fixture
def kernels():
    """A pack with a plugin, gone after the test; a TensorRT without plugins is skipped."""
    if not supports(Capability.PLUGINS_V3):
        pytest.skip("the TensorRT in use has no plugins")
    pack = ConverterPack("gpu_kernels")
    pack.plugin(windows)
    with use_packs():
        add_pack(pack, PackInfo("gpu_kernels", "torchtrt-converters-gpu-kernels"))
        yield


def compiled(dtype, **settings):
    """Returns a model with a plugin between layers, and what becomes of it."""

    def function(x):
        parts, positive = windows(x * 2 - 1, 3, 2)
        return parts + 1, positive.logical_not()

    model = Function(function).eval()
    sizes = {"min_shape": (1, 8), "opt_shape": (4, 33), "max_shape": (16, 64)}
    inputs = [torchtrt.Input(**sizes, dtype=dtype)]
    settings = {"require_full_compilation": True, **settings}
    return model, torchtrt.compile(model.cuda(), inputs, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_kernel_matches_eager(kernels, dtype):
    """At each size, on the default stream and on another one."""
    model, engine = compiled(dtype)
    side = torch.cuda.Stream()

    for shape in ((1, 8), (5, 33), (16, 64)):
        x = torch.rand(shape, device="cuda").to(dtype)
        assert_same(engine, model, x)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert_same(engine, model, x)


@pytest.mark.skipif(not is_real(), reason="captures an engine of the real TensorRT")
def test_a_kernel_is_replayed_in_a_cuda_graph(kernels):
    """With other values in each call."""
    model, engine = compiled(torch.float32, cuda_graphs=True)

    for _ in range(5):
        assert_same(engine, model, torch.rand(4, 33, device="cuda"))


def test_a_saved_kernel_matches_eager(kernels, tmp_path):
    """The plan creates the plugin again."""
    model, engine = compiled(torch.float32)
    torchtrt.save(engine, tmp_path / "model.pt2")

    loaded = torchtrt.load(tmp_path / "model.pt2")

    assert_same(loaded, model, torch.rand(3, 21, device="cuda"))


def doubling_kernel(x):
    """Returns the Triton kernel of ``doubled``, compiled for this GPU."""
    triton = pytest.importorskip("triton")
    from tests.gpu.triton_kernels import doubled_kernel

    names = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
    pointer = f"*{names[x.dtype]}"
    signature = {"x": pointer, "n": "i32", "y": pointer, "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(
        fn=doubled_kernel, signature=signature, constexprs={"BLOCK": 256}
    )
    n = x.numel()
    return CompiledKernel.of_triton(triton.compile(source), ((n + 255) // 256,), (n,))


@torch.library.custom_op("gpu_kernels::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    """Raises: a plan has its kernel."""
    raise NotImplementedError


doubled.register_fake(torch.empty_like)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_kernel_in_the_plan_needs_no_pack(dtype, tmp_path):
    """At each size, on the default stream and on another one; a saved model loads without the pack."""
    if not supports(Capability.AOT_PLUGINS):
        pytest.skip("the TensorRT in use has no such plugins")
    pack = ConverterPack("gpu_compiled")
    pack.plugin(doubled, aot=doubling_kernel)
    sizes = {"min_shape": (1, 8), "opt_shape": (4, 33), "max_shape": (64, 64)}
    inputs = [torchtrt.Input(**sizes, dtype=dtype)]
    model = Function(lambda x: doubled(x + 1) - 1).eval()
    with use_packs():
        add_pack(pack, PackInfo("gpu_compiled", "torchtrt-converters-gpu-compiled"))
        made = torchtrt.compile(model.cuda(), inputs, require_full_compilation=True)
    torchtrt.save(made, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")
    side = torch.cuda.Stream()

    for engine in (made, loaded):
        for shape in ((1, 8), (5, 33), (64, 64)):
            x = torch.rand(shape, device="cuda").to(dtype)
            torch.testing.assert_close(engine(x), (x + 1) * 2 - 1)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.testing.assert_close(engine(x), (x + 1) * 2 - 1)
