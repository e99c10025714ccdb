"""Cases: one line has the op, its arguments, and what is expected."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchtrt.errors import UnknownTargetError
from torchtrt.packs import load_packs, problems
from torchtrt.targets import parse_target
from torchtrt.tensorrt import dtype_name
from torchtrt.torch_internals import pytree
from torchtrt_testing.tensors import DIMENSIONS, Sizes, TensorSpec, is_shape


@dataclass(frozen=True, eq=False)
class OpCase:
    """A call that must be converted and agree with PyTorch. ``op_case`` makes one.

    Attributes:
        ops: The ops that must be in engines, by qualified name.
        function: What is computed.
        args: Its arguments; every ``TensorSpec`` among them is an input of the model.
        kwargs: Its keyword arguments, likewise.
        tolerance: The largest relative and absolute difference; ``None`` for that of the dtype.
        label: What distinguishes it from other cases, in the test's name.
        dtypes: The dtypes that it is tried with, for tensors that name none.
        dimensions: The minimum, usual and maximum sizes of the dynamic dimensions.
        rejected: A pattern of the reason, if the op must stay in PyTorch.
        decomposed: The ops that only their parts in the engines compute, by qualified name.
    """

    ops: tuple[str, ...]
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float | None = None
    label: str = ""
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    dimensions: Mapping[str, Sizes] = field(default_factory=lambda: DIMENSIONS)
    rejected: str = ""
    decomposed: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.label

    @functools.cached_property
    def leaves(self) -> tuple[list[Any], Any]:
        """The arguments, flattened, and how they nest."""
        return pytree.tree_flatten((self.args, dict(self.kwargs)), is_leaf=_is_spec)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The tensors among the arguments."""
        return tuple(leaf for leaf in self.leaves[0] if isinstance(leaf, TensorSpec))

    @property
    def varies(self) -> bool:
        """Whether any dimension varies."""
        return any(spec.varying(self.dimensions) for spec in self.tensors)

    def inputs(self, point: int) -> tuple[torch.Tensor, ...]:
        """Returns the model's inputs at the minimum, usual or maximum sizes."""
        return tuple(
            spec.make(self.dtypes[0], self.dimensions, point, seed)
            for seed, spec in enumerate(self.tensors)
        )

    def arguments(self, inputs: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns what the function is called with: the arguments, with these tensors in place."""
        rest = iter(inputs)
        leaves, tree = self.leaves
        filled = [next(rest) if isinstance(leaf, TensorSpec) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, tree)
        return args, kwargs

    def model(self) -> torch.nn.Module:
        """Returns the call as a module whose inputs are the tensors."""
        return _Call(self)

    def each_dtype(self) -> Iterator[OpCase]:
        """Yields the case for each of its dtypes; the labels name them if there are several."""
        for dtype in self.dtypes:
            label = f"{self.label}-{dtype_name(dtype)}" if len(self.dtypes) > 1 else self.label
            yield dataclasses.replace(self, dtypes=(dtype,), label=label)


class _Call(torch.nn.Module):
    def __init__(self, case: OpCase) -> None:
        super().__init__()
        self.case = case

    def forward(self, *inputs: torch.Tensor) -> Any:
        args, kwargs = self.case.arguments(inputs)
        return self.case.function(*args, **kwargs)


def op_case(  # noqa: PLR0913  (the columns of a table of cases, given by name)
    op: str | Sequence[str],
    *args: Any,
    function: Callable[..., Any] | None = None,
    tolerance: float | None = None,
    label: str = "",
    dtypes: Sequence[torch.dtype] = (torch.float32,),
    dimensions: Mapping[str, Sizes] | None = None,
    rejected: str = "",
    **kwargs: Any,
) -> OpCase:
    """Returns a case: a call of an op, which the engine must compute as PyTorch does.

    A string among the arguments that reads as a shape, such as ``"batch length 4"``, is a tensor of that shape.
    Its values are random between -3 and 3 by default, and ``TensorSpec`` has options.
    The sizes vary: ``batch`` from 1 to 5 and ``length`` from 3 to 8.

    Args:
        op: The op that is called, in any spelling; or, with ``function``, those that must be in engines.
        *args: The arguments.
        function: What is computed, if it is not the op itself.
        tolerance: The largest relative and absolute difference; by default 1e-5, or what
            ``torch.testing.assert_close`` allows for the dtype if that is more.
        label: What distinguishes the case from others of the op.
        dtypes: The dtypes to try, of all tensors that name none.
        dimensions: Further dynamic dimensions: name, and the minimum, usual and maximum size.
        rejected: A regular expression: the op must stay in PyTorch with such a reason, and the
            model must give PyTorch's values all the same.
        **kwargs: The keyword arguments.

    Raises:
        UnknownTargetError: There is no such op. Import the library that registers it first; what is wrong with packs,
            which may register ops too, is in the message.
    """
    ops = (op,) if isinstance(op, str) else tuple(op)
    if function is None:
        function = _called(ops[0])
    sizes = {**DIMENSIONS, **(dimensions or {})}

    def specs(values: Any) -> Any:
        return pytree.tree_map(
            lambda leaf: (
                TensorSpec(leaf) if isinstance(leaf, str) and is_shape(leaf, sizes) else leaf
            ),
            values,
            is_leaf=_is_spec,
        )

    label = "-".join((*ops[:1], *filter(None, (label,))))
    return OpCase(
        ops, function, specs(args), specs(kwargs), tolerance, label, tuple(dtypes), sizes, rejected
    )


def decomposition_case(
    op: str | Sequence[str],
    *args: Any,
    function: Callable[..., Any] | None = None,
    label: str = "",
    **kwargs: Any,
) -> OpCase:
    """Returns a case of an op that is decomposed; the arguments are those of ``op_case``.

    Args:
        op: The op that is called, or, with ``function``, the ops that it calls, which must not be in engines.
        *args: The arguments.
        function: What is computed, if it is not the op itself.
        label: What distinguishes the case from others of the op.
        **kwargs: The keyword arguments, and the options of ``op_case``.
    """
    ops = (op,) if isinstance(op, str) else tuple(op)
    label = "-".join((*ops[:1], *filter(None, (label,))))
    case = op_case((), *args, function=function or _called(ops[0]), label=label, **kwargs)
    return dataclasses.replace(case, decomposed=ops)


def _called(op: str) -> Any:
    load_packs()  # which may define it
    try:
        return parse_target(op)
    except UnknownTargetError as error:
        message = "\n".join(map(str, (error, *problems())))
        raise UnknownTargetError(message) from None


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec)
