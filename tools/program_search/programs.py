"""Generated models: their source, their inputs and how they are compiled."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tools.program_search import corners, further, grammar
from torchtrt_reference import VERSIONS

Range = tuple[int, int, int]
"""The minimum, the usual and the maximum value of a symbol."""
_DTYPES = (
    "torch.float32",
    "torch.float32",
    "torch.float16",
    "torch.int64",
    "torch.int32",
    "torch.bool",
)
_MORE_DTYPES = (
    *_DTYPES,
    "torch.int64",
    "torch.int32",
    "torch.bfloat16",
    "torch.float64",
    "torch.uint8",
    "torch.int8",
)
_MOST_ELEMENTS = 4096
_NARROW = "8.6.0"
"""The version whose engines compute 64-bit integers in 32 bits, as the documentation says."""
_KINDS = {"corners": corners.FAMILIES, "further": further.FAMILIES}
KINDS = ("usual", *_KINDS)
"""The kinds of programs."""
_KEPT = ((), (), ("aten.mul",), ("aten.add", "aten.reshape"), ("aten.slice", "aten.linear"))


@dataclass(frozen=True)
class InputSpec:
    """One input of a model: a tensor whose sizes are expressions of symbols, or a number."""

    dtype: str
    shape: tuple[str, ...] = ()
    value: object = None

    def tensor(self, sizes: Mapping[str, int], seed: int) -> Any:
        """Returns an input for values of the symbols, the same for the same seed."""
        if not self.dtype:
            return self.value
        shape = self.sizes(sizes)
        generator = torch.Generator().manual_seed(seed)
        dtype = eval(self.dtype, {"torch": torch})
        if dtype.is_floating_point:
            numbers = torch.randn(shape, generator=generator) * 2
            return (numbers * 4).round().div(4).to(dtype) if seed % 2 else numbers.to(dtype)
        return torch.randint(-3 if dtype.is_signed else 0, 4, shape, generator=generator).to(dtype)

    def sizes(self, values: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the shape for values of the symbols."""
        return tuple(int(eval(size, {}, dict(values))) for size in self.shape)


@dataclass(frozen=True)
class Program:
    """A model and how it is compiled.

    Attributes:
        inputs: Its inputs, ``x0`` and so on.
        body: The statements of its ``forward``.
        result: The expression that it returns.
        profiles: The values of each symbol, in each range of sizes.
        how: ``input`` for ``torchtrt.Input``, ``dims`` for ``torch.export.Dim``, ``program`` for an exported one.
        version: The version of the reference TensorRT.
        kept: The ops that stay in PyTorch.
        autocast: Whether the setting ``autocast`` is used.
    """

    inputs: tuple[InputSpec, ...]
    body: tuple[str, ...]
    result: str
    profiles: tuple[Mapping[str, Range], ...]
    how: str
    version: str
    kept: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the inputs."""
        return [f"x{number}" for number in range(len(self.inputs))]

    def source(self) -> str:
        """Returns the source of the model's class."""
        body = textwrap.indent("\n".join(self.body) or "pass", " " * 8)
        model = grammar.MODEL.format(
            parameters=", ".join(self.names), body=body, result=self.result
        )
        return f"{grammar.PRELUDE}\n\n{model}"

    def model(self) -> torch.nn.Module:
        """Returns a new model, with the same weights every time."""
        module = types.ModuleType("generated")
        sys.modules["generated"] = module  # Dynamo imports the module of a function by its name
        names = vars(module)
        exec(compile(self.source(), "<generated>", "exec"), names)
        made: torch.nn.Module = names["Model"]().eval().requires_grad_(False)
        return made

    def arguments(self, sizes: Mapping[str, int], seed: int) -> list[Any]:
        """Returns inputs for values of the symbols."""
        return [spec.tensor(sizes, seed + index) for index, spec in enumerate(self.inputs)]

    def calls(self) -> Iterator[dict[str, int]]:
        """Yields the values of the symbols to call a model with: the usual, the extremes, odd ones, and mixed."""
        for profile in self.profiles:
            yield {name: usual for name, (_, usual, _) in profile.items()}
            yield {name: least for name, (least, _, _) in profile.items()}
            yield {name: most for name, (_, _, most) in profile.items()}
            yield {
                name: min(least + 2, most) | 1 if most > 2 else most
                for name, (least, _, most) in profile.items()
            }
            if len(profile) > 1:
                yield {
                    name: bounds[2 * (index % 2)]
                    for index, (name, bounds) in enumerate(profile.items())
                }

    def is_half(self) -> bool:
        """Returns whether values may have few digits."""
        text = self.source() + str(self.inputs)
        return "float16" in text


