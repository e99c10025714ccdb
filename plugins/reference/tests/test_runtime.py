"""Profiles, shapes, addresses, allocators, inspection: what happens around execution."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from plugins.reference.tests.engines import engine_of, linear


def doubling(bench: Any, version: str, shape: tuple[int, ...] = (-1, 3)) -> Any:
    """A bench whose network doubles an input of this shape, and its output tensor."""
    n = bench(version)
    x = n.net.add_input("x", n.trt.float32, shape)
    return n, n.net.add_elementwise(x, x, n.trt.ElementWiseOperation.SUM).get_output(0)


def test_a_shape_outside_the_profile_is_refused(version: str, bench: Any) -> None:
    """``set_input_shape`` returns False and logs the range; the shape stays as it was."""
    n, y = doubling(bench, version)
    context = engine_of(n, y).create_execution_context()
    assert context.set_input_shape("x", (2, 3))
    assert not context.set_input_shape("x", (5, 3))
    assert "allows [1, 4]" in n.errors[-1]
    assert not context.set_input_shape("x", (2, 4))
    assert not context.set_input_shape("x", (2, 3, 1))
    assert not context.set_input_shape("z", (2, 3))
    assert context.get_tensor_shape("y0") == (2, 3)


def test_profiles_are_chosen_by_index(version: str, bench: Any) -> None:
    """Each profile has its own range; an unknown one is an error."""
    n, y = doubling(bench, version)
    engine = engine_of(n, y, profiles=2)
    context = engine.create_execution_context()
    assert engine.num_optimization_profiles == 2
    assert [tuple(shape) for shape in engine.get_tensor_profile_shape("x", 1)] == [
        (2, 3),
        (3, 3),
        (5, 3),
    ]
    assert context.set_optimization_profile_async(1, 0)
    assert context.active_optimization_profile == 1
    assert context.set_input_shape("x", (5, 3))
    with pytest.raises(RuntimeError, match="no optimization profile 2"):
        context.set_optimization_profile_async(2, 0)


def test_what_is_not_set_is_named(version: str, bench: Any) -> None:
    """Missing shapes are listed, missing addresses make execution fail with the tensor's name."""
    n, y = doubling(bench, version)
    context = engine_of(n, y).create_execution_context()
    assert context.infer_shapes() == ["x"]
    assert context.get_tensor_shape("y0") == (-1, 3)
    assert not context.execute_async_v3(0)
    assert "shape of input 'x' was not set" in n.errors[-1]
    context.set_input_shape("x", (1, 3))
    assert not context.execute_async_v3(0)
    assert "'x'" in n.errors[-1]
    values = torch.ones(1, 3)
    context.set_tensor_address("x", values.data_ptr())
    assert not context.execute_async_v3(0)
    assert "'y0'" in n.errors[-1]


def test_shapes_change_between_executions(version: str, bench: Any) -> None:
    """A context serves any shape of its profile, one after the other, at any address."""
    n, y = doubling(bench, version)
    context = engine_of(n, y).create_execution_context()
    for rows in (1, 4, 2, 4):
        values, result = torch.randn(rows, 3), torch.empty(rows, 3)
        assert context.set_input_shape("x", (rows, 3))
        context.set_tensor_address("x", values.data_ptr())
        context.set_tensor_address("y0", result.data_ptr())
        assert context.execute_async_v3(0)
        torch.testing.assert_close(result, values * 2)


def test_a_dynamic_input_needs_a_profile(version: str, bench: Any) -> None:
    """The build fails and says what to call."""
    n, y = doubling(bench, version)
    n.net.mark_output(y)
    assert n.builder.build_serialized_network(n.net, n.config) is None
    assert "profile.set_shape" in n.errors[-1]


def test_a_profile_must_fit_its_input(version: str, bench: Any) -> None:
    """A disordered range or a contradiction to a static dimension fails the build; a wrong rank fails at once."""
    n, y = doubling(bench, version)
    n.net.mark_output(y)
    profile = n.builder.create_optimization_profile()
    for shapes in [((2, 3), (2, 3), (2,)), ((-1, 3), (2, 3), (2, 3))]:
        with pytest.raises(RuntimeError, match="inconsistent"):
            profile.set_shape("x", *shapes)
    n.config.add_optimization_profile(profile)
    wrong = {"MIN<=OPT<=MAX": ((2, 3), (1, 3), (4, 3)), "does not fit": ((1, 2), (1, 2), (1, 2))}
    for reason, shapes in wrong.items():
        profile.set_shape("x", *shapes)
        assert n.builder.build_serialized_network(n.net, n.config) is None
        assert reason in n.errors[-1]


