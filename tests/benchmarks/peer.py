"""Torch-TensorRT's own registry and interpreter, on a machine without CUDA.

Its wheel is used as it is but for its compiled libraries, which the Makefile leaves out. ``STAND_INS`` is everything
that is put in the place of something else.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

STAND_INS = {
    "`tensorrt`, `tensorrt.tensorrt`": "the [reference TensorRT](reference-tensorrt.md), "
    "by a package of ten lines in `tests/benchmarks/stand_in`",
    "`torch_tensorrt/lib`, `torch_tensorrt/_C`": "nothing: they are linked to CUDA, and without them Torch-TensorRT "
    "turns its C++ runtime and its TorchScript front end off",
    "`torch.cuda.get_device_capability`, `torch.cuda.current_device`": "compute capability 9.0 and device 0, "
    "which it asks for while it is imported",
    "`torch._C._CudaDeviceProperties`": "`object`: it is named in an annotation, and PyTorch for CPUs lacks it",
}
"""For each thing that Torch-TensorRT would find on a machine with CUDA, what it finds here."""


def stand_in(folder: Path) -> None:
    """Makes ``import torch_tensorrt`` possible in this process.

    Args:
        folder: Where Torch-TensorRT is installed.
    """
    sys.path[:0] = [str(Path(__file__).parent / "stand_in"), str(folder)]
    cuda: Any = torch.cuda
    cuda.get_device_capability = lambda device=None: (9, 0)
    cuda.current_device = lambda: 0
    binding: Any = torch._C
    if not hasattr(binding, "_CudaDeviceProperties"):
        binding._CudaDeviceProperties = object
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")


class Peer:
    """Torch-TensorRT, imported. ``stand_in`` comes first."""

    def __init__(self) -> None:
        import torch_tensorrt
        from torch_tensorrt.dynamo import CompilationSettings, conversion, lowering

        self.torch_tensorrt, self.conversion, self.lowering = torch_tensorrt, conversion, lowering
        self.settings = CompilationSettings()
        self.registry = conversion.DYNAMO_CONVERTERS
        self.registry.set_compilation_settings(self.settings)

    def lower(self, program: ExportedProgram) -> GraphModule:
        """Returns the program's graph, lowered as ``torch_tensorrt.dynamo.compile`` does."""
        program = self.lowering.pre_export_lowering(program, self.settings)
        program = program.run_decompositions(self.lowering.get_decompositions(False, False, False))
        graph_module: GraphModule = self.lowering.post_lowering(program.module(), self.settings)
        return graph_module

    def convert(self, graph_module: GraphModule, inputs: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Returns the network of a lowered graph for inputs of these sizes, and what owns its weights."""
        interpreter = self.conversion.TRTInterpreter(
            graph_module,
            [self.torch_tensorrt.Input.from_tensor(input_) for input_ in inputs],
            output_dtypes=self.conversion._conversion.infer_module_output_dtypes(graph_module),
            compilation_settings=self.settings,
        )
        interpreter._construct_trt_network_def()
        return interpreter.ctx.net, interpreter.ctx
