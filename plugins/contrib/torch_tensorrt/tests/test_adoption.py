"""Modules that were written for Torch-TensorRT are adopted as they are."""

from __future__ import annotations

import importlib
import sys
import textwrap
import threading

import pytest
import torch
from torch.nn import functional as F

import torchtrt
from plugins.contrib.torch_tensorrt.tests.adopted import Function, X, library
from tests.support.processes import run_python
from torchtrt.errors import ConversionError, PackError
from torchtrt.packs import ConverterPack, current_packs, use_packs
from torchtrt_converters_torch_tensorrt import adopt
from torchtrt_reference import VERSIONS


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
    assert ["adopted.legacy.default"] == [str(converter.target) for converter in pack.converters]


def test_threads_adopt_one_pack(tmp_path, monkeypatch):
    """The second thread waits for the first."""
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
    with use_packs():  # its passes would run for every later test
        adopt(name)
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
