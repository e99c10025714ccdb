"""``Builder``: from a network to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from torchtrt_reference.building.branching import gather_branches
from torchtrt_reference.building.fusions import fuse
from torchtrt_reference.building.graph import Graph, Port
from torchtrt_reference.building.lowering import Refittable, check_shape_tensors, input_facts, lower
from torchtrt_reference.building.merging import merge_equal
from torchtrt_reference.building.plan import EngineDescription, encode
from torchtrt_reference.dtypes import TORCH
from torchtrt_reference.interface.configuration import (
    BuilderConfig,
    OptimizationProfile,
    Ranges,
    in_order,
)
from torchtrt_reference.interface.network import NetworkDefinition
from torchtrt_reference.interface.reporting import Progress, report
from torchtrt_reference.operations.tensor_facts import RefusedError, TensorFacts
from torchtrt_reference.rules import Rules
from torchtrt_reference.running.executable import infer_graph

_OPTIMUM = 1  # of the minimum, optimum and maximum shapes of a profile


class Builder:
    """Makes networks, configurations and profiles, and builds plans."""

    _trt: ClassVar[Any]
    _rules: ClassVar[Rules]
    _stored: ClassVar[Mapping[str, Any]] = {
        "max_batch_size": 1,
        "platform_has_tf32": True,
        "platform_has_fast_fp16": True,
        "platform_has_fast_int8": True,
        "max_DLA_batch_size": 0,
        "num_DLA_cores": 0,
        "gpu_allocator": None,
        "error_recorder": None,
        "max_threads": 1,
    }

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._values: dict[str, Any] = {}

    @property
    def logger(self) -> Any:
        """The logger that errors go to."""
        return self._logger

    def create_network(self, flags: int = 0) -> Any:
        """Returns an empty network."""
        kind = self._trt.INetworkDefinition
        network = kind.__new__(kind)
        NetworkDefinition.__init__(network, self, flags)
        return network

    def create_builder_config(self) -> Any:
        """Returns a configuration with every option at its default."""
        kind = self._trt.IBuilderConfig
        config = kind.__new__(kind)
        BuilderConfig.__init__(config)
        return config

    def create_optimization_profile(self) -> Any:
        """Returns an empty optimization profile."""
        kind = self._trt.IOptimizationProfile
        profile = kind.__new__(kind)
        OptimizationProfile.__init__(profile)
        return profile

    def get_plugin_registry(self) -> Any:
        """Returns the registry of plugin creators."""
        return self._trt.get_plugin_registry()

    def reset(self) -> None:
        """Returns the builder to its initial state; it keeps none."""

    def is_network_supported(self, network: NetworkDefinition, config: BuilderConfig) -> bool:
        """Returns whether the network builds."""
        return self._description(network, config) is not None

    def build_serialized_network(
        self,
        network: NetworkDefinition,
        config: BuilderConfig,
        kernel_text: Any = None,  # noqa: ARG002
    ) -> Any:
        """Returns the plan; None, with the reason logged, if the network breaks a rule."""
        description = self._description(network, config)
        return None if description is None else self._trt.IHostMemory(encode(description))

    def build_serialized_network_to_stream(
        self, network: NetworkDefinition, config: BuilderConfig, writer: Any
    ) -> bool:
        """Writes the plan to a stream; returns whether that succeeded."""
        plan = self.build_serialized_network(network, config)
        return plan is not None and writer.write(bytes(plan)) == len(plan)

    def build_engine_with_config(self, network: NetworkDefinition, config: BuilderConfig) -> Any:
        """Returns the engine itself; None, with the reason logged, if the network breaks a rule."""
        plan = self.build_serialized_network(network, config)
        return (
            None if plan is None else self._trt.Runtime(self._logger).deserialize_cuda_engine(plan)
        )

    def build_engine(self, network: NetworkDefinition, config: BuilderConfig) -> Any:
        """Returns the engine itself (TensorRT 8); None, with the reason logged, if the network breaks a rule."""
        return self.build_engine_with_config(network, config)

    def _description(
        self, network: NetworkDefinition, config: BuilderConfig
    ) -> EngineDescription | None:
        try:
            with Progress(config._values.get("progress_monitor")) as progress:
                return _build(network, config, self._rules, progress)
        except RefusedError as error:
            report(self._logger, f"Error Code 4: Internal Error ({error})", network, self)
            return None


def _build(
    network: NetworkDefinition, config: BuilderConfig, rules: Rules, progress: Progress
) -> EngineDescription:
    if rules.needs_explicit_batch and not network._has_flag("EXPLICIT_BATCH"):
        message = (
            "the reference has no implicit batch: create the network with the flag EXPLICIT_BATCH"
        )
        raise RefusedError(message)
    refit: Refittable = "none"
    if config._has_flag("REFIT_INDIVIDUAL"):
        refit = "marked"
    elif config._has_flag("REFIT") or config._has_flag("REFIT_IDENTICAL"):
        refit = "all"
    with torch.inference_mode():
        graph = lower(network, config, refit)
        progress.step()
        shapes, values = _profiles(graph, config)
        check_shape_tensors(graph)
        # What is asserted may be false for some shapes: the runtime finds out.
        hopeful = replace(
            graph, nodes=[node for node in graph.nodes if node.operation != "assertion"]
        )
        profiled: list[dict[int, TensorFacts]] = []
        for profile_shapes, profile_values in zip(shapes, values, strict=True):
            for which in range(3):
                given = _profile_facts(graph, profile_shapes, profile_values, which)
                try:
                    profiled.append(infer_graph(hopeful, given, rules))
                except RefusedError:
                    # Seen on TensorRT 8.6: the ends of a range need not fit together, the runtime checks what it gets.
                    if which == _OPTIMUM:
                        raise
        if not rules.shape_of_data_dependence:
            _check_shapes_of_results(graph, profiled)
        progress.step()
        fuse(graph, _common(profiled))
        merge_equal(graph)
        gather_branches(graph)
        progress.step()
    return EngineDescription(
        version=rules.version,
        name=network.name,
        graph=graph,
        profiles=shapes,
        value_profiles=values,
        has_profile=bool(config._profiles),
        refittable=refit != "none",
        settings={
            name: config._values.get(name, BuilderConfig._stored[name])
            for name in ("engine_capability", "profiling_verbosity", "hardware_compatibility_level")
        },
    )


def _check_shapes_of_results(graph: Graph, profiled: Sequence[dict[int, TensorFacts]]) -> None:
    for node in graph.nodes:
        if node.operation == "shape" and any(
            not facts[node.inputs[0]].is_static for facts in profiled
        ):
            message = f"{node.name}: the shape of a tensor whose dimensions depend on data cannot be computed"
            raise RefusedError(message)


def _common(profiled: Sequence[dict[int, TensorFacts]]) -> dict[int, TensorFacts]:
    """What is true of every slot in all profiles: its type, and the dimensions that never change."""
    first, *others = profiled
    common = {}
    for slot, fact in first.items():
        shapes = [fact.shape, *(other[slot].shape for other in others)]
        common[slot] = TensorFacts(
            fact.dtype, tuple(a[0] if len(set(a)) == 1 else -1 for a in zip(*shapes, strict=True))
        )
    return common


def _profiles(graph: Graph, config: BuilderConfig) -> tuple[list[Ranges], list[Ranges]]:
    """The shapes and values of every profile, static inputs included."""
    given = [(profile._shapes, profile._ranges) for profile in config._profiles] or [({}, {})]
    shapes: list[Ranges] = []
    values: list[Ranges] = []
    for index, (profile_shapes, profile_values) in enumerate(given):
        known = {port.name for port in graph.inputs}
        for name in [*profile_shapes, *profile_values]:
            if name not in known:
                message = f"optimization profile {index} names {name!r}, which is no network input"
                raise RefusedError(message)
        shapes.append({port.name: _range_of(port, profile_shapes, index) for port in graph.inputs})
        values.append(
            {
                port.name: _values_of(port, profile_values, index)
                for port in graph.inputs
                if port.is_shape
            }
        )
    return shapes, values


def _range_of(port: Port, profile: Ranges, index: int) -> tuple[tuple[int, ...], ...]:
    if port.name not in profile:
        if -1 in port.shape:
            message = (
                f"Network has dynamic or shape inputs, but no optimization profile has been defined for {port.name!r}: "
                "call profile.set_shape and config.add_optimization_profile"
            )
            raise RefusedError(message)
        return (port.shape,) * 3
    if not in_order(profile[port.name]):
        message = f"optimization profile {index} must satisfy MIN<=OPT<=MAX, which {profile[port.name]} does not"
        raise RefusedError(message)
    for shape in profile[port.name]:
        fits = len(shape) == len(port.shape) and all(
            wanted in (-1, got) and got >= 0 for wanted, got in zip(port.shape, shape, strict=True)
        )
        if not fits:
            message = f"optimization profile {index}: the shape {shape} of {port.name!r} does not fit {port.shape}"
            raise RefusedError(message)
    return profile[port.name]


def _values_of(port: Port, profile: Ranges, index: int) -> tuple[tuple[int, ...], ...]:
    count = TensorFacts(port.dtype, port.shape).volume
    if port.name not in profile or any(len(values) != count for values in profile[port.name]):
        message = (
            f"optimization profile {index} must give the shape input {port.name!r} {count} values: "
            "call profile.set_shape_input"
        )
        raise RefusedError(message)
    return profile[port.name]


def _profile_facts(
    graph: Graph, shapes: Ranges, values: Ranges, which: int
) -> dict[int, TensorFacts]:
    facts = {}
    for port in graph.inputs:
        shape, value = shapes[port.name][which], None
        if port.is_shape:
            value = torch.tensor(values[port.name][which], dtype=TORCH[port.dtype]).view(shape)
        facts[port.slot] = input_facts(port, shape, value)
    return facts
