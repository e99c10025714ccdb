"""The program of ``test_two_ranks.py``: two processes that make many checks in turn, over gloo.

A check is a function ``check_*`` that both processes call with the device mesh and a folder that they share.
"""

import copy
import datetime
import json
import os
import sys
import time
import traceback
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import torchtrt
from tests.parallel_parts import (  # noqa: F401  (checks)
    check_a_batch_is_divided_by_samples,
    check_an_engine_with_collectives_that_runs_twice,
    check_buffers_that_are_equal_until_they_are_written,
    check_divided_rows_with_torch_compile,
    check_graphs_of_gradients_stay_whole,
    check_inputs_whose_examples_differ,
    check_ranks_that_divide_other_rows,
    check_rows_are_divided,
    check_the_order_of_parts,
    check_tuning_tries_divided_rows,
    check_weights_that_were_equal_take_equal_ones,
)
from tests.support.modules import Function
from tests.support.parallel_models import Block, Perceptron, parallel_perceptron
from torchtrt.errors import InputError, ProcessGroupError, UnsupportedProgramError
from torchtrt_compiler.measuring import tuning
from torchtrt_compiler.measuring.tuning import Measuring, measuring_by
from torchtrt_runtime.processes.groups import Processes
from torchtrt_runtime.processes.meetings import agreed
from torchtrt_testing.faults import watched_tensorrt

LIMIT = datetime.timedelta(seconds=60)
ops = torch.ops._c10d_functional


def compiled_for(model, *inputs, **settings):
    """Returns a compiled model whose engines may have any number of ops."""
    return torchtrt.compile(model, list(inputs), min_block_size=1, **settings)


def expect_error(words, call, *args):
    """Checks that a call raises a ``ProcessGroupError`` with these words."""
    with pytest.raises(ProcessGroupError, match=words):
        call(*args)


def check_a_block_is_one_engine(mesh, folder):
    """Sizes vary; saved, each rank reads its own file, and not the other's."""
    torch.manual_seed(0)
    model, rank = Block().eval(), mesh.get_rank()
    inputs = [torch.rand(2, length, 8) for length in (6, 5, 12)]
    expected = [model(x).detach() for x in inputs]
    columns, rows = ColwiseParallel, RowwiseParallel
    plan = {"query": columns(), "out": rows(), "up": columns(), "down": rows()}
    parallel = parallelize_module(model, mesh, plan)
    sizes = torchtrt.Input(min_shape=(2, 2, 8), opt_shape=(2, 6, 8), max_shape=(2, 16, 8))
    compiled = compiled_for(parallel, sizes, require_full_compilation=True)
    assert len(compiled.report.blocks) == 1
    assert [2] == [
        len(layer.nodes)
        for layer in compiled.report.layers
        if "COLLECTIVES" in str(layer.capability)
    ]
    torchtrt.save(compiled, f"{folder}/block-{rank}.pt2")
    dist.barrier()
    loaded = torchtrt.load(f"{folder}/block-{rank}.pt2")
    for module in (compiled, loaded, copy.deepcopy(compiled)):
        for x, result in zip(inputs, expected, strict=True):
            torch.testing.assert_close(module(x), result)
    expect_error("Each rank has a file of its own", torchtrt.load, f"{folder}/block-{1 - rank}.pt2")


def check_collectives_between_engines(mesh, folder):
    """A setting, and a TensorRT without the layer, leave collectives to PyTorch."""
    parallel, whole = parallel_perceptron(mesh)
    x = torch.rand(2, 8)
    settings = {"disabled_capabilities": ["DISTRIBUTED_COLLECTIVES"]}
    compiled = compiled_for(parallel, x, **settings)
    assert "disabled_capabilities turns it off" in str(compiled.report.in_torch)
    with torchtrt.use_tensorrt("reference@8.6.0"):
        older = compiled_for(parallel, x)
        assert "which TensorRT has from version 10.16 on" in str(older.report.in_torch)
    for module in (compiled, older):
        torch.testing.assert_close(module(x), whole(x))
    torchtrt.save(compiled, f"{folder}/between-{mesh.get_rank()}.pt2")


