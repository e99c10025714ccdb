"""Inputs with several ranges of sizes: an optimization profile for each, wherever engines go."""

from __future__ import annotations

import copy
import json
import threading
import warnings
import zipfile

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import engines_of
from tests.support.modules import Function
from torchtrt.errors import EngineError, InputError, SettingsError
from torchtrt_cli import main
from torchtrt_runtime import RuntimeSettings
from torchtrt_runtime.serialization.engine_metadata import describe_engine, load_engine
from torchtrt_testing.faults import watched_tensorrt

RANGES = [((1, 1, 4), (2, 1, 4), (8, 1, 4)), ((1, 16, 4), (2, 20, 4), (4, 32, 4))]
FITTING = [(1, 1), (4, 32), (8, 1), (1, 16), (3, 20), (5, 1), (2, 31), (2, 31)]
"""Batch sizes and lengths, in an order that changes the profile again and again."""


class OneBlock(nn.Module):
    """All in one engine."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)).sum(-1) * x.shape[1]


class SeveralBlocks(OneBlock):
    """PyTorch between two engines, the second of which has inputs of 2 * length + 1 rows."""

    def forward(self, x):
        rows = torch.cat([x, x, x[:, :1]], 1)
        hidden = torch.relu(self.linear(rows)) * 2
        kept = hidden.cumsum(1)
        return torch.tanh(kept + hidden) + 1, kept


MODELS = pytest.mark.parametrize("kind", [OneBlock, SeveralBlocks])


def compiled(kind, ranges=RANGES, **settings):
    """Returns a model, and the same compiled."""
    model = kind().eval()
    in_torch = {"torch_executed_ops": {"aten.cumsum"}} if kind is SeveralBlocks else {}
    arguments = {"min_block_size": 1, **in_torch, **settings}
    made = torchtrt.compile(model, [torchtrt.Input(ranges=ranges)], **arguments)
    return model, made


def profiles_in_use(made):
    """Returns the profiles that the engines ran in last."""
    executions = [next(iter(engine._idle.values()))[0] for engine in engines_of(made)]
    return {execution.context.active_optimization_profile for execution in executions}


def check(made, model, shapes=FITTING):
    """Compares with eager for every shape."""
    for shape in shapes:
        x = torch.randn(*shape, 4)
        with torch.no_grad():
            torch.testing.assert_close(made(x), model(x))


@MODELS
def test_every_range_gives_what_eager_gives(every_tensorrt, kind):
    """On each TensorRT, in one engine and in several, whatever came before."""
    model, made = compiled(kind)
    plans = [engine.deserialize(torch.device("cpu"))[1] for engine in engines_of(made)]

    assert [1, 2][kind is SeveralBlocks] == len(plans)
    assert {2} == {plan.num_optimization_profiles for plan in plans}
    check(made, model)


def test_sizes_that_follow_from_others_have_the_ranges_that_follow(every_tensorrt):
    """A block's input of 2 * length + 1 rows is built for 3, and for 33 to 65."""
    _, made = compiled(SeveralBlocks)
    _, second = engines_of(made)

    assert [(3, 3, 3), (33, 41, 65)] == [profile[1] for profile in second.inputs[0].profiles]


@MODELS
def test_the_profile_follows_the_sizes(kind):
    """It changes with the first call that it does not take, and to the first that does."""
    model, made = compiled(kind)
    check(made, model, [(2, 1)])
    for shape, profile in (((8, 1), 0), ((2, 16), 1), ((4, 32), 1), ((4, 1), 0)):
        check(made, model, [shape])
        assert {profile} == profiles_in_use(made)


@MODELS
def test_of_overlapping_ranges_a_call_takes_the_first(every_tensorrt, kind):
    """Whatever was called before: decoding after a prefill is back in the profile of decoding."""
    decode, prefill = ((1, 1, 4), (2, 1, 4), (4, 1, 4)), ((1, 1, 4), (2, 20, 4), (4, 32, 4))
    model, made = compiled(kind, ranges=[decode, prefill])
    for shape, profile in (((2, 20), 1), ((2, 1), 0), ((2, 1), 0), ((4, 32), 1), ((4, 1), 0)):
        check(made, model, [shape])
        assert {profile} == profiles_in_use(made)


