"""The interface of every version is the one its description lists: nothing missing, nothing extra."""

from __future__ import annotations

import copy
import json
import pickle
import re
from importlib import resources
from typing import Any

import numpy as np
import pytest

import torchtrt_reference as reference
from torchtrt_reference.interface.arguments import Types
from torchtrt_reference.interface.options import Interface

# Users implement these; what they leave out is pure virtual. Parsers cannot be made at all.
INTERFACES = {
    "IAlgorithmSelector",
    "IDebugListener",
    "IErrorRecorder",
    "IGpuAllocator",
    "IGpuAsyncAllocator",
    "IOutputAllocator",
    "IProfiler",
    "IProgressMonitor",
    "IStreamReader",
    "IStreamReaderV2",
    "IStreamWriter",
    "ParserError",
    "TimingCacheKey",
    "TimingCacheValue",
}
LEFT_OUT = ("IAlgorithm", "IInt8", "IPlugin", "IExpr", "IDimension", "ISymExpr", "ICaffePlugin")
# These check their arguments themselves.
SELF_CHECKING = {
    "Dims",
    "Dims2",
    "Dims3",
    "Dims4",
    "DimsHW",
    "IHostMemory",
    "Permutation",
    "Weights",
}


def description(version: str) -> Any:
    """The description of a version's interface."""
    text = (
        resources.files("torchtrt_reference")
        .joinpath("interface", "api", f"{version}.json")
        .read_text("utf-8")
    )
    return json.loads(text)


