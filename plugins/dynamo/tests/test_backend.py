"""``torch.compile(model, backend="torchtrt")``: what PyTorch's own backends do, with the same values."""

import copy
import warnings

import pytest
import torch
from torch import nn

from tests.support.processes import run_python
from torchtrt.errors import InputError, NoEngineWarning
from torchtrt_testing.faults import watched_tensorrt

OPTIONS = {"min_block_size": 1}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Every test captures anew."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model, **arguments):
    """The model, compiled with blocks of any size."""
    return torch.compile(model, backend="torchtrt", options=OPTIONS, **arguments)


def assert_near(actual, expected):
    """Compares tensors, to float32's usual tolerance."""
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


class Builds(list):
    """For each engine that was to be built, the fewest and the most rows of its first input.

    Attributes:
        accepts_ranges: Whether more than one number of rows can be compiled for.
        changes: What ``watched_tensorrt`` takes.
    """

    def __init__(self):
        super().__init__()
        self.accepts_ranges = True
        self.changes = lambda execution: None
        self.profiles = []

    def refuses(self, build):
        input_ = build.network.get_input(0)
        varies = input_.shape[0] == -1
        least, _, most = self.profiles[-1].get_shape(input_.name) if varies else [input_.shape] * 3
        self.append((least[0], most[0]))
        if varies and not self.accepts_ranges:
            raise InputError("no range")
        return ""


@pytest.fixture
def builds():
    """The engines that were built, by their rows."""
    made = Builds()
    watched = watched_tensorrt(made.refuses, lambda execution: made.changes(execution))
    with watched as tensorrt:

        class Builder(tensorrt.module.Builder):
            def create_optimization_profile(self):
                made.profiles.append(super().create_optimization_profile())
                return made.profiles[-1]

        tensorrt.module.Builder = Builder
        yield made


class Running(nn.Module):
    """Statistics and a state that calls change, and numbers among the arguments."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("state", torch.zeros(3))

    def forward(self, x, count, factor):
        self.state.add_(x.sum(0).detach())
        return self.norm(self.linear(x)) * count * factor + self.state


@pytest.mark.parametrize("training", [False, True])
def test_buffers_sizes_and_numbers_may_change(training):
    """Buffers are written to as in eager; a size, an int or a float that changes is never an old one."""
    torch.manual_seed(0)
    model = Running().train(training)
    eager = copy.deepcopy(model)
    fast = compiled(model)

    with torch.no_grad():
        for rows, count, factor in (
            (4, 2, 0.5),
            (5, 3, 0.7),
            (6, 3, 0.9),
            (6, 4, 0.9),
            (4, 2, 0.5),
        ):
            x = torch.rand(rows, 3)
            assert_near(fast(x, count, factor), eager(x, count, factor))
            for (name, mine), theirs in zip(model.named_buffers(), eager.buffers(), strict=True):
                torch.testing.assert_close(mine, theirs, msg=name)


@pytest.mark.parametrize("change", ["load_state_dict", "in place", "data", "new parameter"])
def test_weights_that_change_are_seen(change):
    """The next call computes with them, however they came in."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    fast, x = compiled(model), torch.rand(4, 3)

    with torch.no_grad():
        fast(x)
        if change == "load_state_dict":
            model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})
        elif change == "in place":
            model[0].weight.mul_(2)
        elif change == "data":
            model[0].weight.data = torch.rand(3, 3)
        else:
            model[0].weight = nn.Parameter(torch.rand(3, 3))
        assert_near(fast(x), model(x))


@pytest.mark.parametrize(("immutable", "built"), [(None, 2), (False, 1), (True, 4)])
def test_weights_that_change_are_refitted(immutable, built, builds):
    """From the first change on, or from the second: engines for constant weights are faster."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)).eval()
    settings = {} if immutable is None else {"immutable_weights": immutable}
    fast = torch.compile(model, backend="torchtrt", options={**OPTIONS, **settings})
    x = torch.rand(4, 3)
    with torch.no_grad():
        assert_near(fast(x), model(x))
        for value in (2.0, 0.5, 3.0):
            model[0].weight.mul_(value)
            model.train()
            model(x * value)  # PyTorch does not count what this writes to the statistics
            model.eval()
            assert_near(fast(x), model(x))
            assert_near(fast(x), model(x))

    assert built == len(builds)


def test_a_refit_keeps_the_buffers_that_calls_write_to():
    """They are the model's own."""
    torch.manual_seed(0)
    model = Running().eval()
    eager = copy.deepcopy(model)
    fast, x = compiled(model), torch.rand(4, 3)
    with torch.no_grad():
        for _ in range(3):
            for module in (model, eager):
                module.linear.weight.mul_(0.5)
            assert_near(fast(x, 2, 0.5), eager(x, 2, 0.5))
            torch.testing.assert_close(model.state, eager.state)