@MODELS
def test_a_pinned_profile_serves_all_calls(every_tensorrt, tmp_path, kind):
    """Also where another one comes first, in a copy, and in each engine; other sizes are refused with its own."""
    narrow, wide = ((1, 1, 4), (2, 1, 4), (4, 1, 4)), ((1, 1, 4), (2, 20, 4), (6, 32, 4))
    model, made = compiled(kind, ranges=[narrow, wide])
    check(made, model, [(2, 1)])
    made.runtime_settings = RuntimeSettings(optimization_profile=1)
    for module in (made, copy.deepcopy(made)):
        check(module, model, [(2, 1), (4, 32), (2, 1)])
        assert {1} == profiles_in_use(module)
    made.runtime_settings = RuntimeSettings(optimization_profile=0)
    check(made, model, [(4, 1)])
    with pytest.raises(
        InputError,
        match=r"dimension 1 of input 'x' is 20, .* pins optimization profile 0, .* for 1\.",
    ):
        made(torch.randn(2, 20, 4))
    torchtrt.save(made, tmp_path / "model.pt2")
    for module in (made, torchtrt.load(tmp_path / "model.pt2")):
        module.runtime_settings = RuntimeSettings()
        check(module, model, [(4, 32)])
        assert {1} == profiles_in_use(module)


def test_a_profile_that_the_model_does_not_have_is_refused():
    """Before any call."""
    _, made = compiled(OneBlock)
    for number, message in (
        (2, "the model has 2 profiles"),
        (-1, "must be 0 to"),
        (True, "must be 0 to"),
    ):
        with pytest.raises(SettingsError, match=message):
            made.runtime_settings = RuntimeSettings(optimization_profile=number)
    assert RuntimeSettings() == made.runtime_settings


def test_sizes_between_the_ranges_are_refused_before_anything_runs():
    """The error lists the ranges; so it does where each size fits, and not all together."""
    with watched_tensorrt() as tensorrt:
        _, made = compiled(SeveralBlocks)
    for shape, message in (
        ((2, 8), "dimension 1 of input 'x' is 8, but the model was compiled for 1 or 16 to 32"),
        ((9, 1), "dimension 0 of input 'x' is 9, but the model was compiled for 1 to 8 or 1 to 4"),
        (
            (8, 16),
            "not for all of them together: dimension 0 .* is 8, dimension 1 .* is 16. It takes",
        ),
        ((8, 16), "0 of input 'x' is 1 to 8, .* is 1; or .* is 1 to 4, .* is 16 to 32"),
    ):
        with pytest.raises(InputError, match=message):
            made(torch.randn(*shape, 4))
    assert [] == tensorrt.executions


def test_an_engine_itself_refuses_what_no_profile_takes():
    """As where PyTorch runs it, which has one range of each size."""
    _, made = compiled(OneBlock)
    with pytest.raises(EngineError, match=r"built for \(1 to 8, 1, 4\) or \(1 to 4, 16 to 32, 4\)"):
        engines_of(made)[0](torch.randn(2, 8, 4))


class Masked(nn.Module):
    """Two inputs whose lengths are equal, and one of its own."""

    def forward(self, x, mask, scale):
        return (x * mask).sum(1) * scale


@pytest.mark.parametrize("first", ["x", "mask"])
def test_an_input_of_one_range_goes_with_every_profile(every_tensorrt, first):
    """In either order: where two sizes must be equal, both ranges count."""
    ranges = torchtrt.Input(ranges=[((1,), (1,), (1,)), ((8,), (12,), (16,))])
    one = torchtrt.Input(min_shape=(1,), opt_shape=(1,), max_shape=(16,))
    x, mask = (ranges, one) if first == "x" else (one, ranges)

    class Model(nn.Module):
        def forward(self, x, mask, scale):
            return (x * mask).exp() + 1, scale * 2

    model = Model().eval()
    inputs = [x, mask, torchtrt.Input(min_shape=(1,), opt_shape=(2,), max_shape=(4,))]
    made = torchtrt.compile(model, inputs, min_block_size=1)
    (engine,) = engines_of(made)

    assert {((1, 1, 1),), ((8, 12, 16),)} == set(engine.inputs[0].profiles)
    for length in (1, 8, 16):
        operands = torch.rand(length), torch.rand(length), torch.rand(3)
        torch.testing.assert_close(made(*operands), model(*operands))
    with pytest.raises(InputError, match="compiled for 1 or 8 to 16"):
        made(torch.rand(4), torch.rand(4), torch.rand(3))


