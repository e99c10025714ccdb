"""Modules that were written for Torch-TensorRT are adopted as they are."""

from __future__ import annotations

import importlib
import sys
import textwrap
import threading

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchtrt
from tests.support.processes import run_python
from torchtrt.errors import ConversionError, PackError
from torchtrt.packs import ConverterPack, current_packs
from torchtrt_converters_torch_tensorrt import adopt
from torchtrt_reference import VERSIONS

library = torch.library.Library("adopted", "DEF")
library.define("blend(Tensor x, Tensor y, float share=0.5) -> Tensor")
library.define("norm_rows(Tensor x, Tensor weight, float eps) -> Tensor")
library.define("positions(Tensor x) -> Tensor")
library.define("pick(Tensor x) -> Tensor")
library.define("lazy(Tensor x) -> Tensor")
library.define("legacy(Tensor x) -> Tensor")


@torch.library.impl(library, "blend", "CompositeExplicitAutograd")
def blend(x, y, share=0.5):
    """A weighted mean."""
    return x * share + y * (1 - share)


@torch.library.impl(library, "norm_rows", "CompositeExplicitAutograd")
def norm_rows(x, weight, eps):
    """Rows divided by their norm."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight


@torch.library.impl(library, "positions", "CompositeExplicitAutograd")
def positions(x):
    """Where each row stands, behind a causal mask."""
    size = x.shape[0]
    mask = torch.arange(size)[:, None] >= torch.arange(size)[None, :]
    return torch.where(mask, 1.0, 0.0) @ x


@torch.library.impl(library, "pick", "CompositeExplicitAutograd")
def pick(x):
    """The place of the largest."""
    return x.argmax(1)


@torch.library.impl(library, "lazy", "CompositeExplicitAutograd")
def lazy(x):
    """One more."""
    return x + 1


@torch.library.impl(library, "legacy", "CompositeExplicitAutograd")
def legacy(x):
    """An exponential."""
    return x.exp()


torch.library.register_fake("adopted::positions", positions)


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("weight", torch.linspace(0.5, 1.5, 6))

    def forward(self, *inputs):
        """Calls the function."""
        return self.function(self, *inputs)


PROGRAM = """
import logging
from collections.abc import Sequence
from typing import Any, Dict, Optional, Tuple, Union

import numpy as np
import tensorrt as trt
import torch
import torch_tensorrt
from tensorrt import ITensor
from torch.fx.node import Argument, Node, Target
from torch_tensorrt import ENABLED_FEATURES
from torch_tensorrt._enums import dtype
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo._SourceIR import SourceIR
from torch_tensorrt.dynamo.conversion import impl
from torch_tensorrt.dynamo.conversion._ConversionContext import ConversionContext
from torch_tensorrt.dynamo.conversion._ConverterRegistry import *
from torch_tensorrt.dynamo.conversion.aten_ops_converters import args_bounds_check, aten_ops_exp
from torch_tensorrt.dynamo.conversion.converter_utils import (
    cast_trt_tensor,
    enforce_tensor_types,
    get_positive_dim,
    get_trt_tensor,
    prepend_ones,
    to_numpy,
)
from torch_tensorrt.dynamo.conversion.impl.elementwise import add as plus
from torch_tensorrt.dynamo.conversion.impl.elementwise.ops import mul
from torch_tensorrt.dynamo.conversion.impl.shape import shape as get_shape
from torch_tensorrt.fx.converters.converter_utils import set_layer_name
from torch_tensorrt.fx.types import TRTTensor

logger = logging.getLogger(__name__)
LOWERED = SourceIR.TORCHTRT_LOWERED


def known_share(node: Node, settings: Optional[CompilationSettings] = None) -> bool:
    return isinstance(args_bounds_check(node.args, 2, 0.5), float) and not settings.use_fp32_acc


@torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter(
    torch.ops.adopted.blend.default,
    enabled=True,
    capability_validator=known_share,
    priority=torch_tensorrt.dynamo.conversion.ConverterPriority.HIGH,
    supports_dynamic_shapes=True,
)
@enforce_tensor_types({0: (TRTTensor,), 1: (TRTTensor,)})
def convert_blend(
    ctx: torch_tensorrt.dynamo.conversion.ConversionContext,
    target: Target,
    args: Tuple[Argument, ...],
    kwargs: Dict[str, Argument],
    name: str,
) -> Union[trt.ITensor, Sequence[trt.ITensor]]:
    share = args_bounds_check(args, 2, replacement=0.5)
    first = mul(ctx, target, SourceIR.ATEN, f"{name}_first", args[0], share)
    rest = get_trt_tensor(ctx, np.array([1 - share]), f"{name}_share", dtype=args[1].dtype)
    rest = prepend_ones(ctx, rest, f"{name}_ones", len(args[1].shape) - 1)
    layer = ctx.net.add_elementwise(args[1], rest, trt.ElementWiseOperation.PROD)
    set_layer_name(layer, target, f"{name}_second", SourceIR.ATEN)
    return plus(ctx, target, SourceIR.ATEN, f"{name}_sum", first, layer.get_output(0))


@dynamo_tensorrt_converter(torch.ops.adopted.norm_rows.default, supports_dynamic_shapes=True)
def convert_norm_rows(ctx: ConversionContext, target: Target, args: Any, kwargs: Any, name: str) -> TRTTensor:
    x, weight, eps = args
    assert isinstance(x, ITensor) and isinstance(x, TRTTensor) and isinstance(weight, torch.Tensor)
    source = SourceIR.ATEN
    square = impl.elementwise.pow(ctx, target, source, f"{name}_square", x, 2)
    last = (get_positive_dim(-1, len(x.shape)),)
    mean = impl.reduce.mean(ctx, target, source, f"{name}_mean", square, dim=last, keepdim=True)
    shifted = impl.elementwise.add(ctx, target, source, f"{name}_eps", mean, eps)
    root = impl.unary.sqrt(ctx, target, source, f"{name}_root", shifted)
    normal = impl.elementwise.div(ctx, target, source, f"{name}_normal", x, root)
    scale = get_trt_tensor(ctx, to_numpy(weight), f"{name}_weight", dtype._from(x.dtype).to(np.dtype), min_rank=2)
    return impl.elementwise.mul(ctx, target, source, f"{name}_scaled", normal, scale)


@dynamo_tensorrt_converter(torch.ops.adopted.positions.default, supports_dynamic_shapes=True)
def convert_positions(ctx: ConversionContext, target: Target, args: Any, kwargs: Any, name: str) -> TRTTensor:
    (x,) = args
    source, size = SourceIR.ATEN, args[0].shape[0]
    if size < 0:
        size = get_shape(ctx, target, source, f"{name}_size", x, 0)
    places = impl.arange.arange(ctx, target, source, f"{name}_places", start=0, end=size, step=1)
    rows = impl.shuffle.reshape(ctx, target, source, f"{name}_rows", places, [size, 1])
    columns = impl.shuffle.reshape(ctx, target, source, f"{name}_columns", places, [1, size])
    mask = impl.elementwise.ge(ctx, target, source, f"{name}_mask", rows, columns)
    mask = cast_trt_tensor(ctx, mask, trt.float32, f"{name}_cast", target, source)
    return impl.matmul.matrix_multiply(ctx, target, source, f"{name}_out", mask, x)


@dynamo_tensorrt_converter(torch.ops.adopted.pick.default, supports_dynamic_shapes=True)
def convert_pick(ctx, target, args, kwargs, name):
    layer = ctx.net.add_topk(args[0], trt.TopKOperation.MAX, 1, 1 << 1)
    return impl.squeeze.squeeze(ctx, target, SourceIR.ATEN, name, layer.get_output(1), 1)