def find(module: Any, name: str) -> Any:
    """An object by its dotted name."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def test_every_class_method_and_property_is_there(version: str) -> None:
    """What the description lists can be got from the class."""
    trt = reference.load(version)
    missing = []
    for name, spec in description(version)["classes"].items():
        made = find(trt, name)
        for member in [*spec["methods"], *spec["properties"]]:
            if not hasattr(made, member):
                missing.append(f"{name}.{member}")
    assert missing == []


def test_every_function_is_there(version: str) -> None:
    """What the description lists can be called."""
    trt = reference.load(version)
    assert [name for name in description(version)["functions"] if not hasattr(trt, name)] == []


def test_what_is_not_implemented_is_listed(version: str) -> None:
    """Only interfaces for users, plugins, algorithm selection, calibration and parsers have methods without a body."""
    trt = reference.load(version)
    names = set()
    for name, spec in description(version)["classes"].items():
        made = find(trt, name)
        bodies = [getattr(getattr(made, member), "__doc__", "") for member in spec["methods"]]
        if "To be overridden." in bodies and not name.startswith(LEFT_OUT):
            names.add(name)
    parsers = {name for name in names if name.endswith(("Parser", "ParserRefitter"))}
    assert names - INTERFACES - parsers - {"IBlobNameToTensor", "ILogger"} == set()


def test_every_method_takes_the_listed_arguments(version: str) -> None:
    """The message about wrong arguments names all that the description lists, with their defaults, in every form."""
    trt = reference.load(version)
    types = Types(vars(trt))
    for name, spec in description(version)["classes"].items():
        made = find(trt, name)
        if name in SELF_CHECKING or issubclass(made, Interface):
            continue
        for member, forms in spec["methods"].items():
            if member.startswith("__"):
                continue
            wanted = " or ".join(
                "(" + ", ".join(_spelled(parameter, name, types) for parameter in form) + ")"
                for form, _ in forms
            )
            with pytest.raises(TypeError, match=re.escape(f"It takes {wanted}. ")):
                getattr(made, member)(None, *[object()] * 20)


def _spelled(parameter: list[str], owner: str, types: Types) -> str:
    name, _, *default = parameter
    return f"{name}={types.default(default[0], owner)!r}" if default else name


def test_what_is_settable_has_a_setter(version: str) -> None:
    """A property can be set exactly if the description has a setter."""
    trt = reference.load(version)
    wrong = []
    for name, spec in description(version)["classes"].items():
        made = find(trt, name)
        for member, (is_settable, _) in spec["properties"].items():
            attribute = getattr(made, member)
            if not issubclass(made, Interface) and (attribute.fset is not None) is not is_settable:
                wrong.append(f"{name}.{member}")
    assert wrong == []


UNSET = "(invalid)"  # dimensions; None from version 11 on
WINDOW = {
    **dict.fromkeys(("stride", "stride_nd", "dilation", "dilation_nd"), (1, 1)),
    **dict.fromkeys(("padding", "padding_nd", "pre_padding", "post_padding"), (0, 0)),
    "padding_mode": "EXPLICIT_ROUND_DOWN",
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "ILayer": {
        "metadata": "",
        "num_inputs": 1,
        "num_outputs": 1,
        "num_ranks": 1,
        "precision": "FLOAT",
        "precision_is_set": False,
    },
    "IActivationLayer": {"type": "RELU", "alpha": 0.0, "beta": 0.0},
    "IConvolutionLayer": {
        **WINDOW,
        **dict.fromkeys(("kernel_size", "kernel_size_nd"), (3, 3)),
        "num_output_maps": 1,
        "num_groups": 1,
        "kernel": [1.0] * 18,
        "bias": [],
    },
    "IPoolingLayer": {
        **WINDOW,
        **dict.fromkeys(("window_size", "window_size_nd"), (2, 2)),
        "type": "MAX",
        "blend_factor": 0.0,
        "average_count_excludes_padding": True,
    },
    "IShuffleLayer": {
        "first_transpose": tuple(range(8)),
        "second_transpose": tuple(range(8)),
        "reshape_dims": UNSET,
        "zero_is_placeholder": True,
    },
    "ISliceLayer": {
        "start": (0, 0, 0, 0),
        "shape": (1, 1, 1, 1),
        "stride": (1, 1, 1, 1),
        "mode": "STRICT_BOUNDS",
        "axes": UNSET,
    },
    "IResizeLayer": {
        "shape": UNSET,
        "scales": [],
        "resize_mode": "NEAREST",
        "coordinate_transformation": "ASYMMETRIC",
        "selector_for_single_pixel": "FORMULA",
        "nearest_rounding": "FLOOR",
        "exclude_outside": False,
        "cubic_coeff": -0.75,
    },
    "ISoftMaxLayer": {"axes": 2},
    "IConcatenationLayer": {"axis": 1},
    "IScaleLayer": {"mode": "UNIFORM", "shift": [], "scale": [], "power": [], "channel_axis": None},
    "ITopKLayer": {"op": "MAX", "k": 1, "axes": 2, "indices_type": "INT32"},
    "IConstantLayer": {"weights": [1.0, 1.0], "shape": (2,)},
}


def test_every_property_of_a_layer_reads_as_what_was_given_or_its_default(
    version: str, bench: Any
) -> None:
    """Every property that the description lists can be read right after the layer was added, and has this value."""
    n = bench(version)
    x = n.input(np.ones((1, 2, 4, 4), np.float32))
    layers = [
        n.net.add_activation(x, n.trt.ActivationType.RELU),
        n.net.add_convolution_nd(x, 1, (3, 3), n.trt.Weights(np.ones((1, 2, 3, 3), np.float32))),
        n.net.add_pooling_nd(x, n.trt.PoolingType.MAX, (2, 2)),
        n.net.add_shuffle(x),
        n.net.add_slice(x, (0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1)),
        n.net.add_resize(x),
        n.net.add_softmax(x),
        n.net.add_concatenation([x]),
        n.net.add_scale(x, n.trt.ScaleMode.UNIFORM),
        n.net.add_topk(x, n.trt.TopKOperation.MAX, 1, 2),
        n.net.add_constant((2,), np.ones(2, np.float32)),
    ]
    classes = description(version)["classes"]
    for number, layer in enumerate(layers):
        name = type(layer).__name__
        kind = name[1:].removesuffix("Layer")
        defaults = {
            **DEFAULTS["ILayer"],
            "name": f"(Unnamed Layer* {number}) [{kind}]",
            "type": kind.upper(),
            **DEFAULTS[name],
        }
        if name == "IConstantLayer":
            defaults["num_inputs"] = 0
        if name == "ITopKLayer":
            defaults["num_outputs"] = 2
        if version == "11.4.0":
            defaults = {key: None if value == UNSET else value for key, value in defaults.items()}
        listed = [*classes[name]["properties"], *classes["ILayer"]["properties"]]

        read = {member: _plain(getattr(layer, member)) for member in listed}

        assert {member: defaults[member] for member in listed} == read


def _plain(value: Any) -> Any:
    """A property's value as text, number, tuple of dimensions or list of weights."""
    if repr(value) == UNSET:
        return UNSET
    if type(value).__name__ in ("Dims", "DimsHW", "Permutation"):
        return tuple(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return getattr(value, "name", value)


@pytest.mark.parametrize("other", reference.VERSIONS)
def test_what_a_version_lacks_is_absent(version: str, other: str) -> None:
    """A class, method, property or member that only another version has raises AttributeError."""
    trt, ours, theirs = reference.load(version), description(version), description(other)
    for name in theirs["classes"]:
        if name not in ours["classes"]:
            assert not hasattr(trt, name)
            continue
        have = _members(ours, name)
        lacking = _members(theirs, name) - have
        assert [member for member in lacking if hasattr(getattr(trt, name), member)] == []
    for name, members in theirs["enums"].items():
        if name in ours["enums"]:
            enumeration = find(trt, name)
            lacking = set(members) - set(ours["enums"][name])
            assert [member for member in lacking if hasattr(enumeration, member)] == []


def _members(described: Any, name: str) -> set[str]:
    spec = described["classes"][name]
    own = {*spec["methods"], *spec["properties"], *spec.get("constants", {})}
    for base in spec["bases"]:
        if base in described["classes"]:
            own |= _members(described, base)
    return {member for member in own if not member.startswith("__")}


def test_enumerations_have_their_members_and_numbers(version: str) -> None:
    """Every member has the version's number."""
    trt = reference.load(version)
    for name, members in description(version)["enums"].items():
        enumeration = find(trt, name)
        assert {member: int(value) for member, value in enumeration.__members__.items()} == members


def test_constants_are_data_types(version: str) -> None:
    """``trt.float32`` and its siblings are the members of DataType."""
    trt = reference.load(version)
    for name, target in description(version)["constants"].items():
        assert getattr(trt, name) is find(trt, target)


def test_enumeration_members_equal_only_themselves(version: str) -> None:
    """A member is no integer, and survives copying and pickling."""
    trt = reference.load(version)
    member = trt.DataType.FLOAT
    assert member != 0
    assert int(member) == member.value == 0
    assert trt.DataType(0) is member
    assert copy.deepcopy(member) is pickle.loads(pickle.dumps(member)) is member
    assert {member: 1}[trt.float32] == 1
    with pytest.raises(TypeError):
        _ = 1 << member
    with pytest.raises(TypeError):
        _ = member < trt.DataType.HALF
    assert trt.Logger.ERROR < trt.Logger.WARNING


def test_dims_behave_as_tensorrts(version: str) -> None:
    """Dims equal tuples and lists only, and hold at most eight dimensions."""
    trt = reference.load(version)
    dims = trt.Dims((1, 2, 3))
    assert dims == (1, 2, 3)
    assert dims == [1, 2, 3]
    assert dims[-1] == 3
    assert dims[:2] == (1, 2)
    assert len(trt.Dims()) == 0
    assert dims.MAX_DIMS == 8
    with pytest.raises(TypeError):
        _ = dims == trt.Dims((1, 2, 3))
    with pytest.raises(TypeError):
        hash(dims)
    with pytest.raises(ValueError, match="at most 8"):
        trt.Dims(range(9))
    with pytest.raises(TypeError):
        trt.Dims((1.5,))
    with pytest.raises(ValueError, match="invalid"):
        len(trt.Dims._invalid())
    assert len(trt.Permutation((1, 0))) == 8


def test_weights_refuse_types_that_tensorrt_lacks(version: str) -> None:
    """float64 never converts; int64 does from version 10 on."""
    trt = reference.load(version)
    weights = trt.Weights(np.arange(3, dtype=np.float32))
    assert (len(weights), weights.nbytes, weights.dtype) == (3, 12, trt.float32)
    assert weights.numpy().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="Could not implicitly convert"):
        trt.Weights(np.zeros(1))
    if version == "8.6.0":
        with pytest.raises(ValueError, match="Could not implicitly convert"):
            trt.Weights(np.zeros(1, np.int64))
    else:
        assert trt.Weights(np.zeros(1, np.int64)).dtype == trt.int64
    with pytest.raises(ValueError, match="contiguous"):
        trt.Weights(np.zeros((2, 2), np.float32).T[:1])


