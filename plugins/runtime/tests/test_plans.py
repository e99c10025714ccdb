"""Plans: written with names for other tools, and loaded from anywhere."""

import json
import threading

import pytest
import torch
from torch import nn

import torchtrt
from plugins.runtime.tests.saved_models import names_in
from tests.support.modules import Function
from torchtrt.errors import (
    EngineError,
    EngineMismatchError,
    InputError,
    SettingsError,
    SettingsWarning,
    UnreadableFileError,
    UnsupportedProgramError,
    UnwritableFileError,
)
from torchtrt.tensorrt import trt
from torchtrt.tensorrt.logging import logger


class TwoResults(nn.Module):
    """Returns what it computes last first, and takes a 64-bit integer and an input that it does not read."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, input, ids, unread, scale=2):
        scores = self.linear(input)
        return ids * scale, scores


ROWS = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(8, 4))
IDS = torchtrt.Input((3,), dtype=torch.int64)


def compiled_with(model, inputs, **settings):
    """Returns a model compiled as one engine."""
    return torchtrt.compile(model.eval(), inputs, min_block_size=1, **settings)


@pytest.fixture(scope="module")
def one():
    """A model and itself compiled."""
    model = nn.Sequential(nn.Linear(4, 3), nn.Sigmoid())
    return model, compiled_with(model, [ROWS])


def test_a_plan_has_its_names_and_computes_what_the_model_does(every_tensorrt, tmp_path):
    """By place and by name, in the order of the model; 64-bit integers are the model's on 8.6 too."""
    model, plan = TwoResults(), tmp_path / "m.plan"
    names = {"input_names": ["x 0", "ключ"], "output_names": ["ids:0", "scores"]}
    compiled = compiled_with(model, [ROWS, IDS, torch.rand(2)], **names)

    torchtrt.export_engine(compiled, plan, **names)
    module = torchtrt.engine_module(plan)

    assert names_in(plan, every_tensorrt) == ["x 0", "ключ", "ids:0", "scores"]
    x, ids = torch.rand(5, 4), torch.arange(3)
    expected = model(x, ids, None)
    for actual in (module(x, ids), module(x, **{"ключ": ids}), module(**{"ключ": ids, "x 0": x})):
        torch.testing.assert_close(actual, expected)
    described = json.loads((tmp_path / "m.plan.json").read_text())
    assert described["unread_inputs"] == ["unread"]
    assert described["tensorrt"] == every_tensorrt


def test_without_settings_the_names_are_the_models(tmp_path):
    """Also where FX renames an input, as one that is named like a function of Python."""
    torchtrt.export_engine(
        compiled_with(TwoResults(), [ROWS, IDS, torch.rand(2)]), tmp_path / "m.plan"
    )
    described = json.loads((tmp_path / "m.plan.json").read_text())

    assert [input_["name"] for input_ in described["inputs"]] == ["input", "ids"]
    assert [input_["name"] for input_ in described["outputs"]] == ["output_0", "output_1"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"input_names": ["a", "a"]}, "input_names=.*a sequence of different names"),
        ({"input_names": [""]}, "a sequence of different names"),
        ({"output_names": "scores"}, "a sequence of different names"),
        ({"output_names": ["a\n"]}, "printable"),
        ({"output_names": ["n" * 4096]}, "4,095 bytes"),
        ({"output_names": ["\ud800"]}, "printable"),
        ({"input_names": ["a", "b"]}, "has 2 names, and the engine has 1 of these tensors: input"),
        ({"output_names": ["a", "b"]}, "has 2 names, and the engine has 1 .*result 0"),
        ({"input_names": ["a"], "output_names": ["a"]}, "both have a"),
        ({"output_names": ["input"]}, "output_names has input, which is the name of an input"),
    ],
)
def test_names_that_no_engine_can_have_are_refused(settings, said):
    """Before anything is built."""
    with pytest.raises(SettingsError, match=said):
        compiled_with(nn.Sequential(nn.Linear(4, 3)), [ROWS], **settings)


def test_other_names_than_the_engines_are_refused_with_the_setting(one, tmp_path):
    """And nothing is written."""
    with pytest.raises(
        InputError, match=r"named input, and input_names asks for x\..*input_names=\['x'\]"
    ):
        torchtrt.export_engine(one[1], tmp_path / "m.plan", input_names=["x"])
    assert list(tmp_path.iterdir()) == []


