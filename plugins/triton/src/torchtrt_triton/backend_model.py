"""Runs a model saved by torchtrt.save in the Python backend of the Triton Inference Server.

``torchtrt triton`` wrote this file. It needs torchtrt-core, torchtrt-runtime, and the TensorRT of the engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton_python_backend_utils as pb_utils
from torch.utils.dlpack import from_dlpack

import torchtrt
from torchtrt.errors import InputError
from torchtrt.torch_internals import pytree
from torchtrt_runtime.checks.tensors import TensorCheck


class TritonPythonModel:
    """A saved model, as the Python backend calls it."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the model beside this file.

        Args:
            args: The model's configuration, and the device of this instance.
        """
        config = json.loads(args["model_config"])
        self.input_names = [input_["name"] for input_ in config["input"]]
        self.output_names = [output["name"] for output in config["output"]]
        self.is_batched = config["max_batch_size"] > 0
        self.device = torch.device("cpu")
        if args["model_instance_kind"] == "GPU":
            self.device = torch.device("cuda", int(args["model_instance_device_id"]))
        self.model = torchtrt.load(Path(__file__).with_name("model.pt2")).to(self.device)
        checks = [check for _, check in self.model.checks.inputs]
        self.ranks = [len(check.sizes) for check in checks if isinstance(check, TensorCheck)]
        self.leaves = [None if isinstance(check, TensorCheck) else check for check in checks]
        self.tensor_positions = [
            i for i, check in enumerate(checks) if isinstance(check, TensorCheck)
        ]

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Returns a response for each request. Requests of equal sizes run together, a bad one fails alone."""
        request_inputs = [self._inputs(request) for request in requests]
        together: dict[Any, list[int]] = {}
        for index, inputs in enumerate(request_inputs):
            sizes = tuple(input_.shape[1:] for input_ in inputs) if self.is_batched else index
            together.setdefault(sizes, []).append(index)
        responses: list[Any] = [None] * len(request_inputs)
        for indices in together.values():
            batch = [request_inputs[index] for index in indices]
            for index, response in zip(indices, self._respond(batch), strict=True):
                responses[index] = response
        return responses

    def _inputs(self, request: Any) -> list[torch.Tensor]:
        """Returns the tensors of a request. Triton has no 0-d tensors: one element stands for them."""
        inputs = []
        for name, rank in zip(self.input_names, self.ranks, strict=True):
            triton_tensor = pb_utils.get_input_tensor_by_name(request, name)
            tensor = from_dlpack(triton_tensor.to_dlpack()).to(self.device)
            inputs.append(tensor.squeeze(-1) if tensor.dim() == rank + 1 else tensor)
        return inputs

    def _respond(self, requests: Sequence[Sequence[torch.Tensor]]) -> Iterable[Any]:
        """Returns the responses for requests that may run together."""
        if len(requests) == 1:
            return [self._respond_alone(requests[0])]
        counts = [len(inputs[0]) for inputs in requests]
        try:
            outputs = self._run([torch.cat(tensors) for tensors in zip(*requests, strict=True)])
            parts = [output.split(counts) for output in outputs]
        except Exception:  # the batch may be too large for these sizes, or one request is at fault
            return map(self._respond_alone, requests)
        return map(self._response, zip(*parts, strict=True))

    def _respond_alone(self, inputs: Sequence[torch.Tensor]) -> Any:
        """Returns the response for one request, which may be an error."""
        try:
            return self._response(self._run(inputs))
        except Exception as error:
            codes = pb_utils.TritonError
            code = codes.INVALID_ARG if isinstance(error, InputError) else codes.INTERNAL
            message = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"  # fmt: skip
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))

    def _run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the model's outputs on the CPU."""
        leaves = list(self.leaves)
        for position, tensor in zip(self.tensor_positions, inputs, strict=True):
            leaves[position] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.model.input_tree)
        with torch.no_grad():
            outputs = pytree.tree_leaves(self.model(*args, **kwargs))
        return [_tensor(output) for output in outputs if output is not None]

    def _response(self, outputs: Iterable[torch.Tensor]) -> Any:
        """Returns a response with the outputs of one request."""
        named = []
        for name, output in zip(self.output_names, outputs, strict=True):
            has_sizes = output.dim() > self.is_batched
            shown = output if has_sizes else output.unsqueeze(-1)
            named.append(pb_utils.Tensor.from_dlpack(name, shown.contiguous()))
        return pb_utils.InferenceResponse(named)


def _tensor(output: Any) -> torch.Tensor:
    """Returns an output as a tensor on the CPU; Python's floats have 64 bits."""
    if isinstance(output, torch.Tensor):
        return output.detach().resolve_neg().cpu()
    return torch.tensor(output, dtype=torch.float64 if isinstance(output, float) else None)
