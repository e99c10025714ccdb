"""The optimization profiles of a build: their ranges for every input, and the facts that follow from them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtrt_reference.building.configuration import BuilderConfig, Ranges, in_order
from torchtrt_reference.dtypes import TORCH
from torchtrt_reference.graphs.graph import Graph, Port
from torchtrt_reference.semantics.tensor_facts import RefusedError, TensorFacts, Value


def common_facts(profiled: Sequence[dict[int, TensorFacts]]) -> dict[int, TensorFacts]:
    """Returns what is true of every slot in all profiles: its type, and the dimensions that never change."""
    first, *others = profiled
    common = {}
    for slot, fact in first.items():
        shapes = [fact.shape, *(other[slot].shape for other in others)]
        common[slot] = TensorFacts(
            fact.dtype, tuple(a[0] if len(set(a)) == 1 else -1 for a in zip(*shapes, strict=True))
        )
    return common


def ranges_of_profiles(graph: Graph, config: BuilderConfig) -> tuple[list[Ranges], list[Ranges]]:
    """Returns the shapes and values of every profile, static inputs included.

    Raises:
        RefusedError: A profile lacks an input, names another, or does not fit.
    """
    profiles = [(profile._shapes, profile._ranges) for profile in config._profiles] or [({}, {})]
    shapes: list[Ranges] = []
    values: list[Ranges] = []
    for index, (profile_shapes, profile_values) in enumerate(profiles):
        input_names = {port.name for port in graph.inputs}
        for name in [*profile_shapes, *profile_values]:
            if name not in input_names:
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
    """Returns the minimum, optimum and maximum shape of an input in a profile."""
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


def profile_facts(
    graph: Graph, shapes: Ranges, values: Ranges, which: int
) -> dict[int, TensorFacts]:
    """Returns the facts of the inputs in a profile: for its minimum (0), optimum (1) or maximum (2)."""
    facts = {}
    for port in graph.inputs:
        shape, value = shapes[port.name][which], None
        if port.is_shape:
            data = torch.tensor(values[port.name][which], dtype=TORCH[port.dtype]).view(shape)
            value = Value(data)
        facts[port.slot] = TensorFacts(port.dtype, shape, value)
    return facts