@dynamo_tensorrt_converter(torch.ops.adopted.lazy.default, supports_dynamic_shapes=True)
def convert_lazily(ctx, target, args, kwargs, name):
    import torch_tensorrt.dynamo.conversion.impl as blocks
    from torch_tensorrt.dynamo.conversion.converter_utils import get_trt_tensor as constant

    one = constant(ctx, 1, name, args[0].dtype)
    return blocks.elementwise.add(ctx, target, None, name, args[0], one)


@dynamo_tensorrt_converter(torch.ops.adopted.legacy.default, supports_dynamic_shapes=True)
def convert_legacy(network, target, args, kwargs, name):
    return network.add_unary(args[0], trt.UnaryOperation.EXP).get_output(0)
"""

X, Y = torch.randn(4, 6), torch.randn(4, 6)
MODELS = {
    "blend": (lambda self, x, y: torch.ops.adopted.blend(x, y, 0.25), (X, Y)),
    "blend-half": (lambda self, x, y: torch.ops.adopted.blend(x, y), (X.half(), Y.half())),
    "norm_rows": (lambda self, x: torch.ops.adopted.norm_rows(x, self.weight, 1e-6), (X,)),
    "positions": (lambda self, x: torch.ops.adopted.positions(x), (X,)),
    "pick": (lambda self, x: torch.ops.adopted.pick(x), (X,)),
    "lazy": (lambda self, x: torch.ops.adopted.lazy(x), (X,)),
    "legacy": (lambda self, x: torch.ops.adopted.legacy(x), (X,)),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A module as people publish them, adopted."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "their_converters.py").write_text(PROGRAM)
    sys.path.insert(0, str(folder))
    yield adopt("their_converters")
    sys.path.remove(str(folder))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varying"])
@pytest.mark.parametrize("name", MODELS)
def test_their_converters_give_pytorchs_values(theirs, name, varies, version):
    """With fixed sizes and varying ones, on every TensorRT, whichever was in use when they were adopted."""
    function, tensors = MODELS[name]
    model, size = Function(function).eval(), torch.export.Dim("size", min=2, max=8)
    shapes = (tuple({0: size} for _ in tensors),) if varies else None
    program = torch.export.export(model, tensors, dynamic_shapes=shapes)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        compiled = torchtrt.compile(program, require_full_compilation=True)

    torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-3, atol=1e-3)
    if varies:
        tensors = [torch.cat([each, each[:3]]) for each in tensors]
        torch.testing.assert_close(compiled(*tensors), model(*tensors), rtol=1e-3, atol=1e-3)
    (row,) = compiled.report.converted
    assert (row.pack.split()[0], row.converter.partition(":")[0]) == (
        "their_converters",
        "their_converters",
    )


def test_nobody_else_sees_a_torch_tensorrt(theirs):
    """What asks whether it is installed is told the truth, also while a module is being adopted."""
    assert "torch_tensorrt" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("torch_tensorrt")


def test_adopting_twice_changes_nothing(theirs):
    """The second call gives the same pack with the same converters."""
    count = len(theirs.converters)

    assert theirs is adopt("their_converters")
    assert count == len(theirs.converters)


def test_the_pack_is_listed_by_its_own_name(theirs):
    """In pack order, with where it came from."""
    names = [loaded.info.name for loaded in current_packs().loaded]

    assert "their_converters" in names
    assert names.index("their_converters") > names.index("aten_core")
    assert "local" == names[-1]


def write(tmp_path, monkeypatch, **files):
    """Writes modules where Python finds them."""
    for name, text in files.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()


REGISTER = """
from torch_tensorrt.dynamo.conversion import dynamo_tensorrt_converter, impl
import torch

