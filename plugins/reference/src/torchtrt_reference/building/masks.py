"""The masks of a network as the builder executes them."""

from __future__ import annotations

from torchtrt_reference.network.definition import NetworkDefinition
from torchtrt_reference.network.elements import Layer, Tensor
from torchtrt_reference.semantics.tensor_facts import RefusedError


def check_masks(network: NetworkDefinition) -> None:
    """Checks that no Gather reads what NonZero finds in a boolean input of the network, where that does not build.

    Raises:
        RefusedError: One does.
    """
    if network._rules.gathers_by_given_masks:
        return
    for layer in network._layers:
        mask = layer._inputs[0] if layer._operation.name == "non_zero" else None
        if mask is None or not mask.is_network_input or mask._facts().dtype != "BOOL":
            continue
        gather = _gather_behind(layer._outputs[0])
        if gather is not None:
            message = (
                f"{gather._name} reads the places that {layer._name} finds in the input {mask._name}: "
                "an engine gathers by a mask that a layer computes; cast it to Int32 and back"
            )
            raise RefusedError(message)


def _gather_behind(tensor: Tensor) -> Layer | None:
    """Returns a Gather that reads a tensor or what is computed of it, if there is one."""
    pending, seen = [tensor], set()
    while pending:
        for reader in pending.pop()._consumers.values():
            if reader._operation.name == "gather":
                return reader
            if id(reader) not in seen:
                seen.add(id(reader))
                pending.extend(reader._outputs)
    return None
