"""The configuration of a model in Triton's text format, ``config.pbtxt``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from torchtrt_triton.interface import ModelInterface, ModelTensor


@dataclass(frozen=True)
class ServingOptions:
    """How Triton runs a model. ``None`` leaves an existing configuration as it is.

    Attributes:
        backend: ``"python"``, ``"tensorrt"``, or ``"auto"`` for TensorRT where it can run the model.
        imports: Libraries that the model needs, for their ops or containers. The server imports them too.
        instances: The number of instances on each GPU, or on the CPU.
        dynamic_batching: Whether Triton runs requests together as one batch.
        max_queue_delay: How many microseconds a request may wait for others.
        environment: A folder on the server with a Python environment for the Python backend, such as a virtual
            environment: it has ``bin/activate``.
        gpus: The numbers of the GPUs that run the model; ``None`` for all that the server sees.
    """

    backend: str = "auto"
    imports: Sequence[str] = ()
    instances: int | None = None
    dynamic_batching: bool | None = None
    max_queue_delay: int | None = None
    environment: str | None = None
    gpus: Sequence[int] | None = None


def interface_text(interface: ModelInterface, backend: str) -> str:
    """Returns the part of the configuration that all versions of a model share.

    Args:
        interface: The model's interface.
        backend: ``"tensorrt"`` or ``"python"``.
    """
    runs = 'platform: "tensorrt_plan"' if backend == "tensorrt" else 'backend: "python"'
    return (
        f"{runs}\n"
        f"max_batch_size: {interface.max_batch_size}\n"
        f"{_tensors('input', interface.inputs)}"
        f"{_tensors('output', interface.outputs)}"
    )


def option_texts(options: ServingOptions, on_gpu: bool) -> list[str]:
    """Returns the parts of the configuration for the options that are not ``None``."""
    texts = []
    if options.instances is not None or options.gpus is not None:
        kind = "KIND_GPU" if on_gpu else "KIND_CPU"
        group = f"    count: {options.instances or 1}\n    kind: {kind}"
        if options.gpus is not None:
            group += f"\n    gpus: [ {', '.join(map(str, options.gpus))} ]"
        texts.append(f"instance_group [\n  {{\n{group}\n  }}\n]\n")
    if options.dynamic_batching:
        delay = options.max_queue_delay
        line = "" if delay is None else f"  max_queue_delay_microseconds: {delay}\n"
        texts.append(f"dynamic_batching {{\n{line}}}\n")
    if options.environment is not None:
        value = json.dumps(options.environment, ensure_ascii=False)
        texts.append(
            f'parameters {{\n  key: "EXECUTION_ENV_PATH"\n  value {{ string_value: {value} }}\n}}\n'
        )
    return texts


def _tensors(field: str, tensors: Sequence[ModelTensor]) -> str:
    """Returns a field of the configuration with inputs or outputs."""
    entries = [
        "  {\n"
        f"    name: {json.dumps(tensor.name)}\n"
        f"    data_type: {tensor.data_type}\n"
        f"    dims: [ {', '.join(map(str, tensor.dims))} ]\n"
        "  }"
        for tensor in tensors
    ]
    listed = ",\n".join(entries)
    return f"{field} [\n{listed}\n]\n"