def check_the_first_version_with_collectives(mesh, folder):
    """TensorRT 10.16 has them as a preview feature; a cache keeps the engine with its collectives."""
    parallel, whole = parallel_perceptron(mesh)
    x, cache = torch.rand(2, 8), f"{folder}/cache-{mesh.get_rank()}"
    with torchtrt.use_tensorrt("reference@10.16.1"):
        for _ in range(2):
            compiled = compiled_for(parallel, x, engine_cache=cache)
            assert len(compiled.report.blocks) == 1
            torch.testing.assert_close(compiled(x), whole(x))
    torchtrt.save(compiled, f"{folder}/inside-{mesh.get_rank()}.pt2")


def check_each_collective(mesh, folder):
    """Engines compute what PyTorch does, for fixed sizes and for those that vary."""
    group = mesh.get_group().group_name

    def exchanges(x):
        calls = [
            *(ops.all_reduce(x, kind, group) for kind in ("sum", "product", "min", "max")),
            ops.all_gather_into_tensor(x, 2, group),
            *(ops.reduce_scatter_tensor(x, kind, 2, group) for kind in ("sum", "max")),
            *(ops.broadcast(x, root, group) for root in range(2)),
            ops.all_reduce(x[0, 0], "sum", group),
            ops.all_reduce((x * 9).long(), "max", group),
            ops.all_reduce(x.half(), "sum", group),
        ]
        return [ops.wait_tensor(call) * 2 for call in calls]

    sizes = torchtrt.Input(min_shape=(4, 3), opt_shape=(4, 3), max_shape=(8, 3))
    for sizes_, rows in ((torch.rand(4, 3), (4,)), (sizes, (4, 8, 6))):
        model = Function(exchanges)
        compiled = compiled_for(model, sizes_, require_full_compilation=True)
        assert len(compiled.report.blocks) == 1
        for count in rows:
            x = torch.rand(count, 3) + mesh.get_rank()
            for actual, expected in zip(compiled(x), model(x), strict=True):
                torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def check_averages_and_parts(mesh, folder):
    """The average, which gloo lacks, and the exchange of equal parts."""
    group, rank = mesh.get_group().group_name, mesh.get_rank()

    def exchanges(x):
        average = ops.wait_tensor(ops.all_reduce(x, "avg", group))
        return average + 0, ops.wait_tensor(ops.all_to_all_single(x, [2, 2], [2, 2], group)) + 0

    x = torch.arange(4.0) + 10 * rank
    compiled = compiled_for(Function(exchanges), x, require_full_compilation=True)
    average, parts = compiled(x)
    assert [5.0, 6.0, 7.0, 8.0] == average.tolist()
    assert [[0.0, 1.0, 10.0, 11.0], [2.0, 3.0, 12.0, 13.0]][rank] == parts.tolist()


def check_pytorch_runs_what_tensorrt_does_not(mesh, folder):
    """The report has the reason, and engines wait for results of PyTorch."""
    group = mesh.get_group().group_name

    def exchanges(x):
        bits = ops.wait_tensor(ops.all_reduce(x.int(), "bor", group))
        flags = ops.wait_tensor(ops.all_gather_into_tensor(x > 1, 2, group))
        received = [[1, 1], [3, 3]][mesh.get_rank()]
        uneven = ops.wait_tensor(ops.all_to_all_single(x, received, [1, 3], group))
        return bits + 1, flags.logical_not(), uneven + 1

    x = torch.arange(4.0) + mesh.get_rank()
    compiled = compiled_for(Function(exchanges), x)
    reasons = str(compiled.report.in_torch)
    for words in ("no reduction 'bor'", "bool", "TensorRT exchanges equal parts", "PyTorch runs"):
        assert words in reasons, reasons
    bits, flags, uneven = compiled(x)
    assert [[1, 2], [2, 3, 4, 3, 4, 5]][mesh.get_rank()] == uneven.tolist()
    assert [2, 4, 4, 8] == bits.tolist()
    assert [1, 1, 0, 0, 1, 0, 0, 0] == flags.int().tolist()