def test_inputs_of_different_numbers_of_ranges_are_refused():
    """It is unknown which go together."""
    two = torchtrt.Input(ranges=[((1,),) * 3, ((4,),) * 3])
    three = torchtrt.Input(ranges=[((1,),) * 3, ((4,),) * 3, ((8,),) * 3])
    one = torchtrt.Input(shape=(3,))
    with pytest.raises(InputError, match="Inputs have 2 and 3 ranges of sizes"):
        torchtrt.compile(Masked().eval(), [two, three, one])


def test_a_range_that_the_models_code_does_not_take_makes_no_profile():
    """What is left is built, and the warning says so."""

    class Guarded(nn.Module):
        def forward(self, x):
            if x.size(0) > 10:
                raise ValueError
            return x + 1

    ranges = torchtrt.Input(ranges=[((1,), (4,), (8,)), ((20,), (20,), (40,))])
    with pytest.warns(UserWarning, match="You asked for 1 to 40"):
        made = torchtrt.compile(Guarded().eval(), [ranges], min_block_size=1)

    assert [((1, 4, 8),)] == list(engines_of(made)[0].inputs[0].profiles)
    check_shape = torch.rand(8)
    torch.testing.assert_close(made(check_shape), check_shape + 1)


def test_an_exported_program_is_built_for_ranges_too():
    """They are given beside the program, as one range is."""
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(
        OneBlock().eval(), (torch.rand(4, 3, 4),), dynamic_shapes=({0: batch},)
    )
    ranges = torchtrt.Input(
        ranges=[((2, 3, 4), (2, 3, 4), (4, 3, 4)), ((16, 3, 4), (32, 3, 4), (64, 3, 4))]
    )
    made = torchtrt.compile(program, [ranges], min_block_size=1)

    check(made, program.module(), [(2, 3), (64, 3), (4, 3)])
    with pytest.raises(InputError, match="compiled for 2 to 4 or 16 to 64"):
        made(torch.rand(8, 3, 4))


@pytest.mark.filterwarnings("ignore:.*treespec:FutureWarning")  # PyTorch about its own copying
@MODELS
def test_copies_and_files_carry_all_profiles(every_tensorrt, tmp_path, kind):
    """A copy, a file, and a file for PyTorch."""
    model, made = compiled(kind)
    torchtrt.save(made, tmp_path / "model.pt2")
    loaded = torchtrt.load(tmp_path / "model.pt2")

    for module in (loaded, copy.deepcopy(made), copy.deepcopy(loaded)):
        check(module, model)
        with pytest.raises(InputError, match="compiled for 1 or 16 to 32"):
            module(torch.randn(2, 8, 4))
    check(torch.export.load(tmp_path / "model.pt2").module(), model)


def test_a_file_from_when_there_was_one_profile_loads(tmp_path):
    """Its ranges have another form."""
    sizes = torchtrt.Input(min_shape=(1, 1, 4), opt_shape=(2, 2, 4), max_shape=(8, 32, 4))
    model = OneBlock().eval()
    made = torchtrt.compile(model, [sizes], min_block_size=1)
    torchtrt.save(made, tmp_path / "new.pt2")
    with (
        zipfile.ZipFile(tmp_path / "new.pt2") as source,
        zipfile.ZipFile(tmp_path / "old.pt2", "w") as target,
    ):
        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith("torchtrt.json"):
                metadata = json.loads(data)
                del metadata["profiles"]
                data = json.dumps(metadata).encode()
            target.writestr(info, data)
    check(torchtrt.load(tmp_path / "old.pt2"), model, [(1, 1), (8, 32)])
    (engine,) = engines_of(made)
    described = describe_engine(engine)
    del described["inputs"][0]["ranges"], described["compatible"]

    assert engine.inputs == load_engine(described, engine.plan).inputs


def test_the_cache_knows_profiles_apart(tmp_path):
    """Other ranges are another engine, the same ones the same."""
    model = OneBlock().eval()

    def built(ranges):
        inputs = [torchtrt.Input(ranges=ranges)]
        made = torchtrt.compile(model, inputs, min_block_size=1, engine_cache=tmp_path)
        check(made, model, [(low[0], low[1]) for low, _, _ in ranges])
        return [block.cached for block in made.report.blocks]

    wider = [RANGES[0], ((1, 16, 4), (2, 20, 4), (4, 33, 4))]
    assert [[False], [True], [False], [False], [True]] == [
        built(ranges) for ranges in (RANGES, RANGES, wider, RANGES[::-1], wider)
    ]