def test_wrong_python_types_are_type_errors(version: str, bench: Any) -> None:
    """Arguments are checked by type, name and number."""
    n = bench(version)
    x = n.input(np.ones((2, 2), np.float32))
    with pytest.raises(TypeError, match="ITensor"):
        n.net.add_unary(3, n.trt.UnaryOperation.EXP)
    with pytest.raises(TypeError, match="UnaryOperation"):
        n.net.add_unary(x, n.trt.ActivationType.RELU)
    with pytest.raises(TypeError, match="missing"):
        n.net.add_unary(x)
    with pytest.raises(TypeError, match="Unknown"):
        n.net.add_unary(x, n.trt.UnaryOperation.EXP, other=1)
    with pytest.raises(TypeError, match="No constructor"):
        n.trt.ITensor()
    assert n.net.add_unary(input=x, op=n.trt.UnaryOperation.EXP).op == n.trt.UnaryOperation.EXP


def test_nptype_knows_the_types_numpy_has(version: str) -> None:
    """Types without a NumPy counterpart are a TypeError."""
    trt = reference.load(version)
    assert trt.nptype(trt.float16) is np.float16
    assert trt.volume((2, 3)) == 6
    assert trt.volume(()) == 1
    with pytest.raises(TypeError):
        trt.nptype(trt.fp8)