def test_gradients_and_steps_are_eagers():
    """Training a head over a compiled body trains the body too."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    eager = copy.deepcopy(model)
    fast = compiled(model)
    mine, theirs = (torch.optim.SGD(module.parameters(), 0.1) for module in (model, eager))

    for _ in range(3):
        x = torch.rand(4, 3, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        for optimizer, call, value in ((mine, fast, x), (theirs, eager, y)):
            optimizer.zero_grad()
            call(value).pow(2).sum().backward()
            optimizer.step()
        assert_near(x.grad, y.grad)
        for a, b in zip(model.parameters(), eager.parameters(), strict=True):
            assert_near(a, b)


def test_a_branch_on_data_is_taken_as_in_eager():
    """torch.cond stays a branch."""

    class Branch(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: (y + 1).sin(), lambda y: (y - 1).cos(), (x,))

    fast = compiled(Branch())
    for value in (1.0, -1.0):
        x = torch.full((2, 3), value)
        assert_near(fast(x), Branch()(x))


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_gives_eagers_dtype(inside):
    """Around the call, or in the model."""

    class Casting(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
                return self.linear(x) * 2

    model, x = Casting().eval(), torch.rand(2, 3)
    fast = compiled(model)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=not inside):
        actual, expected = fast(x), model(x)

    assert expected.dtype is actual.dtype
    torch.testing.assert_close(actual, expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ones(3) * 2,
        lambda x: (x.shape[0], x + 1),
        lambda x: (x + 1, None, 3),
        lambda x: x.shape[0] * 2,
        lambda x: [x, x.relu(), x[:1]],
    ],
    ids=["no input is read", "a size", "None and a number", "only a number", "an input and a view"],
)
def test_graphs_of_any_kind_of_output_run(function):
    """Without tensor inputs, with numbers, with inputs among the outputs."""
    fast = compiled(function)
    for rows in (2, 3, 4):
        x = torch.rand(rows, 3)
        actual, expected = fast(x), function(x)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_pytorchs_modes_are_taken(mode):
    """As for other backends; torch.compile allows a mode or options, not both."""
    layers = (nn.Linear(3, 3), nn.ReLU()) * 3  # enough for an engine
    model, x = nn.Sequential(*layers).eval(), torch.rand(2, 3)

    with torch.no_grad():
        assert_near(torch.compile(model, backend="torchtrt", mode=mode)(x), model(x))


@pytest.mark.parametrize("options", [5, "autocast", {3: 4}])
def test_options_that_are_no_settings_by_name_are_an_error(options):
    """Whatever Python would say of them."""
    with pytest.raises(Exception, match=r"SettingsError: The options .* are no settings by their"):
        torch.compile(nn.ReLU(), backend="torchtrt", options=options)(torch.rand(2, 3))


def test_an_unknown_mode_is_an_error_that_lists_the_known_ones():
    """At the first call, as Dynamo has it."""
    with pytest.raises(Exception, match=r"torchtrt has no mode 'fast'\. It has: 'default'"):
        torch.compile(nn.Linear(3, 3), backend="torchtrt", mode="fast")(torch.rand(2, 3))


PARALLEL = """
import sys, warnings
warnings.simplefilter("ignore")
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    x = torch.rand(3, 4)
    expected = model(x).detach()
    mesh = init_device_mesh("cpu", (2,))
    parallel = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    with torch.no_grad():
        fast = torch.compile(parallel, backend="torchtrt", options={"min_block_size": 1})
        torch.testing.assert_close(fast(x), expected)
        torch.testing.assert_close(fast(x + 1), parallel(x + 1))
    if rank == 0:
        print("parallel")
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)
"""


def test_a_tensor_parallel_model_runs_with_its_collectives_between_engines(tmp_path):
    """Parallelized with PyTorch's own API, on two processes; each has half of the weights."""
    program = tmp_path / "parallel.py"
    program.write_text(PARALLEL)

    done = run_python(str(program), str(tmp_path / "store"), timeout=300)

    assert 0 == done.returncode, done.stderr[-3000:]
    assert "parallel" in done.stdout


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout", "dropout2d"])
def test_a_write_through_a_dropout_that_drops_nothing_reaches_its_input(name):
    """It returns its input, as in eager PyTorch."""

    class Model(torch.nn.Module):
        def forward(self, x):
            dropped = getattr(torch.nn.functional, name)(x, training=self.training)
            dropped += 1
            return x * 2, dropped

    torch._dynamo.reset()
    model = Model().eval()
    compiled = torch.compile(model, backend="torchtrt", options={"min_block_size": 1})
    x, other = torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)

    for expected, actual in zip(model(x), compiled(other), strict=True):
        torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(other, x)


