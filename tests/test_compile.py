"""torchtrt.compile from end to end: fallback, structure, threads."""

import threading

import pytest
import torch
from torch import nn

import torchtrt
from tests.support.compiled import assert_same, engines_of
from torchtrt.errors import (
    NoEngineWarning,
)
from torchtrt.packs import ConverterPack, PackInfo, add_pack, use_packs

# Partitioning


def test_what_has_no_converter_runs_in_pytorch_between_two_engines(version, small):
    """The result is that of eager PyTorch, and the report says what stayed and why."""
    compiled = torchtrt.compile(small, (torch.rand(4, 8),), min_block_size=1)

    assert 2 == len(engines_of(compiled))
    assert_same(compiled, small, torch.rand(4, 8))
    (stayed,) = compiled.report.in_torch
    assert "aten.igamma.default" == stayed.op
    assert "no pack has a converter" in stayed.reason


@pytest.mark.parametrize("spelling", ["aten.relu", "aten::relu", torch.ops.aten.relu.default])
def test_torch_executed_ops_stay_in_pytorch(small, spelling):
    """An op that the person excludes stays, in any spelling."""
    compiled = torchtrt.compile(
        small, (torch.rand(4, 8),), min_block_size=1, torch_executed_ops={spelling}
    )

    assert_same(compiled, small, torch.rand(4, 8))
    reasons = {entry.op: entry.reason for entry in compiled.report.in_torch}
    assert "torch_executed_ops" in reasons["aten.relu.default"]


def test_small_blocks_stay_in_pytorch(small):
    """With a min_block_size that no block reaches there is no engine, and the result is the same."""
    settings = {"min_block_size": 50, "torch_executed_ops": {"aten.relu"}}
    with pytest.warns(NoEngineWarning, match="fewer than min_block_size=50"):
        compiled = torchtrt.compile(small, (torch.rand(4, 8),), **settings)

    assert [] == engines_of(compiled)
    assert_same(compiled, small, torch.rand(4, 8))


def test_a_dry_run_reports_and_runs_in_pytorch(small):
    """Nothing is built, the report is that of the real thing."""
    real = torchtrt.compile(small, (torch.rand(4, 8),), min_block_size=1)
    dry = torchtrt.compile(small, (torch.rand(4, 8),), min_block_size=1, dryrun=True)

    assert [] == engines_of(dry)
    assert real.report.converted == dry.report.converted
    assert real.report.in_torch == dry.report.in_torch
    assert_same(dry, small, torch.rand(4, 8))


def test_engines_record_which_pack_converted_which_node(small):
    """A wrong engine can be traced to the pack and version behind each node."""
    compiled = torchtrt.compile(small, (torch.rand(4, 8),), min_block_size=1)

    recorded = {
        name: pack for engine in engines_of(compiled) for name, pack in engine.converted_by.items()
    }
    assert "aten_core 0.1.0" == recorded["linear"]


def test_an_unsupported_dtype_stays_in_pytorch_with_the_reason(version):
    """complex128 is no TensorRT dtype: the ops on it fall back, the result is right."""

    class Spectrum(nn.Module):
        def forward(self, x):
            return torch.relu(torch.abs(torch.fft.fft(x.double())) + 1).sqrt().float() * 2

    model = Spectrum().eval()
    compiled = torchtrt.compile(model, (torch.rand(4, 8),), min_block_size=1)

    assert_same(compiled, model, torch.rand(4, 8))
    assert any("has no complex128" in entry.reason for entry in compiled.report.in_torch)


