"""Lowers a saved model to ExecuTorch: the partitioner that it calls, and the backend that writes the delegates."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, final

from torch.export import ExportedProgram

from torchtrt.errors import MissingDistributionError, SettingsError
from torchtrt_executorch.engines import delegate_of, engine_nodes

try:
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
    from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
except ImportError as error:
    message = f"torchtrt_executorch needs ExecuTorch ({error}). Run `pip install executorch`."
    raise MissingDistributionError(message) from error


def lower(
    program: ExportedProgram,
    partitioners: Sequence[Any] = (),
    *,
    compile_specs: Sequence[Any] = (),
    compile_config: Any = None,
    **options: Any,
) -> Any:
    """Returns a program of ExecuTorch in which the engines of a saved model are delegates.

    Args:
        program: What ``torch.export.load`` returned of a file that ``torchtrt.save`` wrote, on the CPU.
        partitioners: Partitioners of ExecuTorch for the other ops. Those that none takes run on ExecuTorch's kernels.
        compile_specs: ExecuTorch's ``CompileSpec`` objects for the engines.
        compile_config: ExecuTorch's ``EdgeCompileConfig``, with ``_check_ir_validity=False``.
        **options: Other arguments of ``executorch.exir.to_edge_transform_and_lower``.

    Returns:
        ExecuTorch's ``EdgeProgramManager``, whose ``to_executorch`` makes the file.

    Raises:
        SettingsError: ExecuTorch is to check the operators, and would fix the dynamic sizes.
        UnreadableFileError: A plan is damaged.
        UnsupportedProgramError: A delegate cannot run an engine.
    """
    config = compile_config or EdgeCompileConfig(_check_ir_validity=False)
    if config._check_ir_validity:
        message = (
            "ExecuTorch's check of operators fixes dynamic sizes behind engines to those of the example. Create the "
            "EdgeCompileConfig with _check_ir_validity=False."
        )
        raise SettingsError(message)
    lowered = to_edge_transform_and_lower(
        program,
        partitioner=[_EnginePartitioner(compile_specs), *partitioners],
        compile_config=config,
        **options,
    )
    _keep_initial_values(lowered.exported_program())
    return lowered


def _keep_initial_values(program: ExportedProgram) -> None:
    """Lets the file have the first values of buffers that the model writes: ExecuTorch leaves them out otherwise."""
    signature = program.graph_signature
    written = {*signature.buffers_to_mutate.values()}
    for node in program.graph.find_nodes(op="placeholder"):
        if signature.inputs_to_buffers.get(node.name) in written:
            node.meta["et_init_buffer"] = True


@final
class TensorRTBackend(BackendDetails):  # type: ignore[misc, unused-ignore]
    """Writes the engines of delegates. Its name is that of the backend in ExecuTorch's runtime."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: Any) -> Any:  # noqa: ARG004
        """Returns the bytes of a delegate.

        Raises:
            UnsupportedProgramError: A delegate cannot run the engine.
        """
        return PreprocessResult(processed_bytes=delegate_of(edge_program))


class _EnginePartitioner(Partitioner):  # type: ignore[misc, unused-ignore]
    """Makes a delegate of each engine.

    Args:
        compile_specs: ExecuTorch's options for the delegates.
    """

    def __init__(self, compile_specs: Sequence[Any]) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(TensorRTBackend.__name__, list(compile_specs))

    def partition(self, exported_program: ExportedProgram) -> Any:
        """Returns the program with a tag at the nodes of each delegate."""
        tags = {}
        for number, node in enumerate(engine_nodes(exported_program.graph)):
            tag = f"torchtrt_{number}"
            tags[tag] = self.delegation_spec
            results = [user for user in node.users if user.target is operator.getitem]
            # ExecuTorch copies a plan that several delegates share; an input that is a constant stays outside.
            for part in (node, node.args[1], *results):
                part.meta.setdefault("delegation_tag", tag)  # type: ignore[union-attr]
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)