@dynamo_tensorrt_converter(torch.ops.adopted.legacy.default)
def convert(ctx, target, args, kwargs, name):
    return impl.unary.exp(ctx, target, None, name, args[0])
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from torch_tensorrt.dynamo.conversion.impl import elementwize", "elementwise"),
        ("from torch_tensorrt.dynamo.conversion.impl.unary import expp", "impl.unary.expp"),
        (
            "from torch_tensorrt.dynamo.runtime import TorchTensorRTModule",
            "torchtrt.compile returns",
        ),
        ("import torch_tensorrt; torch_tensorrt.compile(None)", "call torchtrt.compile"),
        ("from torch_tensorrt.dynamo.lowering import torch_enabled_decompositions", "the setting"),
        ("import tensorrt.plugin", "tensorrt.plugin"),
        (
            "from torch_tensorrt.dynamo.conversion._ConverterRegistry import DYNAMO_ATEN_CONVERTERS",
            "priority=ConverterPriority.HIGH",
        ),
    ],
)
def test_a_name_that_we_lack_is_an_error_that_names_it_and_their_module(
    tmp_path, monkeypatch, line, expected
):
    """And nothing of the module is kept: it can be adopted when it is repaired."""
    write(tmp_path, monkeypatch, their_missing=REGISTER + line)
    with pytest.raises(PackError) as caught:
        adopt("their_missing")

    assert expected in str(caught.value)
    assert "their_missing" in str(caught.value)
    assert "their_missing" not in sys.modules
    assert "their_missing" not in [loaded.info.name for loaded in current_packs().loaded]


def test_a_guarded_import_of_what_we_lack_takes_its_other_branch(tmp_path, monkeypatch):
    """What we lack is an ImportError, as it would be with a Torch-TensorRT of another version."""
    guard = """
    try:
        from torch_tensorrt.dynamo.runtime import TorchTensorRTModule
    except ImportError:
        TorchTensorRTModule = None
    assert TorchTensorRTModule is None
    """
    write(tmp_path, monkeypatch, their_guard=REGISTER + textwrap.dedent(guard))

    assert 1 == len(adopt("their_guard").converters)


def test_a_name_missing_in_a_converter_is_told_when_it_converts(tmp_path, monkeypatch):
    """With the converter, its pack and the node."""
    text = REGISTER.replace("impl.unary.exp(", "impl.unary.expo(")
    write(tmp_path, monkeypatch, their_late=text)
    pack = adopt("their_late")
    model = Function(lambda self, x: torch.ops.adopted.legacy(x)).eval()

    with pytest.raises(ConversionError, match=r"their_late:convert") as caught:
        torchtrt.compile(
            model,
            (X,),
            min_block_size=1,
            converter_preferences={"adopted::legacy": pack.name},
        )
    assert "no counterpart of torch_tensorrt.dynamo.conversion.impl.unary.expo" in str(caught.value)


def test_a_module_that_raises_leaves_nothing_behind(tmp_path, monkeypatch):
    """Not the converters before the failure, nor the modules beside it that it had imported."""
    files = {"their_part": REGISTER, "their_broken": "import their_part\nraise RuntimeError('no')"}
    write(tmp_path, monkeypatch, **files)

    for _ in range(2):
        with pytest.raises(PackError, match="their_broken cannot be adopted: RuntimeError: no"):
            adopt("their_broken")
    assert not {"their_part", "their_broken"} & set(sys.modules)
    (tmp_path / "their_broken.py").write_text("from their_part import *\n")
    importlib.invalidate_caches()

    assert 1 == len(adopt("their_broken").converters)


def test_the_modules_of_a_package_are_adopted_with_it(tmp_path, monkeypatch):
    """Those that it imports relatively, and later ones."""
    write(
        tmp_path,
        monkeypatch,
        their_package____init__="",
        their_package__ops="from .more import convert",
        their_package__more=REGISTER,
        their_package__later="from torch_tensorrt.fx.types import TRTTensor",
    )
    pack = adopt("their_package.ops")

    later = importlib.import_module("their_package.later")
    assert 1 == len(pack.converters)
    assert "ITensor" == later.TRTTensor.__name__


