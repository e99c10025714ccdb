"""The decorator with which a pack registers converters that check dtypes, ranks and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from torchtrt.packs import ConverterPack
from torchtrt.tensorrt import Capability
from torchtrt_blocks.checks import (
    COMPUTE_DTYPES,
    Check,
    constants_within_32_bits,
    numbers_within_32_bits,
    sizes_known_before_data,
    tensor_limits,
)

Converter = TypeVar("Converter", bound=Callable[..., Any])


def converts_for(pack: ConverterPack) -> Callable[..., Callable[[Converter], Converter]]:
    """Returns the function ``converts``, which registers converters in a pack.

    Args:
        pack: The pack.

    Example:
        >>> converts = converts_for(pack)
        >>> @converts(aten.softmax.int)
        ... def softmax(ctx, self, dim, **_): ...
    """

    def converts(
        *targets: Any,
        reject_if: Check | Sequence[Check] = (),
        dtypes: frozenset[torch.dtype] = COMPUTE_DTYPES,
        supports_empty: bool = False,
        scalars_are_data: bool = False,
        reads_runtime_shape: bool = True,
        requires: Capability | Sequence[Capability] = (),
    ) -> Callable[[Converter], Converter]:
        """Returns a decorator that registers a converter for each of the targets.

        The converter supports dynamic shapes. The tensors that a node reads and makes must have
        one of ``dtypes`` and a rank that TensorRT supports.

        Args:
            *targets: The ops, or tables of ops with a value for each.
            reject_if: One check or several: each returns a reason to reject a node, or ``None``.
            dtypes: The dtypes that the converter supports.
            supports_empty: Whether the converter supports tensors without elements. TensorRT refuses many
                layers over them.
            scalars_are_data: Whether numbers among the arguments become elements, rather than sizes or positions.
            reads_runtime_shape: Whether the converter may read sizes at run time. TensorRT 8.6
                does not return sizes that depend on data.
            requires: The capabilities of TensorRT that the converter needs, one or several.
        """
        return pack.converter(
            *targets,
            reject_if=(
                tensor_limits(dtypes, supports_empty),
                constants_within_32_bits,
                *((numbers_within_32_bits,) if scalars_are_data else ()),
                *((sizes_known_before_data,) if reads_runtime_shape else ()),
                *((reject_if,) if callable(reject_if) else reject_if),
            ),
            supports_dynamic_shapes=True,
            requires=requires,
        )

    return converts
