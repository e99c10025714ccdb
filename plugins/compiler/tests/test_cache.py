"""The key of the cache of engines: what makes a hit, a refit and a build."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import types
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import nn

import torchtrt
from plugins.compiler.tests.cached import BASE, INPUTS, VARYING, compiled, hits
from tests.support.compiled import engines_of
from tests.support.processes import run_python
from torchtrt_compiler.cache import key as key_module
from torchtrt_compiler.cache.folder import CacheFolder
from torchtrt_reference.graphs.plan import decode

UNARY = {
    "softmax0": lambda x: torch.softmax(x, 0),
    "softmax1": lambda x: torch.softmax(x, 1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp wider": lambda x: x.clamp(-0.5, 0.75),
    "clamp below": lambda x: x.clamp(min=-0.0),
    "flip": lambda x: x.flip(0),
    "flip1": lambda x: x.flip(1),
    "transpose": lambda x: x.t() * 2,
    "roll": lambda x: x.roll(1, 0),
    "roll2": lambda x: x.roll(2, 0),
    "sum": lambda x: x.sum(0, keepdim=True) + x,
    "mean": lambda x: x.mean(1, keepdim=True) + x,
    "gelu": lambda x: nn.functional.gelu(x),
    "gelu tanh": lambda x: nn.functional.gelu(x, approximate="tanh"),
    "half": lambda x: x.half().float(),
    "leaky": lambda x: nn.functional.leaky_relu(x, 0.1),
    "leaky more": lambda x: nn.functional.leaky_relu(x, 0.2),
    "cut": lambda x: torch.cat([x[1:], x[:1]]),
}
BINARY = {
    "add": torch.add,
    "subtract": torch.sub,
    "product": torch.matmul,
    "larger": torch.maximum,
    "add twice": lambda x, y: torch.add(x, y, alpha=2),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 3)),
        st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("weight"), st.integers(0, 3), st.integers(0, 2)),
    ),
    min_size=2,
    max_size=5,
)


class Program(nn.Module):
    """A program of few ops on square matrices, so that different programs are much alike."""

    def __init__(self, steps, name="w"):
        super().__init__()
        self.steps, self.name = steps, name
        for index in range(3):
            weight = torch.full((4, 4), 0.25 * (index + 1))
            weight[0, index] = -1
            self.register_buffer(f"{name}{index}", weight)

    def forward(self, x, y):
        """Returns the last value."""
        values = [x, y]
        for kind, first, *rest in self.steps:
            value = values[first % len(values)]
            if kind == "weight":
                values.append(value * getattr(self, f"{self.name}{rest[0]}"))
            elif rest:
                values.append(BINARY[kind](value, values[rest[0] % len(values)]))
            else:
                values.append(UNARY[kind](value))
        return values[-1]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache that many programs share."""
    return tmp_path_factory.mktemp("cache")


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_model_compiled_with_anybodys_cache_computes_what_it_should(shared, steps):
    """Among programs that differ in one number, an edge, or an order, none ever gets another's engine."""
    model = Program(steps)

    torch.testing.assert_close(
        compiled(model, shared)(*INPUTS), model(*INPUTS), rtol=1e-3, atol=1e-3, equal_nan=True
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_the_same_model_under_other_names_is_found(tmp_path, steps):
    """Names of weights, the names in its code, settings that only lead to the graph: nothing of that counts."""
    folder = tmp_path / str(abs(hash(str(steps))))
    first = compiled(Program(steps), folder)
    assume(first.report.blocks)
    second = compiled(
        Program(steps, "other"), folder, progress=False, require_full_compilation=True
    )

    assert all(hits(second))
    torch.testing.assert_close(first(*INPUTS), second(*INPUTS), equal_nan=True)


def network_of(model):
    """Returns what a model's engine computes, without any names."""
    (engine,) = engines_of(model)
    description, owner = decode(engine.plan, engine.tensorrt.partition("@")[2])
    graph = description.graph
    nodes = [
        (
            node.operation,
            node.inputs,
            node.outputs,
            sorted(node.attributes.items()),
            node.output_types,
        )
        for node in graph.nodes
    ]
    constants = {
        slot: (constant.dtype, constant.tolist()) for slot, constant in graph.constants.items()
    }
    return repr((nodes, constants, [port.slot for port in graph.inputs + graph.outputs])), owner


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=STEPS, second=STEPS)
def test_programs_with_one_key_have_one_network(tmp_path, first, second):
    """What differs in the engine, but for names, differs in the key."""
    networks = {}
    for number, steps in enumerate((first, second)):
        folder = tmp_path / f"{abs(hash(str((first, second))))}_{number}"
        model = compiled(Program(steps), folder)
        assume(1 == len(model.report.blocks))
        (entry,) = CacheFolder(folder).entries()
        networks.setdefault(entry.key, set()).add(network_of(model)[0])

    assert all(1 == len(network) for network in networks.values())