def test_double_precision_is_truncated_only_on_request(version):
    """float64 stays in PyTorch, unless truncate_double computes it in float32; it comes out as float64 either way."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double().eval()
    x = torch.rand(2, 4, dtype=torch.float64)

    with pytest.warns(NoEngineWarning, match="can run 0 of its 2 ops"):
        exact = torchtrt.compile(model, (x,), min_block_size=1)
    truncated = torchtrt.compile(model, (x,), min_block_size=1, truncate_double=True)

    assert [] == engines_of(exact)
    assert any("truncate_double=True" in entry.reason for entry in exact.report.in_torch)
    assert 1 == len(engines_of(truncated))
    assert_same(exact, model, x, tolerance=1e-12)
    assert_same(truncated, model, x, tolerance=1e-5)


# Modules, programs, structure


def test_an_exported_program_compiles_with_its_own_example_sizes(small):
    """A program needs no inputs: ranges and optimal sizes are its own."""
    dim = torch.export.Dim("batch", min=1, max=6)
    exported = torch.export.export(small, (torch.rand(3, 8),), dynamic_shapes=({0: dim},))

    compiled = torchtrt.compile(exported, min_block_size=1)

    for batch in (1, 6):
        assert_same(compiled, small, torch.rand(batch, 8))


def test_nested_inputs_outputs_and_keywords_keep_their_structure():
    """Dictionaries, tuples and keyword arguments go in and come out as they do in eager PyTorch."""

    class Nested(nn.Module):
        def forward(self, pair, *, options):
            first, second = pair
            total = torch.relu(first + second) * options["scale"]
            return {"total": total, "parts": (first - second, [total.sum(0)])}

    model = Nested().eval()
    pair = (torch.rand(2, 3), torch.rand(2, 3))
    options = {"scale": torch.rand(3)}

    compiled = torchtrt.compile(model, (pair,), kwarg_inputs={"options": options}, min_block_size=1)

    torch.testing.assert_close(compiled(pair, options=options), model(pair, options=options))


def test_positional_inputs_may_be_given_by_name(small):
    """A call by keyword means the same as in eager PyTorch."""
    compiled = torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1)
    x = torch.rand(2, 8)

    torch.testing.assert_close(compiled(x=x), compiled(x))


def test_inputs_need_not_be_contiguous(small):
    """Strided inputs give the same result."""
    compiled = torchtrt.compile(small, (torch.rand(4, 8),), min_block_size=1)

    assert_same(compiled, small, torch.rand(8, 4).t())


def test_a_buffer_that_the_model_writes_is_not_frozen():
    """State changes from call to call, as in eager PyTorch."""

    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return torch.relu(x * 2) + self.total

    eager, source = Running().eval(), Running().eval()
    compiled = torchtrt.compile(source, (torch.rand(2, 3),), min_block_size=1)

    for _ in range(3):
        assert_same(compiled, eager, torch.rand(2, 3))


def test_buffers_that_are_none_hide_no_other():
    """torch.export counts them in the place of those that ``forward`` replaces."""

    class Counter(nn.Module):
        """Has buffers that it does not use, and one that it replaces."""

        def __init__(self):
            super().__init__()
            self.register_buffer("first", None)
            self.register_buffer("total", torch.zeros(3))
            self.register_buffer("last", torch.ones(3))

        def forward(self, x):
            """Adds to the total."""
            self.total = self.total + x
            return x * 2 + self.last

    model, source, x = Counter().eval(), Counter().eval(), torch.arange(3.0)
    compiled = torchtrt.compile(source, [x], min_block_size=1)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))

    (total,) = compiled.buffers()
    assert torch.equal(total, model.total)
    assert ["first", "total", "last"] == list(source._buffers)


def test_a_model_in_training_mode_is_compiled_with_a_warning():
    """Dropout that drops is probably a mistake in an engine. The warning names the user's line."""
    with pytest.warns(UserWarning, match="training mode") as warned:
        torchtrt.compile(
            nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.rand(1, 2),), min_block_size=1
        )

    assert __file__ == warned[0].filename


def test_compiling_prints_nothing(small, capfd):
    """In a pipe there is no progress bar and no noise from PyTorch or TensorRT."""
    torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1)

    assert ("", "") == tuple(capfd.readouterr())