def test_a_graph_without_engines_warns_once():
    """With its first call, and not again for each size; graphs that Dynamo broke off are parts, of which none warns."""

    def small(x):
        return torch.igamma(x, x * 2)

    def broken(x):
        y = x * 3
        torch._dynamo.graph_break()
        for _ in range(6):
            y = (y + 1).relu()
        return y

    fast, parted = (torch.compile(module, backend="torchtrt") for module in (small, broken))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", NoEngineWarning)
        for rows in (3, 4, 5, 6):
            assert_near(fast(torch.ones(rows)), small(torch.ones(rows)))
    assert 2 == len(shown)  # a graph for the first size, and one for any
    assert all("can run 1 of its 2 ops" in str(module.message) for module in shown)

    assert_near(parted(torch.ones(3)), broken(torch.ones(3)))


@pytest.mark.parametrize("missing", ["torchtrt_runtime", "torchtrt_compiler"])
def test_a_missing_distribution_is_named(missing):
    """PyTorch imports the backend in the first call."""
    code = (
        "import importlib.abc, sys\n"
        "class Hidden(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == sys.argv[1]:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "for name in [each for each in sys.modules if each.startswith('torchtrt_')]:\n"
        "    del sys.modules[name]\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import torch\n"
        "try: torch.compile(torch.nn.Linear(2, 2), backend='torchtrt')(torch.rand(2, 2))\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    done = run_python("-c", code, missing, check=True)
    distribution = missing.replace("_", "-")
    assert done.stdout.strip() == (
        f"MissingDistributionError torchtrt_dynamo.torchtrt needs the distribution {distribution}, which is not "
        f"installed. Run `pip install {distribution}`."
    )


def test_sizes_without_bounds_get_ranges_around_those_of_the_calls(builds):
    """The number of builds grows with the logarithm of the sizes; no call computes with other sizes than its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    fast = torch.compile(model, backend="torchtrt", options=OPTIONS, dynamic=True)

    with torch.no_grad():
        for rows in (5, 6, 7, 8, 4, 9, 30, 17, 32, 3, 2, 40, 64, 5):
            x = torch.rand(rows, 3)
            assert_near(fast(x), model(x))

    assert [(5, 5), (4, 8), (4, 16), (4, 32), (2, 32), (2, 64)] == builds


def test_several_sizes_without_bounds_vary_together_and_alone(builds):
    """Tensors that share a size do so in each call."""

    class Model(nn.Module):
        def forward(self, x, y, z):
            return x @ y + z, x.sum(0)

    model = Model().eval()
    fast = torch.compile(model, backend="torchtrt", options=OPTIONS, dynamic=True)

    for rows, inner, columns in (
        (3, 4, 5),
        (6, 4, 5),
        (6, 9, 5),
        (7, 10, 12),
        (4, 8, 6),
        (16, 16, 16),
    ):
        inputs = torch.rand(rows, inner), torch.rand(inner, columns), torch.rand(rows, columns)
        for mine, theirs in zip(fast(*inputs), model(*inputs), strict=True):
            assert_near(mine, theirs)
    assert len(builds) <= 5


def test_sizes_that_cannot_vary_in_one_program_are_built_one_by_one(builds):
    """As where a range cannot be compiled."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    builds.accepts_ranges = False
    fast = torch.compile(model, backend="torchtrt", options=OPTIONS, dynamic=True)
    with torch.no_grad():
        for rows in (5, 6, 7, 6, 5):
            x = torch.rand(rows, 3)
            assert_near(fast(x), model(x))
    assert [least for least, most in builds if least == most] == [5, 6, 7]


def test_a_size_in_a_range_that_the_engines_refuse_has_engines_of_its_own(builds):
    """As one for which the model computes something else. Later calls with it take these engines."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()

    def refuse_seven(execution):
        if (7, 7) not in builds and next(iter(execution.inputs.values())).shape[0] == 7:
            raise InputError("not 7")

    builds.changes = refuse_seven
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (5, 6, 7, 8, 7, 6):
            x = torch.rand(rows, 3)
            assert_near(fast(x), model(x))
    assert [(5, 5), (4, 8), (7, 7)] == builds


def test_a_size_that_pytorch_does_not_know_may_become_zero():
    """PyTorch captures one graph for all sizes, 0 among them."""
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    fast = compiled(model)
    with torch.no_grad():
        for rows in (3, 0, 5, 1, 7):
            x = torch.rand(rows, 3)
            torch._dynamo.decorators.mark_unbacked(x, 0)
            assert_near(fast(x), model(x))


def test_a_written_buffer_may_be_replaced():
    """A reset of a cache, by an assignment or in ``.data``."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x):
            self.count.add_(1)
            return self.layer(x) * self.count

    model = Counting().eval()
    eager, x = copy.deepcopy(model), torch.rand(2, 4)
    compiled = torch.compile(model, backend="torchtrt", options={"min_block_size": 1})
    with torch.no_grad():
        for number in range(6):
            for own in (model, eager):
                if number == 2:
                    own.count = torch.full((4,), 7.0)
                if number == 4:
                    own.count.data = torch.full((4,), 9.0)
                    own.layer.weight.mul_(2)
            torch.testing.assert_close(compiled(x), eager(x))
            torch.testing.assert_close(model.count, eager.count)