def test_what_was_imported_before_must_be_adopted_first(tmp_path, monkeypatch):
    """Its imports have already had their other outcome."""
    write(tmp_path, monkeypatch, their_early="x = 1")
    importlib.import_module("their_early")

    with pytest.raises(PackError, match="was imported before it was adopted"):
        adopt("their_early")


@pytest.mark.parametrize(
    "name", ["torch_tensorrt", "tensorrt", "torchtrt.packs", "their_nothing", "their_absent"]
)
def test_what_holds_no_converters_is_refused(tmp_path, monkeypatch, name):
    """With the reason."""
    write(tmp_path, monkeypatch, their_nothing="import torch_tensorrt")

    with pytest.raises(PackError, match=name.partition(".")[0]):
        adopt(name)


def test_a_pack_can_be_filled(tmp_path, monkeypatch):
    """In the hook of a pack that people publish under its own name."""
    write(tmp_path, monkeypatch, their_filling=REGISTER)
    pack = ConverterPack("filled")

    assert pack is adopt("their_filling", into=pack)
    assert ["adopted.legacy.default"] == [str(each.target) for each in pack.converters]


def test_threads_adopt_one_pack(tmp_path, monkeypatch):
    """Whoever comes second waits for the first."""
    write(tmp_path, monkeypatch, their_threads=REGISTER)
    packs = []
    threads = [
        threading.Thread(target=lambda: packs.append(adopt("their_threads"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 4 == len(packs)
    assert 1 == len(set(map(id, packs)))
    assert 1 == len(packs[0].converters)


PASSES = """
import copy
import torch
import torch.nn.functional as F
import torch_tensorrt
from torch_tensorrt.dynamo._settings import CompilationSettings
from torch_tensorrt.dynamo.conversion import ConversionContext, dynamo_tensorrt_converter, impl
from torch_tensorrt.dynamo.lowering import TORCH_TRT_DECOMPOSITIONS, register_torch_trt_decomposition
from torch_tensorrt.dynamo.lowering.passes._aten_lowering_pass import (
    _aten_lowering_pass,
    get_lowering_pass_config,
)
from torch_tensorrt.dynamo.lowering.passes.pass_utils import clean_up_graph_after_modifications

TORCH_TRT_DECOMPOSITIONS.pop(torch.ops.aten.scaled_dot_product_attention.default)
SEEN = []


@register_torch_trt_decomposition(torch.ops.adopted.blend, registry=TORCH_TRT_DECOMPOSITIONS)
def blend(x, y, share=0.5):
    return torch.lerp(y, x, share)


@_aten_lowering_pass
def first_of_all(gm: torch.fx.GraphModule, sample_inputs):
    SEEN.append(("first_of_all", len(sample_inputs)))
    return gm


@_aten_lowering_pass(index=0, window=4)
def replace_attention(gm: torch.fx.GraphModule, settings: CompilationSettings) -> torch.fx.GraphModule:
    assert {"window": 4} == get_lowering_pass_config(replace_attention)
    SEEN.append(("replace_attention", settings.truncate_double))
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.scaled_dot_product_attention.default:
            with gm.graph.inserting_before(node):
                new = gm.graph.call_function(F.scaled_dot_product_attention, node.args, node.kwargs)
            new.meta = copy.copy(node.meta)
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)
    return clean_up_graph_after_modifications(gm)


@dynamo_tensorrt_converter(F.scaled_dot_product_attention, enabled=True, supports_dynamic_shapes=True)
def attention(ctx: ConversionContext, target, args, kwargs, name):
    SEEN.append(("attention", name))
    return impl.attention.scaled_dot_product_attention(ctx, target, None, name, *args, **kwargs)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_decompositions_and_passes_come_along(tmp_path, monkeypatch, version):
    """A pass that puts a function of PyTorch into the graph, and a converter for this function."""
    name = f"their_passes_{version.replace('.', '_')}"
    write(tmp_path, monkeypatch, **{name: PASSES})
    pack = adopt(name)
    try:
        model = Function(
            lambda self, x: torch.ops.adopted.blend(F.scaled_dot_product_attention(x, x, x), x, 0.3)
        ).eval()
        x = torch.randn(2, 3, 4, 8)
        with torchtrt.use_tensorrt(f"reference@{version}"):
            compiled = torchtrt.compile(
                model,
                (x,),
                require_full_compilation=True,
                torch_enabled_decompositions={"adopted::blend"},
            )

        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        seen = sys.modules[name].SEEN
        assert [("replace_attention", False), ("first_of_all", 1)] == seen[:2]
        assert "attention" == seen[2][0]
    finally:  # its passes would run for every later test
        pack.lowering_passes = ()
        pack._converters.clear()


def test_a_data_dependent_block_builds(tmp_path, monkeypatch):
    """``impl.unary.nonzero``, whose result's size is known only at run time."""
    library.define("where_positive(Tensor x) -> Tensor")

    @torch.library.impl("adopted::where_positive", "CompositeExplicitAutograd")
    def where_positive(x):
        return (x > 0).nonzero()

    @torch.library.register_fake("adopted::where_positive")
    def fake(x):
        return x.new_empty(torch.library.get_ctx().new_dynamic_size(), x.dim(), dtype=torch.int64)

    text = REGISTER.replace("adopted.legacy", "adopted.where_positive").replace(
        "impl.unary.exp(ctx, target, None, name, args[0])",
        "impl.unary.nonzero(ctx, target, None, name, impl.elementwise.gt(ctx, target, None, name, args[0], 0.0))",
    )
    text = text.replace("default)", "default, requires_output_allocator=True)")
    text = text.replace("default,", "default, supports_dynamic_shapes=True,")
    write(tmp_path, monkeypatch, their_nonzero=text)
    adopt("their_nonzero")
    model = Function(lambda self, x: torch.ops.adopted.where_positive(x)).eval()

    compiled = torchtrt.compile(model, (X,), require_full_compilation=True)

    torch.testing.assert_close(compiled(X), model(X))


ENTRY = """
import torch
library = torch.library.Library("adopted", "DEF")
library.define("legacy(Tensor x) -> Tensor")
import torchtrt
candidates = torchtrt.DYNAMO_CONVERTERS.candidates("adopted::legacy")
print([f"{each.pack.name} {each.pack.version} {each.qualified_function}" for each in candidates])
print([problem.what for problem in torchtrt.packs.problems()])
"""


def test_an_entry_point_is_enough(tmp_path):
    """A distribution that names its module is adopted when torchtrt is imported, and a broken one is a problem."""
    named = REGISTER.replace("torch.ops.adopted.legacy.default", '"adopted::legacy"')
    for name, text in {"their_installed": named, "their_failing": "raise ValueError('no')"}.items():
        (tmp_path / f"{name}.py").write_text(text)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[torchtrt.torch_tensorrt]\n{name} = {name}\n")

    (tmp_path / "damaged-1.0.dist-info").mkdir()
    (tmp_path / "damaged-1.0.dist-info/entry_points.txt").write_bytes(b"\xff\xfe[")

    environment = {
        "PYTHONPATH": str(tmp_path),
        "HOME": str(tmp_path),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # PyTorch's own import dies of the damaged one
    }
    command = ["-W", "error", "-c", ENTRY]

    done = run_python(*command, env=environment)
    environment["TORCHTRT_PACKS_DISABLE"] = "torch_tensorrt"
    disabled = run_python(*command, env=environment)

    assert 0 == done.returncode, done.stderr
    converters, problems = done.stdout.splitlines()
    assert "['their_installed 1.0 their_installed:convert']" == converters
    assert "their_failing is not adopted: PackError" in problems
    assert "ValueError: no" in problems
    assert ["[]", "[]"] == disabled.stdout.splitlines(), disabled.stderr
