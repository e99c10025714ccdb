"""What happened in one compilation: stages, blocks, converters, and what stayed in PyTorch."""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from torchtrt.conversion.interpreter import model_line
from torchtrt.errors import FullCompilationError, NoEngineWarning, TorchOp
from torchtrt.lowering import resolution_of
from torchtrt.partitioning import Partition
from torchtrt.targets import qualified_name
from torchtrt.tensorrt.dtypes import dtype_name


@dataclass(frozen=True)
class ConvertedOps:
    """How many nodes of one op one pack's converter handles.

    Attributes:
        op: The op's qualified name.
        pack: The pack's name and version.
        converter: The converter, as ``module:function``.
        count: How many nodes.
        dtypes: How many of them have a first result of each dtype, the most frequent first.
    """

    op: str
    pack: str
    converter: str
    count: int
    dtypes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockReport:
    """One block: one engine.

    Attributes:
        name: The block's name in the compiled module.
        nodes: How many calls it holds.
        layers: How many TensorRT layers they became; 0 in a dry run.
        plan_bytes: The size of its engine; 0 in a dry run.
        cached: Whether its engine was taken from the cache.
    """

    name: str
    nodes: int
    layers: int = 0
    plan_bytes: int = 0
    cached: bool = False


@dataclass(frozen=True)
class NarrowedSize:
    """A size that was asked to vary further than the model's code lets it.

    Attributes:
        input: The input's name.
        dim: The dimension.
        asked: The smallest and the largest size that were asked for.
        compiled: The smallest and the largest that the engines take.
        model_line: The line of the model that says so, where PyTorch tells.
    """

    input: str
    dim: int
    asked: tuple[int, int]
    compiled: tuple[int, int]
    model_line: str = ""

    def __str__(self) -> str:
        asked, compiled = (f"{low} to {high}" for low, high in (self.asked, self.compiled))
        place = f" ({self.model_line})" if self.model_line else ""
        return (
            f"You asked for {asked} in dimension {self.dim} of input {self.input!r}, but what the model computes is "
            f"one program only for {compiled}{place}. Engines are for {compiled}: ask for that, or make the code "
            "independent of the size."
        )


@dataclass
class CompilationReport:
    """What went where and why. Printing it with rich shows tables; ``to_json`` gives plain data.

    Attributes:
        tensorrt: The TensorRT that the engines are for.
        seconds: How long each stage took.
        blocks: The engines.
        converted: Which converter of which pack handled which ops.
        in_torch: What stayed in PyTorch.
        passes: The packs' passes that changed the graph, in the order in which they ran.
        narrowed: Sizes that vary less than was asked for.
        splits: For each block that TensorRT could not build as one engine, what it was and why.
        tried: With ``tune=True``, what was measured.
        inductor: The setting: whether, and how, Inductor compiles what stayed in PyTorch when it is first called.
    """

    tensorrt: str
    seconds: dict[str, float] = field(default_factory=dict)
    blocks: list[BlockReport] = field(default_factory=list)
    converted: list[ConvertedOps] = field(default_factory=list)
    in_torch: list[TorchOp] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    narrowed: list[NarrowedSize] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    inductor: bool | str = False

    def add_partition(self, partition: Partition) -> None:
        """Fills in what partitioning decided."""
        members = [node for block in partition.blocks.values() for node in block]
        self.converted = list(count_converters(members))
        self.in_torch = [
            TorchOp(
                entry.node.name,
                qualified_name(entry.node.target),
                entry.reason,
                tuple(dict.fromkeys(each.code for each in entry.rejections)),
                tuple(dict.fromkeys(each.advice for each in entry.rejections if each.advice)),
                model_line(entry.node),
                tuple(each.reason for each in entry.rejections),
            )
            for entry in partition.torch_nodes
        ]
        sizes = map(len, partition.blocks.values())
        self.blocks = [BlockReport(f"block_{index}", size) for index, size in enumerate(sizes)]

    def to_json(self) -> dict[str, Any]:
        """Returns the report as data that ``json.dumps`` accepts."""
        return dataclasses.asdict(self)

    def __rich_console__(self, *_: object) -> Iterator[object]:
        """Shows tables, where the distribution torchtrt-cli is installed."""
        try:
            yield from importlib.import_module("torchtrt_cli.report").tables_of(self)
        except ModuleNotFoundError:
            yield repr(self)


def count_converters(nodes: Iterable[Node]) -> Iterable[ConvertedOps]:
    """Yields, most frequent first, which converter handles how many nodes of which op."""
    dtypes: dict[tuple[str, str, str], Counter[str]] = {}
    for node in nodes:
        if (resolution := resolution_of(node)) and (chosen := resolution.chosen):
            pack = f"{chosen.pack.name} {chosen.pack.version}"
            key = qualified_name(node.target), pack, chosen.qualified_function
            first = next(iter(pytree.tree_leaves(node.meta.get("val"))), None)
            name = dtype_name(first.dtype) if isinstance(first, torch.Tensor) else "size"
            dtypes.setdefault(key, Counter())[name] += 1
    for (op, pack, converter), counts in sorted(dtypes.items(), key=lambda item: -item[1].total()):
        yield ConvertedOps(op, pack, converter, counts.total(), dict(counts.most_common()))


def check_complete(report: CompilationReport) -> None:
    """Raises a :class:`FullCompilationError` where more stays in PyTorch than writes to buffers and inputs."""
    missing = tuple(entry for entry in report.in_torch if "write" not in entry.codes)
    if not missing:
        return
    lines = []
    for each in missing:
        lines.append(f"{each.node} ({each.op}): " + each.reason.replace("\n", "\n  "))
        lines += [f"  model  {each.model_line}"] if each.model_line else []
    message = (
        f"{len(missing)} of the model's nodes would stay in PyTorch, but require_full_compilation was asked for:\n"
        + "\n".join(lines)
        + "\nInstall a pack that has these ops, write a converter, or drop require_full_compilation."
    )
    raise FullCompilationError(message, missing)


def warn_without_engines(report: CompilationReport, smallest: int) -> None:
    """Warns that all ops stay in PyTorch, unless they must, or somebody asked for each by name."""
    ops = [each for each in report.in_torch if not {"write", "no-input", "kept"} & {*each.codes}]
    small = sum("block-too-small" in each.codes for each in ops)
    message = f"No engine was built: all of the model runs in PyTorch. TensorRT can run {small} of its {len(ops)} ops"
    if small:
        message += f", in blocks of fewer than min_block_size={smallest}: compile with min_block_size=1, or with "
        message += "require_full_compilation=True, which leaves none in PyTorch"
    message += ". The report says why for each: rich.print(compiled.report), or torchtrt.explain(model, inputs)."
    if ops:
        warnings.warn(message, NoEngineWarning, stacklevel=3)