def program(seed: int, kind: str = "usual") -> Program:
    """Returns the program of a seed.

    Args:
        seed: The seed.
        kind: ``usual`` for the statements of ``grammar``; ``corners`` or ``further`` for those of that module, too.
    """
    return _Generator(seed, kind).make()


class _Generator:
    """Draws statements one by one, and keeps those that eager PyTorch runs at all sizes.

    Args:
        seed: The seed.
        kind: The kind of program.
    """

    def __init__(self, seed: int, kind: str = "usual") -> None:
        self.random = random.Random(seed)
        self.dtypes, self.families = _DTYPES, grammar.FAMILIES
        self.always = ("arithmetic", "shapes")
        if kind in _KINDS:
            families = _KINDS[kind]
            self.dtypes, self.families = _MORE_DTYPES, {**grammar.FAMILIES, **families}
            self.always = tuple(self.random.sample(sorted(families), 3))
        self.counter = itertools.count()
        self.environments: list[dict[str, Any]] = []
        self.most = math.inf

    def make(self) -> Program:
        """Returns the program."""
        choose = self.random
        inputs, profiles = self.draw_inputs()
        how = choose.choice(("input", "input", "dims", "program", "fixed"))
        if how == "fixed":
            profiles = tuple(
                {name: (usual,) * 3 for name, (_, usual, _) in profiles[0].items()} for _ in "1"
            )
        elif how != "input":
            profiles = profiles[:1]
        base = Program(
            inputs, (), "x0", profiles, how, choose.choice(VERSIONS), choose.choice(_KEPT)
        )
        if base.version == _NARROW:
            self.most = torch.iinfo(torch.int32).max
        for sizes in base.calls():
            names: dict[str, Any] = {}
            exec(grammar.PRELUDE, names)
            values = dict(zip(base.names, base.arguments(sizes, 0), strict=True))
            self.environments.append({**names, **values, "self": base.model()})
        families = choose.sample(sorted(self.families), 4)
        body: list[str] = []
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(choose.randint(2, 9)):
                statement = (
                    self.draw_block(families) if choose.random() < 0.15 else self.draw(families)
                )
                body += [statement] if statement else []
            result = self.draw_result()
        return Program(inputs, tuple(body), result, profiles, how, base.version, base.kept)

    def draw_inputs(self) -> tuple[tuple[InputSpec, ...], tuple[Mapping[str, Range], ...]]:
        """Returns one to three inputs, and the ranges of their sizes."""
        choose = self.random
        least = choose.choice((0, 1, 1, 1, 2, 3))
        most = least + choose.choice((1, 4, 7))
        ranges = {"n": (least, choose.randint(max(least, 1), most), most)}
        shapes: list[tuple[str, ...]] = [("n", "4"), ("n",), ("4",), ("n", "n"), ("1", "n"), ()]
        derived = choose.random()
        if derived < 0.25:
            shapes += [(choose.choice(("2*n", "n+1", "4*n", "2*n+1")), "4")] * 3
        elif derived < 0.6:
            ranges["m"] = (1, 2, choose.choice((2, 5)))
            shapes += [("m", "4"), ("n", "m"), ("m", "n", "4"), ("m",)]
        first = choose.choice((("n", "4"), ("n", "4"), *shapes[:2], *shapes[6:]))
        inputs = [InputSpec("torch.float32", first)]
        for _ in range(choose.randint(0, 2)):
            if choose.random() < 0.12:
                inputs.append(InputSpec("", value=choose.choice((2, 0.5, None, True))))
            else:
                inputs.append(InputSpec(choose.choice(self.dtypes), choose.choice(shapes)))
        used = re.findall(r"[nm]", " ".join(" ".join(input_.shape) for input_ in inputs))
        ranges = {name: bounds for name, bounds in ranges.items() if name in used}
        profiles: list[Mapping[str, Range]] = [ranges]
        if choose.random() < 0.15:
            profiles.append(
                {name: (most + 1, most + 2, most + 4) for name, (_, _, most) in ranges.items()}
            )
        return tuple(inputs), tuple(profiles)

    def draw(self, families: Sequence[str]) -> str:
        """Returns a statement that runs at all sizes, or an empty string."""
        for _ in range(12):
            family = self.random.choice((*families, *self.always))
            template = self.random.choice(self.families[family])
            with contextlib.suppress(LookupError):
                statement = self.fill(template)
                name = f"v{next(self.counter)}"
                statement = re.sub(r"^v =", f"{name} =", statement)
                if self.runs(statement):
                    return statement
        return ""

    def draw_block(self, families: Sequence[str]) -> str:
        """Returns a region with one to three statements, and perhaps a region inside of it."""
        header = self.fill(self.random.choice(grammar.REGIONS))
        lines = [header]
        for index in range(self.random.randint(1, 3)):
            nested = index and self.random.random() < 0.3
            statement = self.draw_block(families) if nested else self.draw_in(header, families)
            lines += [textwrap.indent(statement, "    ")] if statement else []
        return "\n".join(lines) if len(lines) > 1 else ""

    def draw_in(self, header: str, families: Sequence[str]) -> str:
        """Returns a statement that runs inside a region; it has run there, so that later ones see its dtypes."""
        outer = self.runs
        self.runs = lambda statement: outer(f"{header}\n{textwrap.indent(statement, '    ')}")  # type: ignore[method-assign]
        try:
            return self.draw((*families, "modules"))
        finally:
            self.runs = outer  # type: ignore[method-assign]

    def draw_result(self) -> str:
        """Returns an expression of the last values."""
        return self.fill(self.random.choice(grammar.RESULTS), latest=True)

    def fill(self, template: str, latest: bool = False) -> str:
        """Returns a template with names in its places.

        Raises:
            LookupError: There is no value of a kind.
        """
        choose = self.random
        kinds = {
            "t": lambda _: True,
            "f": lambda value: value.is_floating_point(),
            "i": lambda value: not value.is_floating_point() and value.dtype is not torch.bool,
            "b": lambda value: value.dtype is torch.bool,
        }
        tensors = {
            name: value
            for name, value in self.environments[0].items()
            if isinstance(value, torch.Tensor)
        }

        def replacement(match: re.Match[str]) -> str:
            """Returns what takes one place."""
            kind = match.group(1)
            if kind in kinds:
                fitting = [name for name, value in tensors.items() if kinds[kind](value)]
                recent = fitting[-3:]
                return choose.choice(recent if latest or choose.random() < 0.6 else fitting)
            if kind == "s":
                ranked = [name for name, value in tensors.items() if value.dim()]
                name = choose.choice(ranked)
                return f"{name}.shape[{choose.randrange(tensors[name].dim())}]"
            options = {
                "d": ("0", "-1", "1"),
                "k": ("2", "3", "-1", "0.5", "1"),
                "h": ("torch.bfloat16", "torch.float16"),
                "y": _DTYPES,
                # PyTorch does not define what a negative number becomes as an unsigned one.
                "z": [name for name in _MORE_DTYPES if name != "torch.uint8"],
            }
            return choose.choice(options[kind])

        return (
            re.sub(r"\{([tfibdkshyz])\}", replacement, template)
            .replace("{{", "{")
            .replace("}}", "}")
        )

    def runs(self, statement: str) -> bool:
        """Returns whether eager PyTorch runs a statement at all sizes; its effects stay if so."""
        before = [dict(environment) for environment in self.environments]
        for environment in self.environments:
            try:
                exec(statement, environment)
                self.check(environment)
            except Exception:
                self.environments = before
                return False
        return True

    def check(self, environment: Mapping[str, Any]) -> None:
        """Raises a ValueError where a value grows beyond what the search is for."""
        for value in environment.values():
            if isinstance(value, torch.Tensor) and (
                value.numel() > _MOST_ELEMENTS or value.is_complex() or value.dim() > 5
            ):
                raise ValueError("too large")
            is_long = isinstance(value, torch.Tensor) and value.dtype is torch.int64
            if is_long and value.numel() and value.abs().max() > self.most:
                raise ValueError("too large for the version's integers")