def test_an_engine_from_a_cache_must_have_the_names_of_this_model(tmp_path):
    """A cache finds the engine of a model whose inputs have other names."""

    class Other(nn.Sequential):
        def forward(self, values):
            return super().forward(values)

    layer = nn.Linear(4, 3)
    for model in (nn.Sequential(layer), Other(layer)):
        compiled = compiled_with(model, [ROWS], engine_cache=tmp_path / "cache")
    assert compiled.report.blocks[0].cached
    with pytest.raises(InputError, match=r"from a cache.*named input, and not values"):
        torchtrt.export_engine(compiled, tmp_path / "m.plan")

    named = compiled_with(
        Other(layer), [ROWS], engine_cache=tmp_path / "cache", input_names=["values"]
    )
    torchtrt.export_engine(named, tmp_path / "m.plan")


class Result(nn.Module):
    """Computes something, and returns it with something else."""

    def __init__(self, also):
        super().__init__()
        self.also = also
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        y = (x + 1).relu() * 2
        return y, self.also(self, x, y)


@pytest.mark.parametrize(
    ("also", "said"),
    [
        (lambda self, x, y: x, "Result 1 is the input 'x'"),
        (lambda self, x, y: torch.ones(3), "Result 1 is the constant or the buffer"),
        (lambda self, x, y: None, "Result 1 is always None"),
        (lambda self, x, y: y, "Results 0 and 1 are the same tensor"),
        (
            lambda self, x, y: self.total[:2].add_(1) * y[:, :2],
            r"PyTorch runs aten\.copy_.*aten_core",
        ),
        (lambda self, x, y: torch.igamma(y, y), r"aten\.igamma.*stays in PyTorch: .*no pack"),
        (lambda self, x, y: y.shape[0], r"PyTorch runs aten\.sym_size"),
    ],
)
def test_a_model_that_pytorch_completes_is_refused_with_each_reason(also, said, tmp_path):
    """A plan would lack what PyTorch does."""
    compiled = compiled_with(Result(also), [ROWS])
    with pytest.raises(UnsupportedProgramError, match=f"(?is){said}"):
        torchtrt.export_engine(compiled, tmp_path / "m.plan")
    assert list(tmp_path.iterdir()) == []


def varying(model, *inputs):
    """Returns a model compiled from a program whose first sizes vary as the code lets them."""
    rows = torch.export.Dim.AUTO(min=1, max=64)
    sizes = tuple({0: rows} for _ in inputs)
    return torchtrt.compile(
        torch.export.export(model, inputs, dynamic_shapes=(sizes,)), min_block_size=1
    )


def test_a_condition_of_the_export_is_refused(tmp_path):
    """Other tools would not check it. It is one warning, in terms of the model's inputs."""
    compiled = varying(Function(lambda x: x.relu() if x.shape[0] != 7 else x + 1), torch.rand(3, 4))
    with pytest.raises(UnsupportedProgramError) as caught:
        torchtrt.export_engine(compiled, tmp_path / "m.plan")
    assert str(caught.value).count(".shape[0] != 7, a condition under which") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_size_that_follows_from_another_is_checked_by_the_description(tmp_path):
    """The engine's profiles have both ranges, and no more."""
    rows = torch.export.Dim(
        "rows", min=2, max=8
    )  # so that none of the sizes is 1, a condition that follows
    model = Function(lambda x, y: x.relu().reshape(-1, 8) + y)
    program = torch.export.export(
        model, (torch.rand(6, 4), torch.rand(3, 8)), dynamic_shapes=(({0: 2 * rows}, {0: rows}),)
    )
    compiled = torchtrt.compile(program, min_block_size=1)
    torchtrt.export_engine(compiled, tmp_path / "m.plan")
    module = torchtrt.engine_module(tmp_path / "m.plan")
    x, y = torch.rand(10, 4), torch.rand(5, 8)
    torch.testing.assert_close(module(x, y)[0], model(x, y))
    with pytest.raises(InputError, match="must be 2\\*"):
        module(torch.rand(8, 4), y)


def test_names_without_effect_are_a_warning():
    """A model of several engines has no names of its own to give."""
    with pytest.warns(
        SettingsWarning, match=r"input_names names the tensors.*Result 1 is the input"
    ):
        compiled_with(Result(lambda self, x, y: x), [ROWS], input_names=["x"])