def test_equal_dimension_names_are_equal_lengths(version: str, bench: Any) -> None:
    """Two inputs whose dimensions share a name must agree when the engine runs."""
    n = bench(version)
    a = n.net.add_input("a", n.trt.float32, (-1,))
    b = n.net.add_input("b", n.trt.float32, (-1,))
    a.set_dimension_name(0, "batch")
    b.set_dimension_name(0, "batch")
    assert a.get_dimension_name(0) == "batch"
    outputs = [n.net.add_unary(t, n.trt.UnaryOperation.EXP).get_output(0) for t in (a, b)]
    for output in outputs:
        n.net.mark_output(output)
    profile = n.builder.create_optimization_profile()
    for name in "ab":
        profile.set_shape(name, (1,), (2,), (4,))
    n.config.add_optimization_profile(profile)
    engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(
        n.builder.build_serialized_network(n.net, n.config)
    )
    context = engine.create_execution_context()
    context.set_input_shape("a", (2,))
    context.set_input_shape("b", (3,))
    with pytest.raises(RuntimeError, match="'batch' must be equal"):
        context.infer_shapes()


def test_a_shape_input_is_read_on_the_host(version: str, bench: Any) -> None:
    """Its values decide shapes, need a profile of values, and are checked against it."""
    n = bench(version)
    x = n.net.add_input("x", n.trt.float32, (4,))
    size = n.net.add_input("size", n.trt.int32, (2,))
    shuffle = n.net.add_shuffle(x)
    shuffle.set_input(1, size)
    assert size.is_shape_tensor
    output = shuffle.get_output(0)
    output.name = "y"
    n.net.mark_output(output)
    profile = n.builder.create_optimization_profile()
    profile.set_shape_input("size", [1, 1], [2, 1], [4, 4])
    n.config.add_optimization_profile(profile)
    assert (
        n.builder.build_serialized_network(n.net, n.config) is None
    )  # (2, 1) does not hold four elements
    profile = n.builder.create_optimization_profile()
    profile.set_shape_input("size", [1, 1], [2, 2], [2, 2])
    n.config.reset()
    n.config.add_optimization_profile(profile)
    engine = n.trt.Runtime(n.logger).deserialize_cuda_engine(
        n.builder.build_serialized_network(n.net, n.config)
    )
    assert engine.get_tensor_location("size") == n.trt.TensorLocation.HOST
    assert engine.is_shape_inference_io("size")
    context = engine.create_execution_context()
    assert context.infer_shapes() == ["size"]
    values = torch.tensor([2, 2], dtype=torch.int32)
    context.set_tensor_address("size", values.data_ptr())
    assert context.infer_shapes() == []
    assert context.get_tensor_shape("y") == (2, 2)
    values.copy_(torch.tensor([1, 4]))
    with pytest.raises(RuntimeError, match="holds 4"):
        context.infer_shapes()


def test_a_plan_of_another_version_does_not_load(bench: Any) -> None:
    """The error names both versions."""
    n, y = doubling(bench, "10.16.1", (2, 3))
    n.net.mark_output(y)
    plan = n.builder.build_serialized_network(n.net, n.config)
    other = bench("11.4.0")
    assert other.trt.Runtime(other.logger).deserialize_cuda_engine(bytes(plan)) is None
    assert "built by TensorRT 10.16.1, this is 11.4.0" in other.errors[-1]


@pytest.mark.parametrize("interface", ["IStreamReader", "IStreamReaderV2"])
def test_a_plan_is_read_from_a_stream_in_pieces(interface: str, bench: Any) -> None:
    """A reader may give fewer bytes than it is asked for; a stream that ends early gives no engine."""
    n, y = linear(bench, "10.16.1")
    y.name = "y0"
    n.net.mark_output(y)
    profile = n.builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (1, 3), (4, 3))
    n.config.add_optimization_profile(profile)
    writer, reader = streams(n.trt, interface)
    assert n.builder.build_serialized_network_to_stream(n.net, n.config, writer)
    runtime = n.trt.Runtime(n.logger)
    engine = runtime.deserialize_cuda_engine(reader(writer.data))
    assert bytes(engine.serialize()) == writer.data
    assert runtime.deserialize_cuda_engine(reader(writer.data[:-1])) is None
    assert "stream ended" in n.errors[-1]