def test_new_weights_leave_the_profiles(every_tensorrt):
    """Refitted engines serve every range."""
    _, made = compiled(SeveralBlocks, immutable_weights=False)
    other = SeveralBlocks().eval()

    check(torchtrt.refit_module_weights(made, other), other)


def test_threads_run_in_different_profiles(every_tensorrt):
    """Each with a context of its own, which has a profile of its own."""
    model, made = compiled(SeveralBlocks)
    failures = []

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        for batch, length in FITTING[seed % 2 :: 2] * 3:
            x = torch.randn(batch, length, 4, generator=generator)
            with torch.no_grad():
                if not torch.allclose(made(x)[0], model(x)[0], atol=1e-5):
                    failures.append((seed, batch, length))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_recorded_calls_are_of_their_own_profile():
    """A recording keeps the context that ran with its shapes last, whatever was called in between."""
    model, made = compiled(OneBlock)
    (engine,) = engines_of(made)
    short, long = torch.randn(2, 1, 4), torch.randn(2, 16, 4)
    device = short.device
    for x in (short, long):
        engine(x)
    engine._idle[device, 7] = [*engine._idle[device, 0]]
    engine._idle[device, 0] = []
    engine(short)

    kept = engine._to_record(device, [long.shape], 0)
    assert (1, [long.shape]) == (kept.context.active_optimization_profile, kept.shapes)
    with torch.no_grad():
        torch.testing.assert_close(kept.run([long], 0)[0], model(long))


def test_inspecting_shows_the_profiles(tmp_path, capsys):
    """As data, and to a person."""
    _, made = compiled(SeveralBlocks)
    path = tmp_path / "model.pt2"
    torchtrt.save(made, path)
    assert 0 == main(["inspect", str(path), "--json"])
    answer = json.loads(capsys.readouterr().out)

    assert [[[1, 2, 8], [1, 1, 1]], [[1, 2, 4], [16, 20, 32]]] == [
        list(profile.values()) for profile in answer["profiles"]
    ]
    assert [[1, 2, 8], [1, 1, 32]] == list(answer["ranges"].values())
    first = answer["engines"][0]["inputs"][0]
    assert [[1, 1, 4], [2, 1, 4], [8, 32, 4]] == [first[bound] for bound in ("min", "opt", "max")]
    assert [[list(shape) for shape in profile] for profile in RANGES] == first["ranges"]
    assert 0 == main(["inspect", str(path)])
    assert "float32 [1 to 8, 1, 4] or [1 to 4, 16 to 32, 4]" in capsys.readouterr().out


def test_a_size_between_engines_is_not_negative():
    """One of a size and another is, for sizes that a condition excludes."""

    def behind(x, y):
        rest = (x * 2)[y.shape[1] - 1 :]
        return rest.index_put((torch.tensor([0, 0]),), x[:1].expand(2), accumulate=True)

    inputs = [
        torchtrt.Input(min_shape=(1,), opt_shape=(5,), max_shape=(8,)),
        torchtrt.Input(min_shape=(1, 1), opt_shape=(1, 5), max_shape=(1, 8), dtype=torch.int8),
    ]
    with torchtrt.use_tensorrt("reference@8.6.0"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torchtrt.compile(Function(behind).eval(), inputs, min_block_size=1)

        for size in (1, 5, 8):
            x, y = torch.rand(size), torch.ones(1, size, dtype=torch.int8)
            torch.testing.assert_close(compiled(x, y), behind(x, y))


@pytest.mark.filterwarnings("ignore::torchtrt.errors.SizeWarning")
def test_a_range_whose_optimal_sizes_break_an_equation_keeps_the_others():
    """An engine is built for the smallest, the optimal and the largest sizes, which have to satisfy it."""

    class First(nn.Module):
        def forward(self, x):
            return x.split(x.shape[1] // 2, 0)[0] * 1

    ranges = [((2, 5), (2, 5), (8, 5)), ((1, 2), (2, 2), (8, 5))]
    compiled = torchtrt.compile(First().eval(), [torchtrt.Input(ranges=ranges)], min_block_size=1)
    for shape in ((1, 2), (1, 3), (1, 5), (2, 5)):
        x = torch.rand(shape)
        torch.testing.assert_close(compiled(x), First()(x))
