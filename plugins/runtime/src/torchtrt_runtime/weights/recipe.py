"""Computations from weights, as data, and their repetition with other weights."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtrt.errors import RefitError, UnreadableFileError
from torchtrt.tensorrt.dtypes import dtype_name
from torchtrt.torch_internals import OpOverload
from torchtrt_runtime.call_safety import reason_against
from torchtrt_runtime.dtype_names import dtype_from_json

SAME = "same"
"""The step that computes nothing: a tensor's values had an effect that is compiled in, and must not change."""


class NoFormError(Exception):
    """A value has no form as data."""


@dataclass
class Recipe:
    """Steps from named tensors to named tensors. All of it is data that ``json`` takes.

    Attributes:
        sources: For the number of a tensor that comes from outside, its name.
        constants: For the number of a tensor that never changes, its value.
        steps: Each an op, its arguments and the numbers of its results. They run in order, for some write in place.
        results: For the name of each result, the number of its tensor.
    """

    sources: dict[str, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    steps: list[list[Any]] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)

    def run(self, source: Callable[[str], torch.Tensor], what: str) -> dict[str, torch.Tensor]:
        """Returns the results for other sources. The sources are not written to.

        Args:
            source: From a source's name to its value.
            what: What the results are for, for messages.

        Raises:
            RefitError: Something that is compiled in would be another.
        """
        writes = any(_is_mutable(op) for op, *_ in self.steps)
        tensors: dict[int, torch.Tensor] = {}
        for number, name in self.sources.items():
            value = source(name).detach()
            tensors[int(number)] = value.clone() if writes else value
        tensors.update(
            (int(number), decode_tensor(data)) for number, data in self.constants.items()
        )
        with torch.no_grad():
            for op, args, kwargs, outputs in self.steps:
                positional, named = (decode(data, tensors.__getitem__) for data in (args, kwargs))
                if op == SAME:
                    if digest(positional[0]) != positional[1]:
                        raise self._changed(args[0]["tensor"], what)
                    continue
                made = _op(op)(*positional, **named)
                flat = list(made) if isinstance(made, (list, tuple)) else [made]
                for number, value in zip(outputs, flat, strict=True):
                    if number is not None:
                        tensors[number] = value
        return {name: tensors[number] for name, number in self.results.items()}

    def _changed(self, number: int, what: str) -> RefitError:
        """Returns the error for a tensor whose values must stay what they are; it names the sources of it."""
        wanted = {number}
        for op, args, kwargs, outputs in reversed(self.steps):
            if op != SAME and wanted.intersection(outputs):
                wanted.update(numbers_in([args, kwargs]))
        names = sorted(repr(name) for number, name in self.sources.items() if int(number) in wanted)
        return RefitError(
            f"Values that follow from {', '.join(names)} are compiled into {what} as numbers, and would be others with "
            "these weights. Nothing was changed. Compile the model with the new weights."
        )

    def part(self, changed: Collection[str], wanted: Collection[str] = ()) -> Recipe:
        """Returns the part of the recipe for what follows from some sources.

        A recipe that writes in place has no parts: its steps do not record which memory tensors share.

        Args:
            changed: The sources. The results and the checks that follow from one of them are in the part.
            wanted: Further results of the part.
        """
        if any(_is_mutable(op) for op, *_ in self.steps):
            return self
        following = {int(number) for number, name in self.sources.items() if name in changed}
        for _, args, kwargs, outputs in self.steps:
            if following.intersection(numbers_in([args, kwargs])):
                following.update(outputs)
        results = {
            name: number
            for name, number in self.results.items()
            if number in following or name in wanted
        }
        needed, steps = set(results.values()), []
        for step in reversed(self.steps):
            op, args, kwargs, outputs = step
            read = set(numbers_in([args, kwargs]))
            if needed.intersection(outputs) or (op == SAME and read & following):
                needed |= read
                steps.append(step)
        sources = {
            number: source for number, source in self.sources.items() if int(number) in needed
        }
        constants = {
            number: constant for number, constant in self.constants.items() if int(number) in needed
        }
        return Recipe(sources, constants, steps[::-1], results)

    def add_constant(self, name: str, data: Mapping[str, Any]) -> None:
        """Adds a result that never changes.

        Args:
            name: The name of the result.
            data: What ``encode_tensor`` made of its value.
        """
        used = [*map(int, self.sources), *map(int, self.constants), *self.results.values()]
        used += (number for *_, outputs in self.steps for number in outputs if number is not None)
        number = max(used, default=-1) + 1
        self.constants[str(number)] = data
        self.results[name] = number

    def must_stay(self, name: str, value: torch.Tensor) -> None:
        """Makes a result one that must have the same value with all sources.

        Args:
            name: The name of the result.
            value: Its value.
        """
        number = self.results.pop(name)
        self.steps.append([SAME, [{"tensor": number}, digest(value)], {"dict": {}}, []])

    def to_json(self) -> dict[str, Any]:
        """Returns the recipe as data."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """Returns the recipe that ``to_json`` made data of."""
        return cls(**{name: data[name] for name in ("sources", "constants", "steps", "results")})


def digest(tensor: torch.Tensor) -> str:
    """Returns what is equal for tensors of one dtype and shape with the same bits."""
    text = f"{tensor.dtype} {tuple(tensor.shape)} ".encode()
    return hashlib.sha256(text + hashlib.sha256(_bytes_of(tensor)).digest()).hexdigest()


def _bytes_of(tensor: torch.Tensor) -> Any:
    """Returns the values of a tensor, one after the other, in a buffer of bytes."""
    data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # One element has any stride.
    return data.as_strided((data.numel(),), (1,)).view(torch.uint8).numpy() if data.numel() else b""


def encode(value: Any, number: Callable[[torch.Tensor], int]) -> Any:
    """Returns an argument as data.

    Raises:
        NoFormError: It has no such form.
    """
    match value:
        case torch.Tensor():
            return {"tensor": number(value)}
        case None | bool() | int() | float() | str():
            if type(value) not in (type(None), bool, int, float, str):
                raise NoFormError(value)
            return value
        case complex():
            return {"complex": [value.real, value.imag]}
        case torch.dtype():
            return {"dtype": dtype_name(value)}
        case torch.device():
            return {"device": str(value)}
        case torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
        case list() | tuple():
            return [encode(element, number) for element in value]
        case dict():
            return {"dict": {name: encode(element, number) for name, element in value.items()}}
    raise NoFormError(value)


def decode(data: Any, tensor: Callable[[int], torch.Tensor]) -> Any:
    """Returns the argument that ``encode`` made data of."""
    match data:
        case {"tensor": int(number)}:
            return tensor(number)
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
        case {"dtype": name}:
            return dtype_from_json(name)
        case {"device": str(name)}:
            return torch.device(name)
        case {"torch": str(name)} if isinstance(
            getattr(torch, name, None), (torch.layout, torch.memory_format)
        ):
            return getattr(torch, name)
        case {"dict": dict(values)}:
            return {name: decode(value, tensor) for name, value in values.items()}
        case list():
            return [decode(element, tensor) for element in data]
        case None | bool() | int() | float() | str():
            return data
    raise UnreadableFileError(
        f"A step from a weight to an engine's has the argument {data!r}, which has no meaning."
    )


def encode_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns a tensor as data."""
    return {
        "dtype": dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "device": str(tensor.device),
        "data": base64.b64encode(_bytes_of(tensor)).decode(),
    }