def test_loading_is_cached_and_unknown_versions_are_refused() -> None:
    """Each version is one object."""
    assert reference.load() is reference.load(reference.DEFAULT_VERSION)
    assert reference.is_reference(reference.load("8.6.0"))
    assert not reference.is_reference(np)
    with pytest.raises(ValueError, match=r"has no version '9\.0\.0'"):
        reference.load("9.0.0")


def test_what_is_not_implemented_says_so(version: str, bench: Any) -> None:
    """Parsers cannot be made, older plugins are refused, and an interface without an implementation is pure virtual."""
    n = bench(version)
    with pytest.raises(NotImplementedError, match="has no OnnxParser"):
        n.trt.OnnxParser(n.net, n.logger)
    x = n.input(np.ones((1, 2), np.float32))
    plugin = n.trt.IPluginV2.__new__(n.trt.IPluginV2)
    assert n.net.add_plugin_v2([x], plugin) is None
    assert "executes plugins of the interface IPluginV3 only" in n.errors[-1]
    with pytest.raises(RuntimeError, match="pure virtual"):
        n.trt.IProfiler().report_layer_time("layer", 1.0)


def test_plugin_creators_can_be_registered_and_found(version: str) -> None:
    """The registry keeps a program's creators, one for each name, version and namespace."""
    trt = reference.load(version)
    registry = trt.get_plugin_registry()

    class Creator(trt.IPluginCreator):
        def __init__(self) -> None:
            self.name, self.plugin_version, self.plugin_namespace = "made up", "1", ""
            self.field_names = trt.PluginFieldCollection([trt.PluginField("size")])

    creator = Creator.__new__(Creator)
    Creator.__init__(creator)
    getter = "get_plugin_creator" if version == "8.6.0" else "get_creator"
    every = "plugin_creator_list" if version == "8.6.0" else "all_creators"
    assert registry.register_creator(creator, "")
    assert not registry.register_creator(creator, "")
    try:
        assert getattr(registry, getter)("made up", "1", "") is creator
        assert getattr(registry, every) == [creator]
    finally:
        assert registry.deregister_creator(creator)
    assert getattr(registry, every) == []


def test_a_recurrent_layer_builds_once_it_has_all_of_its_weights(bench: Any) -> None:
    """Without all of its weights it lists what is missing."""
    n = bench("8.6.0")
    trt = n.trt
    layer = n.net.add_rnn_v2(n.input(np.ones((1, 2, 3), np.float32)), 1, 4, 2, trt.RNNOperation.GRU)
    assert (layer.num_layers, layer.hidden_size, layer.max_seq_length, layer.data_length) == (
        1,
        4,
        2,
        3,
    )
    assert layer.num_outputs == 2
    assert n.plan(layer.get_output(0)) is None
    assert "Missing weights/bias: (0, RESET, 1)" in n.errors[-1]
    gates = [trt.RNNGateType.RESET, trt.RNNGateType.UPDATE, trt.RNNGateType.HIDDEN]
    for gate in gates:
        for is_input, length in ((True, 3), (False, 4)):
            layer.set_weights_for_gate(0, gate, is_input, np.ones((4, length), np.float32))
            layer.set_bias_for_gate(0, gate, is_input, np.ones(4, np.float32))
    assert layer.get_weights_for_gate(0, gates[0], True).size == 12
    assert n.plan() is not None


def test_types_are_set_only_where_typing_is_weak(version: str, bench: Any) -> None:
    """11 has no setter; a strongly typed network of 10 logs an error; 8.6 takes the type."""
    n = bench(version)
    tensor = n.net.add_identity(n.input(np.ones(2, np.float32))).get_output(0)
    if version == "11.4.0":
        with pytest.raises(AttributeError):
            tensor.dtype = n.trt.float16
        assert not hasattr(n.net[0], "set_output_type")
        return
    tensor.dtype = n.trt.float16
    assert (tensor.dtype == n.trt.float16) is (version == "8.6.0")
    assert bool(n.errors) is (version == "10.16.1")