def check_engines_wait_for_pytorch(mesh, folder):
    """A wait in an engine is too late for a collective that PyTorch runs."""
    group = mesh.get_group().group_name
    model = Function(lambda x: ops.wait_tensor(ops.all_reduce(x + 1, "sum", group).view(-1)) * 2)
    x = torch.rand(3, 100_000)
    compiled = compiled_for(model, x, torch_executed_ops="_c10d_functional.all_reduce")
    targets = [str(node.target) for node in compiled.graph_module.graph.nodes]
    assert targets.count("_c10d_functional.wait_tensor.default") == 1, targets
    for _ in range(3):
        torch.testing.assert_close(compiled(x), model(x))


def check_a_group_of_one(mesh, folder):
    """A process that is alone in its group exchanges nothing."""
    alone = [dist.new_group([rank]) for rank in range(2)][mesh.get_rank()].group_name
    both = dist.new_group([0, 1]).group_name

    def exchanges(x):
        kept = ops.wait_tensor(ops.all_reduce(x, "sum", alone))
        return kept + 1, ops.wait_tensor(ops.all_reduce(x, "sum", both)) + 1

    x = torch.rand(3)
    compiled = compiled_for(Function(exchanges), x, require_full_compilation=True)
    for actual, expected in zip(compiled(x), exchanges(x), strict=True):
        torch.testing.assert_close(actual, expected)


def check_sequence_parallel(mesh, folder):
    """Tokens are divided among the processes between the layers."""
    torch.manual_seed(1)
    model, x = Perceptron().eval(), torch.rand(2, 6, 8)
    expected = model(x).detach()
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(),
    }
    compiled = compiled_for(parallelize_module(model, mesh, plan), x[:, :3])
    assert len(compiled.report.blocks) == 1
    part = x.chunk(2, 1)[mesh.get_rank()].contiguous()
    torch.testing.assert_close(compiled(part), expected)


def check_the_backend_of_torch_compile(mesh, folder):
    """``torch.compile(backend="torchtrt")`` compiles a parallel model."""
    parallel, whole = parallel_perceptron(mesh)
    x = torch.rand(2, 8)
    with torch.no_grad():
        fast = torch.compile(parallel, backend="torchtrt", options={"min_block_size": 1})
        torch.testing.assert_close(fast(x), whole(x))


def check_other_weights(mesh, folder):
    """Engines with collectives take the distributed weights of another model, and of its state dict."""
    parallel, whole = parallel_perceptron(mesh)
    other, other_whole = parallel_perceptron(mesh, seed=9)
    x = torch.rand(2, 8)
    compiled = compiled_for(parallel, x, immutable_weights=False)
    for weights in (other, other.state_dict()):
        refitted = torchtrt.refit_module_weights(compiled, weights)
        torch.testing.assert_close(refitted(x), other_whole(x))
    torch.testing.assert_close(compiled(x), whole(x))


def check_a_branch_with_a_collective(mesh, folder):
    """An engine exchanges tensors in one branch of a condition, which all ranks take alike."""
    group = mesh.get_group().group_name

    def exchanged(x):
        return ops.wait_tensor(ops.all_reduce(x * 2, "sum", group)) + 1

    model = Function(lambda x: torch.cond(x.sum() > 0, exchanged, lambda x: x - 1, (x,)))
    x = torch.rand(3)
    compiled = compiled_for(model, x, require_full_compilation=True)
    for tensor in (x, -x):
        torch.testing.assert_close(compiled(tensor), model(tensor))


def check_ranks_whose_models_differ(mesh, folder):
    """They find out before the first exchange: another reduction, source or place."""
    group, rank = mesh.get_group().group_name, mesh.get_rank()
    kind = "sum" if rank else "max"
    model = Function(lambda x: ops.wait_tensor(ops.all_reduce(x * 2, kind, group)) + 1)
    expect_error("has other collectives", compiled_for(model, torch.rand(2)), torch.rand(2))
    sent = Function(lambda x: ops.wait_tensor(ops.broadcast(x * 2, rank, group)) + 1)
    expect_error("has other collectives", compiled_for(sent, torch.rand(2)), torch.rand(2))
    same = Function(lambda x: ops.wait_tensor(ops.all_reduce(x * 2, "sum", group)) + 1)
    off = ["DISTRIBUTED_COLLECTIVES"] if rank else []
    compiled = compiled_for(same, torch.rand(2), disabled_capabilities=off)
    expect_error("has other collectives", compiled, torch.rand(2))