def decode_tensor(data: Mapping[str, Any]) -> torch.Tensor:
    """Returns the tensor that the data of ``encode_tensor`` describe."""
    dtype = dtype_from_json(data["dtype"])
    content = bytearray(base64.b64decode(data["data"]))
    values = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    return values.reshape(data["shape"]).to(data["device"])


def numbers_in(data: Any) -> Iterator[int]:
    """Yields the numbers of the tensors in encoded arguments."""
    if isinstance(data, dict):
        if isinstance(data.get("tensor"), int):
            yield data["tensor"]
        for element in data.values():
            yield from numbers_in(element)
    elif isinstance(data, list):
        for element in data:
            yield from numbers_in(element)


def slice_steps(
    steps: Iterable[tuple[list[Any], frozenset[int], frozenset[int]]], wanted: Iterable[int]
) -> list[list[Any]]:
    """Returns the steps that the memory of the wanted tensors depends on, in order.

    Args:
        steps: Each step with the memories that it reads and those that it writes.
        wanted: Memories.
    """
    needed = set(wanted)
    kept = []
    for step, reads, writes in reversed(list(steps)):
        if writes & needed:
            needed |= reads | writes
            kept.append(step)
    return kept[::-1]


def _op(name: str) -> OpOverload:
    """Returns the op of a step.

    Raises:
        UnreadableFileError: PyTorch has no such op, or a file must not call it.
    """
    match name.split("."):
        case ["aten" | "prims" as namespace, packet, overload]:
            op = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
            if isinstance(op, OpOverload) and reason_against(op) is None:
                return op
    raise UnreadableFileError(
        f"A step from a weight to an engine's calls {name}, which is no op on tensors of PyTorch's."
    )


def _is_mutable(name: str) -> bool:
    return name != SAME and _op(name)._schema.is_mutable