def test_two_threads_compile_with_different_settings(small):
    """Settings and the TensorRT in use belong to one compilation."""
    results = {}

    def work(version, ops):
        with torchtrt.use_tensorrt(f"reference@{version}"):
            for _ in range(2):
                results[version] = torchtrt.compile(
                    small, (torch.rand(2, 8),), min_block_size=1, torch_executed_ops=ops
                )

    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in (("8.6.0", {"aten.relu"}), ("11.4.0", set()))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert "reference@8.6.0" == results["8.6.0"].report.tensorrt
    assert "aten.relu.default" in {entry.op for entry in results["8.6.0"].report.in_torch}
    assert "aten.relu.default" not in {entry.op for entry in results["11.4.0"].report.in_torch}
    for compiled in results.values():
        assert_same(compiled, small, torch.rand(2, 8))


def test_the_report_names_the_passes_that_changed_the_graph(small):
    """By name and pack; not those that found nothing to do."""
    inputs = (torch.rand(2, 8),)

    assert [] == torchtrt.explain(small, inputs).passes
    (name,) = torchtrt.explain(small, inputs, autocast=torch.float16).passes
    assert name.startswith("autocast of aten_core ")


def test_a_pass_that_changes_only_a_branch_is_named():
    """Branches and bodies of loops are graphs of their own, and count."""

    class Branching(nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    def sines_to_tangents(graph_module, settings):
        for module in graph_module.modules():
            for node in module.graph.nodes:
                if node.target is torch.ops.aten.sin.default:
                    node.target = torch.ops.aten.tan.default

    pack = ConverterPack("boxes")
    pack.lowering_pass("tangents")(sines_to_tangents)
    pack.lowering_pass("idle")(lambda graph_module, settings: None)

    with use_packs():
        add_pack(pack, PackInfo("boxes", version="2.1"))
        report = torchtrt.explain(Branching().eval(), (torch.rand(3),))
    assert ["tangents of boxes 2.1"] == report.passes


def test_progress_bars_name_the_stages(small, monkeypatch, capfd):
    """On standard error, where they are asked for; they go when the model is compiled."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes what is captured for a terminal
    report = torchtrt.compile(small, (torch.rand(2, 8),), min_block_size=1, progress=True).report

    printed, shown = capfd.readouterr()
    assert "" == printed
    assert "building" in shown
    assert {"exporting", "lowering", "conversion", "building"} <= set(report.seconds)


# Programs with odd corners


def test_a_number_read_from_a_tensor_splits_the_model_but_does_not_stop_it():
    """item() has no bounds and stays in PyTorch; what can be converted around it is."""

    class Item(nn.Module):
        def forward(self, x, count):
            number = count.item()
            torch._check(number >= 0)
            return torch.relu(x * 2 + 1) * number

    model, count = Item().eval(), torch.tensor(3)
    compiled = torchtrt.compile(model, (torch.rand(4), count), min_block_size=1)

    assert 1 <= len(engines_of(compiled))
    for value in (0, 5):
        assert_same(compiled, model, torch.rand(4), torch.tensor(value))


def test_a_default_lower_bound_does_not_ask_for_empty_tensors(version):
    """Dim(max=...) starts at 0, where reshapes have no meaning; engines start at 1."""

    class Flatten(nn.Module):
        def forward(self, x):
            return torch.relu(x.flatten(1) @ torch.ones(12, 2))

    model = Flatten().eval()
    dim = torch.export.Dim("batch", max=5)
    compiled = torchtrt.compile(
        model, (torch.rand(3, 3, 4),), dynamic_shapes=({0: dim},), require_full_compilation=True
    )

    for batch in (1, 5):
        assert_same(compiled, model, torch.rand(batch, 3, 4))


def test_writes_inside_a_decomposition_do_not_matter(version):
    """PyTorch's decomposition of cosine similarity works in place; it is made functional first."""

    class Similarity(nn.Module):
        def forward(self, x, y):
            return torch.nn.functional.pairwise_distance(x, y) + 1

    model = Similarity().eval()
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    compiled = torchtrt.compile(model, (x, y), min_block_size=1)

    assert_same(compiled, model, x, y)
