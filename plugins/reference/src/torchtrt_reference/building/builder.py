"""``Builder``: from a network to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch

from torchtrt_reference.building.configuration import BuilderConfig, Ranges
from torchtrt_reference.building.lowering import Refittable, lower
from torchtrt_reference.building.passes.branching import gather_branches
from torchtrt_reference.building.passes.fusions import fuse
from torchtrt_reference.building.passes.merging import merge_equal
from torchtrt_reference.building.profiles import common_facts, profile_facts, ranges_of_profiles
from torchtrt_reference.building.progress import Progress
from torchtrt_reference.building.validation import (
    check_cache_updates,
    check_collectives,
    check_shape_tensors,
    check_shapes_of_results,
)
from torchtrt_reference.graphs.executable import infer_graph
from torchtrt_reference.graphs.graph import Graph
from torchtrt_reference.graphs.plan import EngineDescription, encode
from torchtrt_reference.implementation import Implementation
from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.reporting import report
from torchtrt_reference.rules import Rules
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts

_OPTIMUM = 1  # of the minimum, optimum and maximum shapes of a profile


class Builder(Implementation):
    """Makes networks, configurations and profiles, and builds plans."""

    _implements = ("Builder",)
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
        return self._trt.INetworkDefinition._made(self, flags)

    def create_builder_config(self) -> Any:
        """Returns a configuration with every option at its default."""
        return self._trt.IBuilderConfig._made()

    def create_optimization_profile(self) -> Any:
        """Returns an empty optimization profile."""
        return self._trt.IOptimizationProfile._made()

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
        if description is None:
            return None
        is_stripped = config._has_flag("STRIP_PLAN")
        return encode(description, self._trt.IHostMemory, is_stripped=is_stripped)

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
    """Returns the description of a network's engine, checked by the rules of the version."""
    if rules.needs_explicit_batch and not network._has_flag("EXPLICIT_BATCH"):
        message = (
            "the reference has no implicit batch: create the network with the flag EXPLICIT_BATCH"
        )
        raise RefusedError(message)
    if config._has_flag("WEIGHT_STREAMING") and not network._strong:
        message = "the flag WEIGHT_STREAMING needs a strongly typed network: create it with the flag STRONGLY_TYPED"
        raise RefusedError(message)
    refit = _refittable(config)
    with torch.inference_mode():
        graph = lower(network, config, refit)
        progress.step()
        shapes, values = ranges_of_profiles(graph, config)
        check_shape_tensors(graph)
        check_cache_updates(graph)
        if rules.collectives_need_preview:
            check_collectives(graph, "MULTIDEVICE_RUNTIME_10_16" in config._previews)
        profiled = _infer_profiles(graph, shapes, values, rules)
        if not rules.shape_of_data_dependence:
            check_shapes_of_results(graph, profiled)
        progress.step()
        fuse(graph, common_facts(profiled))
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
        shares_profiles="PROFILE_SHARING_0806" in config._previews,
        refittable=refit != "none",
        settings={
            name: config._values.get(name, BuilderConfig._stored[name])
            for name in ("engine_capability", "profiling_verbosity", "hardware_compatibility_level")
        }
        | {
            "version_compatible": config._has_flag("VERSION_COMPATIBLE"),
            "has_lean_runtime": config._has_flag("VERSION_COMPATIBLE")
            and not config._has_flag("EXCLUDE_LEAN_RUNTIME"),
            "weight_streaming": config._has_flag("WEIGHT_STREAMING"),
            "stripped": config._has_flag("STRIP_PLAN"),
        },
    )


def _refittable(config: BuilderConfig) -> Refittable:
    if config._has_flag("REFIT_INDIVIDUAL"):
        return "marked"
    flags = ("REFIT", "REFIT_IDENTICAL", "STRIP_PLAN")  # stripped weights are identical ones
    return "all" if any(map(config._has_flag, flags)) else "none"


def _infer_profiles(
    graph: Graph, shapes: Sequence[Ranges], values: Sequence[Ranges], rules: Rules
) -> list[dict[int, TensorFacts]]:
    """The facts of every slot for the minimum, optimum and maximum of every profile that fit together."""
    # What is asserted may be false for some shapes: the runtime finds out.
    hopeful = replace(graph, nodes=[node for node in graph.nodes if node.operation != "assertion"])
    profiled: list[dict[int, TensorFacts]] = []
    for profile_shapes, profile_values in zip(shapes, values, strict=True):
        for which in range(3):
            input_facts = profile_facts(graph, profile_shapes, profile_values, which)
            try:
                profiled.append(infer_graph(hopeful, input_facts, rules))
            except RefusedError:
                # Seen on TensorRT 8.6: the ends of a range need not fit together, the runtime checks what it gets.
                if which == _OPTIMUM:
                    raise
    return profiled