def check_ranks_tune_together(mesh, folder):
    """They try the same ops, agree on the time of each, and keep the same; a copy of one rank's times shows it."""
    parallel, whole = parallel_perceptron(mesh)
    x = torch.rand(2, 8)
    for off in ([], ["DISTRIBUTED_COLLECTIVES"]):
        compiled = compiled_for(parallel, x, tune=True, disabled_capabilities=off)
        torch.testing.assert_close(compiled(x), whole(x))
        report = compiled.report
        summary = [report.tried, [entry.op for entry in report.in_torch], len(report.blocks)]
        both = [None, None]
        dist.all_gather_object(both, summary)
        assert both[0] == both[1]
        assert len(report.tried) > 1


def expect_that_others_failed(tried, words):
    """Checks that all candidates but the first failed with these words, which both ranks have."""
    first, *others = tried
    assert first.startswith("as it was partitioned")
    assert others
    assert all(words in line for line in others), others


def check_an_attempt_that_fails_in_one_rank(mesh, folder):
    """It fails in both, before one of them waits for the other in a collective."""
    parallel, whole = parallel_perceptron(mesh)
    x, rank = torch.rand(2, 8), mesh.get_rank()
    measured = []

    def measure(compiled, *args):
        measured.append(compiled)
        return tuning.milliseconds(compiled, *args)

    def fails_in_the_second_rank(build):
        return "no memory" if rank == 1 and measured else ""

    with watched_tensorrt(refuses=fails_in_the_second_rank), measuring_by(Measuring(measure)):
        compiled = compiled_for(parallel, x, tune=True)
    torch.testing.assert_close(compiled(x), whole(x))
    expect_that_others_failed(compiled.report.tried, "could not build the engine")
    expect_that_others_failed(compiled.report.tried, "Rank 1 has failed: ")


def check_a_measured_call_that_fails_in_one_rank(mesh, folder):
    """It fails in both, which then measure the next candidate; an error of another kind ends the search in both."""
    parallel, whole = parallel_perceptron(mesh)
    x, rank, measure = torch.rand(2, 8), mesh.get_rank(), tuning.milliseconds
    for error, words in ((RuntimeError, "Rank 1 has failed: no room"), (KeyError, "no room")):
        measured = []

        def fails_in_the_second_rank(compiled, *args, error=error, measured=measured):
            measured.append(compiled)
            if rank == 1 and compiled is not measured[0]:
                raise error("no room")
            return measure(compiled, *args)

        with measuring_by(Measuring(fails_in_the_second_rank)):
            if error is RuntimeError:
                compiled = compiled_for(parallel, x, tune=True)
                torch.testing.assert_close(compiled(x), whole(x))
                expect_that_others_failed(compiled.report.tried, words)
            else:
                with pytest.raises(KeyError if rank else ProcessGroupError, match=words):
                    compiled_for(parallel, x, tune=True)


def check_a_rank_that_does_not_tune(mesh, folder):
    """Both get an error before one takes a measured call of the other for its own."""
    parallel, _ = parallel_perceptron(mesh)
    x = torch.rand(2, 8)
    for tuning_rank in range(2):
        with pytest.raises(ProcessGroupError, match=r"at the tuning of a model.*same settings"):
            compiled_for(parallel, x, tune=mesh.get_rank() == tuning_rank)(x)


def check_ranks_that_agree_on_different_things(mesh, folder):
    """Both get an error, and the next agreement works."""
    processes = Processes(2, mesh.get_rank(), {mesh.get_group().group_name: (0, 1)})
    assert agreed(processes, "a number", mesh.get_rank(), max) == 1
    about = ("a call", "a model")[mesh.get_rank()]
    expect_error(
        "Rank 0 has failed: it is at a call, and rank 1 at a model",
        agreed,
        processes,
        about,
        1,
        max,
    )
    assert agreed(processes, "a number", mesh.get_rank(), min) == 0


def check_ranks_with_other_sizes(mesh, folder):
    """An engine that exchanges tensors of other sizes is an error with advice, and no wait."""
    group = mesh.get_group().group_name
    model = Function(lambda x: ops.wait_tensor(ops.all_reduce(x * 2, "sum", group)) + 1)
    sizes = torchtrt.Input(min_shape=(2,), opt_shape=(4,), max_shape=(8,))
    compiled = compiled_for(model, sizes)
    x = torch.rand(3)
    compiled(x)
    expect_error("inputs of other sizes", compiled, torch.rand(2 + mesh.get_rank()))
    torch.testing.assert_close(compiled(x), model(x))