def streams(trt: Any, interface: str) -> Any:
    """A writer that keeps what it gets, and a reader that gives at most 100 bytes at once."""

    class Writer(trt.IStreamWriter):
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)
            self.data = b""

        def write(self, data: bytes) -> int:
            self.data += data
            return len(data)

    class Reader(getattr(trt, interface)):
        def __init__(self, data: bytes) -> None:
            getattr(trt, interface).__init__(self)
            self.data = data

        def read(self, size: int, stream: int = 0) -> bytes:
            piece, self.data = self.data[: min(size, 100)], self.data[min(size, 100) :]
            return piece

    if interface == "IStreamReaderV2":
        Reader.seek = lambda self, offset, where: False
    return Writer(), Reader


def test_data_dependent_outputs_have_a_bound(version: str, bench: Any) -> None:
    """At most every element is not zero."""
    n = bench(version)
    positions = n.net.add_non_zero(n.input(torch.ones(2, 3), (-1, 3))).get_output(0)
    moved = n.net.add_shuffle(positions)
    moved.first_transpose = (1, 0)
    context = n.context(moved.get_output(0))
    assert context.get_tensor_shape("o0") == (-1, 2)
    assert context.get_max_output_size("o0") == 6 * 2 * 4


@pytest.mark.parametrize("version", ["10.16.1", "11.4.0"])
def test_what_is_computed_from_a_count_has_no_bound(version: str, bench: Any) -> None:
    """A range as long as there are elements that are not zero might have any length."""
    n = bench(version)
    moved = n.net.add_shuffle(n.net.add_non_zero(n.input(torch.ones(2, 3), (-1, 3))).get_output(0))
    moved.first_transpose = (1, 0)
    remaining = n.net.add_shape(moved.get_output(0)).get_output(0)
    filled = n.net.add_fill((1,), n.trt.FillOperation.LINSPACE)
    filled.set_input(0, n.net.add_slice(remaining, (0,), (1,), (1,)).get_output(0))
    filled.set_input(1, n.const(0.0))
    filled.set_input(2, n.const([1.0]))
    assert n.context(filled.get_output(0)).get_max_output_size("o0") == -1


def test_non_maximum_suppression_is_bounded_by_what_is_asked_for(version: str, bench: Any) -> None:
    """So many boxes for every class of every image."""
    n = bench(version)
    boxes, scores = n.input(torch.rand(2, 10, 4)), n.input(torch.rand(2, 10, 3))
    most = n.const(4, np.int32)
    context = n.context(n.net.add_nms(boxes, scores, most).get_output(0))
    assert context.get_max_output_size("o0") == 2 * 3 * 4 * 3 * 4


def test_the_inspector_names_layers(version: str, bench: Any) -> None:
    """With detailed verbosity every layer shows its name and metadata, otherwise its name."""
    n, y = linear(bench, version)
    n.net[2].name, n.net[2].metadata = "the product", "from line 3"
    n.config.profiling_verbosity = n.trt.ProfilingVerbosity.DETAILED
    engine = engine_of(n, y)
    inspector = engine.create_engine_inspector()
    shown = json.loads(inspector.get_engine_information(n.trt.LayerInformationFormat.JSON))
    assert "the product" in shown["Layers"][0]["Name"]
    assert "the product" in inspector.get_layer_information(0, n.trt.LayerInformationFormat.ONELINE)
    assert inspector.get_layer_information(99, n.trt.LayerInformationFormat.JSON) == ""


def test_configuration_keeps_what_is_set(version: str, bench: Any) -> None:
    """Options, flags and pools read back; wrong types are refused."""
    n = bench(version)
    config, trt = n.config, n.trt
    config.builder_optimization_level = 5
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    config.engine_capability = trt.EngineCapability.SAFETY
    assert config.builder_optimization_level == 5
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
    assert config.engine_capability == trt.EngineCapability.SAFETY
    assert config.get_flag(trt.BuilderFlag.TF32)
    config.clear_flag(trt.BuilderFlag.TF32)
    assert config.flags == 0
    with pytest.raises(TypeError):
        config.builder_optimization_level = "high"


