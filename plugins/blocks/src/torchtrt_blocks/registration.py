"""A pack whose converters check dtypes, ranks and sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch.fx import Node

from torchtrt.contract import Validator
from torchtrt.errors import PackError
from torchtrt.packs import ConverterPack
from torchtrt_blocks.checks import (
    COMPUTE_DTYPES,
    constants_within_32_bits,
    numbers_within_32_bits,
    sizes_known_before_data,
    tensor_limits,
)

Converter = TypeVar("Converter", bound=Callable[..., Any])


class CheckedPack(ConverterPack):
    """A pack whose converters reject the tensors and the numbers that TensorRT's layers do not take.

    The arguments are those of ``torchtrt.packs.ConverterPack``.

    Example:
        >>> pack = CheckedPack("vision", summary="the softmax of images")
        >>> @pack.converter(aten.softmax.int)
        ... def softmax(ctx, self, dim, **_): ...
    """

    _without_sizes: frozenset[Any] = frozenset()

    def converter(
        self,
        *targets: Any,
        table: Mapping[str, Mapping[Any, Any]] | None = None,
        reject_if: Validator | Sequence[Validator] = (),
        dtypes: Collection[torch.dtype] = COMPUTE_DTYPES,
        supports_empty: bool = False,
        supports_dynamic_shapes: bool = True,
        **options: Any,
    ) -> Callable[[Converter], Converter]:
        """Returns a decorator that registers a function as a converter, and leaves the function as it is.

        Args:
            *targets: The ops.
            table: Further ops, each with a value for a parameter of the function: ``{"kind": {op: value}}``.
            reject_if: One check or several: each returns a reason to reject a node, or ``None``.
            dtypes: The dtypes of the tensors that a node reads and makes.
            supports_empty: Whether the converter supports tensors without elements. TensorRT refuses many
                layers over them.
            supports_dynamic_shapes: Whether the converter supports nodes with symbolic dimensions.
            **options: The other arguments of ``torchtrt.packs.ConverterPack.converter``.

        Raises:
            PackError: ``dtypes`` has something else than dtypes, or as of ``torchtrt.packs.ConverterPack.converter``.
        """
        if not isinstance(dtypes, Collection) or not all(
            isinstance(dtype, torch.dtype) for dtype in dtypes
        ):
            message = f"Pack {self.name!r}: dtypes={dtypes!r} is no set of dtypes; write {{torch.float32}}."
            raise PackError(message)
        return super().converter(
            *targets,
            table=table,
            reject_if=(
                tensor_limits(frozenset(dtypes), supports_empty),
                constants_within_32_bits,
                numbers_within_32_bits,
                self._sizes_known_before_data,
                *(reject_if if isinstance(reject_if, (list, tuple)) else (reject_if,)),
            ),
            supports_dynamic_shapes=supports_dynamic_shapes,
            **options,
        )

    def reads_no_sizes(self, *targets: Any) -> None:
        """Names ops whose converters read no size at run time.

        Only TensorRT 8.6 makes a difference: it returns no size that depends on data, so that the pack rejects nodes
        with such sizes, but for these ops.
        """
        self._without_sizes |= frozenset(targets)

    def _sizes_known_before_data(self, node: Node) -> str | None:
        return None if node.target in self._without_sizes else sizes_known_before_data(node)