def changed_weight():
    """Returns the model with one bit of one weight changed."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    model.load_state_dict(BASE.state_dict())
    bits = model[2].bias.data.view(torch.int32)
    bits[0] ^= 1
    return model


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SettingsWarning")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda folder: compiled(BASE, folder, [VARYING]), True),
        (lambda folder: compiled(changed_weight(), folder, [VARYING]), False),
        (
            lambda folder: compiled(
                BASE, folder, [torchtrt.Input(min_shape=(1, 4), opt_shape=(4, 4), max_shape=(9, 4))]
            ),
            False,
        ),
        (
            lambda folder: compiled(
                BASE, folder, [torchtrt.Input(min_shape=(1, 4), opt_shape=(5, 4), max_shape=(8, 4))]
            ),
            False,
        ),
        (lambda folder: compiled(BASE, folder, [torch.rand(4, 4)]), False),
        (lambda folder: compiled(BASE, folder, [VARYING], workspace_size=1 << 28), False),
        (lambda folder: compiled(BASE, folder, [VARYING], optimization_level=5), False),
        (lambda folder: compiled(BASE, folder, [VARYING], disable_tf32=True), False),
        (lambda folder: compiled(BASE, folder, [VARYING], immutable_weights=False), False),
        (lambda folder: compiled(BASE, folder, [VARYING], tactic_sources=1), False),
        (lambda folder: compiled(BASE, folder, [VARYING], autocast=torch.float16), False),
        (lambda folder: compiled(BASE, folder, [VARYING], truncate_double=True), True),
        (
            lambda folder: compiled(BASE, folder, [VARYING], autocast_excluded_ops={"aten.gelu"}),
            True,
        ),
        (lambda folder: compiled(BASE, folder, [VARYING], autocast_excluded_nodes={"x"}), True),
        (lambda folder: compiled(BASE, folder, [VARYING], require_full_compilation=True), True),
        (lambda folder: compiled(BASE, folder, [VARYING], assume_dynamic_shape_support=True), True),
        (
            lambda folder: compiled(
                BASE, folder, [VARYING], converter_preferences={"aten.gelu": "aten_core"}
            ),
            True,
        ),
        (lambda folder: compiled(BASE, folder, [VARYING], min_block_size=2), True),
        (lambda folder: compiled(BASE, folder, [VARYING], torch_executed_ops={"aten.gelu"}), True),
        (lambda folder: compiled(BASE, Path(folder), [VARYING], progress=False), True),
        (lambda folder: compiled(torch.nn.Sequential(*BASE), folder, [VARYING]), True),
    ],
)
def test_the_key_covers_what_changes_an_engine_and_nothing_else(tmp_path, change, expected):
    """Weights, profiles and settings that matter; not settings that do not."""
    compiled(BASE, str(tmp_path), [VARYING])

    assert [expected] == hits(change(str(tmp_path)))


def test_another_checkpoint_is_a_refit_and_not_a_build(tmp_path):
    """The key of a refittable engine covers no values of weights. Each compilation computes with its own."""
    old, new = BASE, changed_weight()
    new[0].weight.data.neg_()
    x = torch.rand(4, 4)

    assert [False] == hits(compiled(old, tmp_path, [VARYING], immutable_weights=False))
    for model in (new, old, new):
        again = compiled(model, tmp_path, [VARYING], immutable_weights=False)
        assert [True] == hits(again)
        torch.testing.assert_close(again(x), model(x))
    assert 1 == len(CacheFolder(tmp_path).entries())


class Tied(nn.Module):
    """Two weights, which may be one."""

    def __init__(self, tied):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        if tied:
            self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x))


def test_a_checkpoint_whose_weights_are_no_longer_tied_is_built(tmp_path):
    """The engine of tied weights has one constant for both."""
    x = torch.rand(4, 4)
    for tied in (True, False, True):
        model = Tied(tied).eval()
        made = compiled(model, tmp_path, [x], immutable_weights=False)
        torch.testing.assert_close(made(x), model(x))


class Powered(nn.Module):
    """A power whose layers depend on whether an exponent is 0."""

    def __init__(self, exponent):
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor([exponent, 1.5]))

    def forward(self, x):
        return x**self.exponent


def test_an_engine_that_cannot_be_refitted_is_built_again(tmp_path):
    """Facts about values are compiled in. Where they differ, the new engine takes the place of the old one."""
    x = torch.tensor([float("nan"), 2.0])
    outcomes = []
    for exponent in (2.5, 3.5, 0.0, 2.5, 3.5):
        model = Powered(exponent).eval()
        made = compiled(model, tmp_path, [x], immutable_weights=False)
        torch.testing.assert_close(made(x), model(x), equal_nan=True)
        outcomes += hits(made)

    assert outcomes == [False, True, False, False, True]


@pytest.mark.parametrize("version", ["8.6.0", "10.16.1", "11.4.0"])
def test_the_key_covers_tensorrt_and_the_gpu(tmp_path, machine, version):
    """An engine of another version or for another GPU is another one."""
    machine.has_tensorrt(version)
    with torchtrt.use_tensorrt(f"reference@{version}"):
        assert [False] == hits(compiled(BASE, tmp_path, [VARYING]))
        assert [True] == hits(compiled(BASE, tmp_path, [VARYING]))
    for capability in ((8, 0), (9, 0)):
        machine.has_gpu(capability, "NVIDIA GPU")
        with torchtrt.use_tensorrt("real"):
            assert [False] == hits(compiled(BASE, tmp_path, [VARYING]))
            assert [True] == hits(compiled(BASE, tmp_path, [VARYING]))
    machine.has_gpu((8, 0), "NVIDIA GPU")
    with torchtrt.use_tensorrt("real"):
        assert [True] == hits(compiled(BASE, tmp_path, [VARYING]))  # both are kept
    other = next(number for number in ("10.16.1", "11.4.0") if number != version)
    with torchtrt.use_tensorrt(f"reference@{other}"):
        assert [False] == hits(compiled(BASE, tmp_path, [VARYING]))


COMPILE = """
import sys, torch, torchtrt
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
compiled = torchtrt.compile(model, [torch.rand(2, 4)], min_block_size=1, engine_cache=sys.argv[1])
print([block.cached for block in compiled.report.blocks])
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A cache with the engine that the program builds."""
    folder = tmp_path_factory.mktemp("cache")
    done = run_python("-c", COMPILE, folder, check=True)
    assert "[False]\n" == done.stdout
    return folder


@pytest.mark.parametrize(
    ("package", "changed"),
    [
        ("torchtrt", "__init__.py"),
        ("torchtrt_blocks", "__init__.py"),
        ("torchtrt_compiler", "building/__init__.py"),
        ("torchtrt_converters_aten_core", "__init__.py"),
        ("torchtrt_compiler", "__init__.py"),
    ],
)
def test_the_key_covers_the_code_that_makes_networks(filled, tmp_path, package, changed):
    """Also where the version is the same: packs in development, and the packages that converters call."""
    source = Path(importlib.util.find_spec(package).origin).parent
    copied = shutil.copytree(source, tmp_path / "changed" / package)
    with (copied / changed).open("a") as file:
        file.write("# changed\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "changed")}

    done = run_python("-c", COMPILE, filled, env=environment, check=True)

    makes_networks = (package, changed) != ("torchtrt_compiler", "__init__.py")
    assert f"[{not makes_networks}]\n" == done.stdout


def test_the_fingerprint_of_a_package_changes_with_its_code(tmp_path, monkeypatch):
    """Whatever its version is: packs in development are found by their content."""
    package = tmp_path / "some_pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "ops.py").write_text("a = 1")
    module = types.ModuleType("some_pack")
    module.__file__ = str(package / "__init__.py")
    monkeypatch.setitem(sys.modules, "some_pack", module)
    fingerprint = key_module._fingerprint.__wrapped__
    before = fingerprint("some_pack")
    os.utime(package / "ops.py", (0, 0))
    assert before == fingerprint("some_pack")
    (package / "ops.py").write_text("a = 2")
    assert before != fingerprint("some_pack")
    (package / "ops.py").write_text("a = 1")
    assert before == fingerprint("some_pack")
    (package / "ops.py").rename(package / "others.py")
    assert before != fingerprint("some_pack")


def test_a_programs_own_converter_is_never_kept(tmp_path, fresh):
    """Its code may be another in the next session."""
    code = (
        "import sys, torch, torchtrt\n"
        "from torchtrt.registry import ConverterPriority\n"
        "@torchtrt.dynamo_tensorrt_converter(torch.ops.aten.relu.default, priority=ConverterPriority.HIGH)\n"
        "def relu(ctx, self):\n"
        "    return ctx.net.add_activation(self, torchtrt.trt.ActivationType.RELU).get_output(0)\n"
        "for _ in range(2):\n"
        "    model = torchtrt.compile(\n"
        "        torch.nn.ReLU().eval(), [torch.rand(2)], min_block_size=1, engine_cache=sys.argv[1])\n"
        "    print(model.report.converted[0].pack.split()[0], model.report.blocks[0].cached)\n"
    )

    assert ["local False"] * 2 == fresh(code, tmp_path).splitlines()
    assert [] == CacheFolder(tmp_path).entries()


def test_a_hit_converts_and_builds_nothing(tmp_path):
    """The report has neither stage, the same layers, and the nodes of this model."""
    first, second = (compiled(BASE, tmp_path, [VARYING]) for _ in range(2))

    assert {"conversion", "building", "TensorRT start"} <= set(first.report.seconds)
    assert not {"conversion", "building", "TensorRT start"} & set(second.report.seconds)
    assert ([False], [True]) == (hits(first), hits(second))
    for name in ("nodes", "layers", "plan_bytes"):
        assert getattr(first.report.blocks[0], name) == getattr(second.report.blocks[0], name)
    for rows in (1, 4, 8):
        x = torch.rand(rows, 4)
        assert torch.equal(first(x), second(x))


def test_a_kept_engine_is_saved_and_copied_like_any_other(tmp_path):
    """Where it came from makes no difference."""
    for _ in range(2):
        model = compiled(BASE, tmp_path, [VARYING])
        torchtrt.save(model, tmp_path / "model.pt2")
    x = torch.rand(3, 4)

    assert torch.equal(model(x), torchtrt.load(tmp_path / "model.pt2")(x))


def test_how_pytorch_runs_the_rest_is_in_no_engine(tmp_path):
    """Inductor compiles what stays in PyTorch when it is first called."""
    settings = {"torch_executed_ops": {"aten.relu"}}
    made = [compiled(BASE, tmp_path, INPUTS[:1], inductor=how, **settings) for how in (False, True)]
    assert [[False, False], [True, True]] == [hits(result) for result in made]
    assert made[1].settings.inductor


class OneElement(torch.nn.Module):
    """A weight of one element, whose stride is what nothing asks for."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.rand(3, 3).as_strided((1,), (3,)))

    def forward(self, x):
        """Shape (batch, 3), as the result."""
        return torch.sigmoid(x) * self.scale


def test_a_weight_of_one_element_may_have_any_stride(tmp_path):
    """PyTorch takes it for contiguous."""
    model, x = OneElement().eval(), torch.rand(2, 3)
    compiled = torchtrt.compile(model, [x], min_block_size=1, engine_cache=tmp_path)
    torch.testing.assert_close(compiled(x), model(x))