def check_generated_texts(mesh, folder):
    """A language model of transformers, divided between the processes, generates eager's tokens."""
    import transformers

    from torchtrt_converters_transformers import compile_for_generation

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(1, 64, (1, 5))
    options = {"do_sample": False, "max_new_tokens": 12}
    expected = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    attention = "model.layers.*.self_attn."
    plan = {f"{attention}{name}_proj": ColwiseParallel() for name in "qkv"}
    plan[f"{attention}o_proj"] = RowwiseParallel()
    parallel = parallelize_module(model, mesh, plan)
    sizes = {"max_length": 24, "prefill_engine": False}
    compiled = compile_for_generation(parallel, **sizes, require_full_compilation=True)
    tokens = compiled.generate(ids, attention_mask=torch.ones_like(ids), **options)
    assert expected.tolist() == tokens.tolist()
    assert len(set(tokens[0, 5:].tolist())) > 4


def check_distributed_results_and_inputs(mesh, folder):
    """A DTensor outside of a model is an error that says what to do."""
    model, x = Perceptron().eval(), torch.rand(2, 8)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel(use_local_output=False)}
    parallel = parallelize_module(model, mesh, plan)
    with pytest.raises(UnsupportedProgramError, match="Keep use_local_output=True"):
        compiled_for(parallel, x)
    parallel, _ = parallel_perceptron(mesh)
    whole = DTensor.from_local(x, mesh, [Replicate()])
    with pytest.raises(InputError, match=r"'x' is a DTensor. Give the part of this process"):
        compiled_for(parallel, x)(whole)
    with pytest.raises(InputError, match="Pass the part of this process"):
        compiled_for(parallel, whole)


def check_that_the_other_rank_is_missed(mesh, folder):
    """Rank 1 ends: the next exchange is an error with advice, in engines and between them, and so is a first call."""
    rank = mesh.get_rank()
    models = [torchtrt.load(f"{folder}/{name}-{rank}.pt2") for name in ("inside", "between")]
    x = torch.rand(2, 8)
    for model in models:
        model(x)
    new = torchtrt.load(f"{folder}/inside-{rank}.pt2")
    dist.barrier()
    if rank == 0:
        expect_error("A process has ended", models[0], x)
        expect_error("A process has ended", models[1], x)
        dist.distributed_c10d._get_default_store().set_timeout(datetime.timedelta(seconds=1))
        expect_error("Rank 1 of .* has not called", new, x)
        dist.destroy_process_group()
        expect_error("torch.distributed is not initialized", models[0], x)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        for model in models:  # which met the others in the group of before
            expect_error("rank 0 of 2 processes, and there are 1", model, x)


def run_checks(rank, folder, left_out):
    """Makes all checks but those left out, and writes the error of each, or an empty text, to a file."""
    warnings.simplefilter("ignore")
    address = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2, timeout=LIMIT)
    mesh = init_device_mesh("cpu", (2,))
    outcomes = {}
    for name, check in list(globals().items()):
        if name.startswith("check_") and name not in left_out:
            start = time.perf_counter()
            error = error_of(check, mesh, folder)
            outcomes[name] = [error, time.perf_counter() - start]
            Path(folder, f"outcomes-{rank}.json").write_text(json.dumps(outcomes))
            if error:
                os._exit(1)  # so that the other one does not wait
            if check is not check_that_the_other_rank_is_missed:
                dist.barrier()


def error_of(check, *args):
    """Returns the traceback of the error that a check raises; an empty text if it passes."""
    try:
        check(*args)
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    # What both would do for the first time, they inherit.
    compiled_for(
        nn.Linear(2, 2).eval(), torchtrt.Input(min_shape=(1, 2), opt_shape=(2, 2), max_shape=(4, 2))
    )
    torch.multiprocessing.start_processes(
        run_checks, (sys.argv[1], sys.argv[2:]), nprocs=2, start_method="fork"
    )