def test_equal_sizes_are_checked_by_the_description_alone(tmp_path):
    """The engine's profiles do not contain it."""

    class Joins(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, y.relu()], 1)

    rows = torch.export.Dim("rows", min=1, max=8)
    program = torch.export.export(
        Joins(), (torch.rand(4, 4), torch.rand(4, 2)), dynamic_shapes=({0: rows}, {0: rows})
    )
    torchtrt.export_engine(torchtrt.compile(program, min_block_size=1), tmp_path / "m.plan")
    with pytest.raises(InputError, match="must equal the size"):
        torchtrt.engine_module(tmp_path / "m.plan")(torch.rand(3, 4), torch.rand(2, 2))


@pytest.mark.parametrize("path", ["folder", "missing/m.plan", "m.plan/x.plan", "m\0.plan"])
def test_a_path_that_cannot_be_is_refused(one, tmp_path, path):
    """As by torchtrt.save."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "m.plan").write_bytes(b"")
    with pytest.raises(UnwritableFileError, match=r"is a folder|There is no folder|is no path"):
        torchtrt.export_engine(one[1], tmp_path / path)
    if "\0" in path:
        with pytest.raises(UnreadableFileError, match="cannot be read: embedded null"):
            torchtrt.engine_module(tmp_path / path)


@pytest.mark.parametrize(
    ("damage", "error", "said"),
    [
        (lambda plan, text: (plan[:-9], text), UnreadableFileError, "and this one has"),
        (lambda plan, text: (plan[:9] + b"?" + plan[10:], text), UnreadableFileError, "is damaged"),
        (lambda plan, text: (plan, text[:-9]), UnreadableFileError, "cannot be read"),
        (lambda plan, text: (plan, "[]"), UnreadableFileError, "its format is not"),
        (lambda plan, text: (plan, text.replace(": 1,", ": 2,", 1)), UnreadableFileError, "reads 1"),
        (lambda plan, text: (plan, text.replace('"input"', '"x"')), UnreadableFileError, "has the inputs x"),
        (lambda plan, text: (plan, text.replace("float32", "int64")), UnreadableFileError, "int64 for 'input'"),
        (lambda plan, text: (plan, text.replace("[8, 4]", "[9, 4]")), UnreadableFileError, "has the profiles"),
        (lambda plan, text: (plan, text.replace('"sizes": [[', '"sizes": [7, [')), UnreadableFileError, "sizes"),
        (lambda plan, text: (plan, text.replace('["symbol", "n0"]', "-1")), UnreadableFileError, "sizes"),
        (lambda plan, text: (plan, text.replace('["symbol", "n0"]', "true")), UnreadableFileError, "sizes"),
        (lambda plan, text: (plan, text.replace('{"n0": [1, 2, 8]}', "")), UnreadableFileError, "lacks"),
        (lambda plan, text: (plan, text.replace('"profiles"', '"ranges"')), UnreadableFileError, "'profiles'"),
        (lambda plan, text: (plan, text.replace("reference@", "reference@9")), EngineMismatchError, "not here"),
    ],
)  # fmt: skip
def test_a_description_that_contradicts_its_plan_is_refused(one, tmp_path, damage, error, said):
    """Whichever of the two is wrong."""
    plan, text = tmp_path / "m.plan", tmp_path / "m.plan.json"
    torchtrt.export_engine(one[1], plan)
    damaged, described = damage(plan.read_bytes(), text.read_text())
    plan.write_bytes(damaged)
    text.write_text(described)
    with pytest.raises(error, match=said):
        torchtrt.engine_module(plan)


def test_a_plan_that_tensorrt_refuses_is_an_error_with_its_log(one, tmp_path):
    """Of another version, truncated, or no plan at all."""
    plan = tmp_path / "m.plan"
    with torchtrt.use_tensorrt("reference@8.6.0"):
        torchtrt.export_engine(compiled_with(nn.Sequential(nn.Linear(4, 3)), [ROWS]), plan)
    whole = plan.read_bytes()
    with torchtrt.use_tensorrt("reference@11.4.0"):
        for content in (whole, whole[: len(whole) // 2], b"", b"no plan"):
            plan.write_bytes(content)
            with pytest.raises(
                EngineError, match=r"(?s)11.4.0 could not load the plan .*m.plan: \S"
            ):
                torchtrt.engine_module(plan, description=False)
    with pytest.raises(UnreadableFileError, match="No such file"):
        torchtrt.engine_module(tmp_path / "none.plan")


def foreign_plan(profiles):
    """Returns a plan that no torchtrt wrote: two inputs, one of them a number, and profiles of its own."""
    builder = trt.Builder(logger())
    strong = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    flag = trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH if strong is None else strong
    network = builder.create_network(1 << int(flag))
    x = network.add_input("data", trt.DataType.FLOAT, (-1, 3))
    y = network.add_input("shift", trt.DataType.FLOAT, ())
    shuffle = network.add_shuffle(y)
    shuffle.reshape_dims = (1, 1)
    total = network.add_elementwise(x, shuffle.get_output(0), trt.ElementWiseOperation.SUM)
    positive = network.add_elementwise(x, shuffle.get_output(0), trt.ElementWiseOperation.GREATER)
    for layer, name in ((positive, "above"), (total, "sum")):
        layer.get_output(0).name = name
        network.mark_output(layer.get_output(0))
    config = builder.create_builder_config()
    for low, best, high in profiles:
        profile = builder.create_optimization_profile()
        profile.set_shape("data", (low, 3), (best, 3), (high, 3))
        config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(network, config))


def test_a_plan_of_another_tool_is_read_from_its_engine(every_tensorrt, tmp_path):
    """Its profiles too, although two are equal, with numbers and booleans, and from several threads."""
    plan = tmp_path / "foreign.engine"
    plan.write_bytes(foreign_plan([(1, 2, 4), (1, 2, 4), (8, 8, 16)]))
    module = torchtrt.engine_module(plan, as_dict=True)
    failed, together = [], threading.Barrier(5)

    def call(rows):
        x, shift = torch.randn(rows, 3), torch.tensor(0.5)
        together.wait()
        try:
            actual = module(shift=shift, data=x)
            torch.testing.assert_close(actual, {"above": x > shift, "sum": x + shift})
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(rows,)) for rows in (1, 4, 8, 16, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with pytest.raises(InputError, match=r"is 6, but the model was compiled for 1 to 4 or 8 to 16"):
        module(torch.rand(6, 3), torch.tensor(0.0))
    with pytest.raises(InputError, match="missing: 'shift'; unknown: 'bias'"):
        module(torch.rand(2, 3), bias=torch.tensor(0.0))


def test_sizes_that_depend_on_data_are_found_without_a_description(every_tensorrt, tmp_path):
    """The engine alone shows them, by shapes that stay open."""

    class Nonzero(nn.Module):
        def forward(self, x):
            return torch.nonzero(x.relu())

    model, plan = Nonzero(), tmp_path / "m.plan"
    torchtrt.export_engine(compiled_with(model, [torch.rand(4, 3)]), plan)
    for described in (True, False):
        module = torchtrt.engine_module(plan, description=described)
        for _ in range(2):
            x = torch.randn(4, 3)
            (actual,) = module(x)
            torch.testing.assert_close(actual, model(x), check_dtype=described)


def test_a_loaded_model_and_one_of_a_single_size_are_exported(one, tmp_path):
    """A file of torchtrt.save keeps the names."""
    model, compiled = one
    torchtrt.save(compiled, tmp_path / "m.pt2")
    torchtrt.export_engine(torchtrt.load(tmp_path / "m.pt2"), tmp_path / "m.plan")
    x = torch.rand(3, 4)
    torch.testing.assert_close(torchtrt.engine_module(tmp_path / "m.plan")(x)[0], model(x))


def test_only_the_runtime_is_imported(fresh, one, tmp_path):
    """A server has no compiler."""
    torchtrt.export_engine(one[1], tmp_path / "m.plan")
    code = (
        "import sys, torch, torchtrt\n"
        "module = torchtrt.engine_module(sys.argv[1])\n"
        "torchtrt.export_engine(module, sys.argv[1] + '2')\n"
        "print(tuple(module(torch.rand(2, 4))[0].shape), 'torchtrt_compiler' in sys.modules)"
    )
    assert fresh(code, tmp_path / "m.plan") == "(2, 3) False"
