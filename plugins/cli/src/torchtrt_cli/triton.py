"""``torchtrt triton FILE REPOSITORY``: adds a saved model to a model repository of Triton."""

from __future__ import annotations

import argparse
import dataclasses

from torchtrt_cli.output import answers, print_json
from torchtrt_triton import AddedModel, ServingOptions, add_model


def run(arguments: argparse.Namespace) -> int:
    """Adds the model, and prints where it is and how it runs."""
    added = add_model(
        arguments.model,
        arguments.repository,
        arguments.name,
        version=arguments.version,
        options=ServingOptions(
            arguments.backend,
            arguments.imports,
            arguments.instances,
            arguments.dynamic_batching,
            arguments.max_queue_delay,
            arguments.environment,
            arguments.gpus,
        ),
    )
    if arguments.json:
        interface = dataclasses.asdict(added.interface)
        paths = {"folder": str(added.folder), "config": str(added.config)}
        backend = {"backend": added.backend, "needs_python": added.needs_python}
        print_json({**paths, **backend, **interface})
        return 0
    print("\n".join(_lines(added)), file=answers())
    return 0


def _lines(added: AddedModel) -> list[str]:
    """Returns what the command prints."""
    interface = added.interface
    lines = [f"{added.folder}", f"{added.config}", ""]
    for title, tensors in (("input", interface.inputs), ("output", interface.outputs)):
        lines += [
            f"  {title} {tensor.name}: {tensor.data_type} {list(tensor.dims)}" for tensor in tensors
        ]
    lines.append("")
    if added.backend == "tensorrt":
        lines.append("The TensorRT backend runs it.")
    else:
        reason = f", because {added.needs_python}" if added.needs_python else ""
        lines.append(f"The Python backend runs it{reason}.")
    if interface.max_batch_size:
        lines.append(f"A request has 1 to {interface.max_batch_size} rows.")
    else:
        lines.append(f"Sizes are explicit, without a batch: {interface.unbatched}.")
    return lines