def test_a_timing_cache_is_of_its_version(version: str, bench: Any) -> None:
    """Other bytes make none; one of another version is attached only if the mismatch is ignored."""
    config = bench(version).config
    cache = config.create_timing_cache(b"")
    assert config.set_timing_cache(cache, False)
    assert config.get_timing_cache() is cache
    written = bytes(cache.serialize())
    assert cache.combine(config.create_timing_cache(written), False)
    assert config.create_timing_cache(b"no timing cache") is None
    other = config.create_timing_cache(written + b" of another version")
    assert not config.set_timing_cache(other, False)
    assert config.set_timing_cache(other, True)


def test_a_network_input_cannot_be_an_output(version: str, bench: Any) -> None:
    """The mark is refused with advice, and the build has no output."""
    n = bench(version)
    x = n.input(np.ones(2, np.float32))
    n.net.mark_output(x)
    assert "add an identity layer" in n.errors[-1]
    assert n.plan() is None
    assert "at least one output" in n.errors[-1]


def test_an_implicit_batch_network_does_not_build(bench: Any) -> None:
    """TensorRT 8.6 needs the EXPLICIT_BATCH flag here."""
    n = bench("8.6.0", ())
    x = n.input(np.ones(2, np.float32))
    assert n.plan(n.net.add_unary(x, n.trt.UnaryOperation.EXP).get_output(0)) is None
    assert "EXPLICIT_BATCH" in n.errors[-1]


def test_the_default_logger_writes_to_standard_error(version: str, bench: Any, capsys: Any) -> None:
    """Errors are shown, verbose messages are not."""
    trt = bench(version).trt
    logger = trt.Logger(trt.Logger.WARNING)
    logger.log(trt.Logger.ERROR, "wrong")
    logger.log(trt.Logger.VERBOSE, "chatter")
    assert capsys.readouterr().err == "[TRT] [E] wrong\n"


def test_allocators_are_asked_the_way_the_version_prefers(version: str, bench: Any) -> None:
    """From version 10 on the asynchronous method comes first; an allocator without memory fails the execution."""
    n, y = doubling(bench, version, (2, 3))
    context = engine_of_static(n, y)
    calls: list[str] = []
    memory = torch.empty(2, 3)

    class Allocator(n.trt.IOutputAllocator):
        address = memory.data_ptr()

        def reallocate_output(self, name: str, current: int, size: int, alignment: int) -> int:
            calls.append(f"sync {name} {size}")
            return self.address

        def reallocate_output_async(
            self, name: str, current: int, size: int, alignment: int, stream: int
        ) -> int:
            calls.append(f"async {name} {size}")
            return self.address

        def notify_shape(self, name: str, shape: Any) -> None:
            calls.append(f"{name} {shape}")

    values, allocator = torch.randn(2, 3), Allocator()
    context.set_tensor_address("x", values.data_ptr())
    assert context.set_output_allocator("y0", allocator)
    assert context.get_output_allocator("y0") is allocator
    assert context.execute_async_v3(0)
    kind = "sync" if version == "8.6.0" else "async"
    assert calls == [f"{kind} y0 24", "y0 (2, 3)"]
    torch.testing.assert_close(memory, values * 2)
    allocator.address = 0
    assert not context.execute_async_v3(0)
    assert "gave no memory" in n.errors[-1]


def engine_of_static(n: Any, output: Any) -> Any:
    """A context of a network without dynamic inputs."""
    output.name = "y0"
    n.net.mark_output(output)
    plan = n.builder.build_serialized_network(n.net, n.config)
    return n.trt.Runtime(n.logger).deserialize_cuda_engine(plan).create_execution_context()


def test_sizes_and_strides_follow_the_shape(version: str, bench: Any) -> None:
    """Both are known once the input shape is."""
    n, y = doubling(bench, version)
    context = engine_of(n, y).create_execution_context()
    assert context.get_max_output_size("y0") == -1
    context.set_input_shape("x", (4, 3))
    assert context.get_max_output_size("y0") == 48
    assert context.get_tensor_strides("y0") == (3, 1)
