"""Vision towers as programs: those that read images of one size, and those that read packed patches of any size."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

import torchtrt
from torchtrt.errors import InputError
from torchtrt_converters_transformers.step import dynamic_input, sharing_copy

try:
    from transformers import vision_utils
except ImportError:  # of transformers before 5.20
    vision_utils = None  # type: ignore[assignment]

_PACKED = "torchtrt_flash_packed"
"""The name of our attention over packed patches. Towers give the limits of images to one whose name has "flash"."""


class ImageFeatures(torch.nn.Module):
    """The vision tower with what projects its features to embeddings.

    Args:
        model: A model with ``get_image_features``. It is left as it is.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model: Any = sharing_copy(model).base_model
        self.model.language_model = torch.nn.Identity()

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Returns embeddings, ``(1, tokens, width)``, of an image ``(1, channels, height, width)``."""
        features = self.model.get_image_features(pixel_values, return_dict=True).pooler_output
        return features if isinstance(features, Tensor) else torch.stack(list(features))


@dataclasses.dataclass(frozen=True)
class PatchIndices:
    """The indices that a tower derives from the grids of images in Python, computed before its program runs.

    Attributes:
        merge: How many rows, and columns, of patches become one token.
        window: The sizes of a window and of a patch in pixels; None for towers without windows.
        side: The rows of the table of positions that is resampled to a grid; None for towers without one.
        mode: How it is resampled.
        align_corners: Likewise.
    """

    merge: int
    window: tuple[int, int] | None = None
    side: int | None = None
    mode: str = "bilinear"
    align_corners: bool = False

    @classmethod
    def of(cls, tower: Any) -> PatchIndices:
        """Returns that of a tower."""
        window = getattr(tower, "window_size", None)
        return cls(
            tower.spatial_merge_size,
            None if window is None else (window, tower.patch_size),
            getattr(tower, "num_grid_per_side", None),
            getattr(tower, "interpolation_mode", "bilinear"),
            getattr(tower, "interpolation_align_corners", False),
        )

    def names(self) -> list[str]:
        """Returns the names under which a tower takes them."""
        windows = [] if self.window is None else ["window_index", "cu_window_seqlens"]
        table = [] if self.side is None else ["interp_indices", "interp_weights"]
        return ["position_ids", "cu_seqlens", *windows, *table]

    def tensors(self, grid: Tensor) -> dict[str, Tensor]:
        """Returns them for one image or video, ``(1, 3)``, in the tokens that its patches become.

        The limits of images and windows are the number of its image, or window, for each patch. Each has the shape
        ``(tokens, merge ** 2, ...)``, but ``window_index``, which has ``(tokens,)``.
        """
        tensors = {
            "position_ids": vision_utils.get_vision_position_ids(grid, self.merge),
            "cu_seqlens": _numbers(vision_utils.get_vision_cu_seqlens(grid)),
        }
        if self.window is not None:
            index, limits = vision_utils.get_vision_window_index(grid, self.merge, *self.window)
            tensors |= {"cu_window_seqlens": _numbers(limits), "window_index": index}
        if self.side is not None:
            indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
                grid,
                self.side,
                mode=self.mode,
                align_corners=self.align_corners,
                spatial_merge_size=self.merge,
            )
            tensors |= {"interp_indices": indices, "interp_weights": weights}
        packed = {
            name: tensor if name == "window_index" else tensor.unflatten(0, (-1, self.merge**2))
            for name, tensor in tensors.items()
        }
        return {name: packed[name].to(grid.device) for name in self.names()}


def _numbers(limits: Tensor) -> Tensor:
    """Returns for each place the number of the part that it is in, from the limits of parts."""
    lengths = limits.diff()
    return torch.arange(len(lengths), device=limits.device).repeat_interleave(lengths)


class PackedPatches(torch.nn.Module):
    """A vision tower that reads the patches of one image of any size.

    Args:
        model: A model whose tower takes ``grid_thw``. It is left as it is.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.tower: Any = sharing_copy(tower_of(model))
        self.indices = PatchIndices.of(self.tower)
        for part in self.tower.modules():
            config: Any = getattr(part, "config", None)
            if config is not None:
                config._attn_implementation = _PACKED

    def forward(self, patches: Tensor, indices: Mapping[str, Tensor]) -> list[Tensor]:
        """Returns embeddings, ``(tokens, width)``, and behind them what layers of the language model add.

        Args:
            patches: ``(tokens, merge ** 2, elements)``.
            indices: What ``PatchIndices.tensors`` returns.
        """
        flat_indices = {
            name: index if name == "window_index" else index.flatten(0, 1)
            for name, index in indices.items()
        }
        output = self.tower(
            patches.flatten(0, 1),
            grid_thw=None,
            max_seqlen=1,  # of no consequence, and not asked for in the values of a tensor
            max_window_seqlen=1,
            return_dict=True,
            **flat_indices,
        )
        return [output.pooler_output, *(getattr(output, "deepstack_features", None) or ())]

    def inputs(self, patch: int, dtype: torch.dtype, most: int) -> list[Any]:
        """Returns the ranges of an image of up to so many tokens, whose patches have so many elements."""
        tokens = (1, max(1, most // 4), most)
        device = next(self.tower.parameters()).device
        side = self.indices.merge
        example = self.indices.tensors(torch.tensor([[1, side, side]], device=device))
        return [
            dynamic_input((tokens, side**2, patch), dtype),
            {
                name: dynamic_input((tokens, *tensor.shape[1:]), tensor.dtype)
                for name, tensor in example.items()
            },
        ]


class CompiledTower(torch.nn.Module):
    """An engine in the place of a vision tower that takes ``grid_thw``.

    Args:
        engine: The compiled ``PackedPatches``.
        indices: Those of the tower.
        dtype: The model's dtype.
        most: The maximum number of tokens of an image.
    """

    def __init__(
        self, engine: torch.nn.Module, indices: PatchIndices, dtype: torch.dtype, most: int
    ) -> None:
        super().__init__()
        self.engine, self.indices, self.dtype, self.most = engine, indices, dtype, most
        self.spatial_merge_size = indices.merge

    def forward(self, hidden_states: Tensor, grid_thw: Tensor, **_: Any) -> Any:
        """Reads images one by one, as the model's tower reads all of them.

        Raises:
            InputError: An image has more tokens than the engine takes.
        """
        counts = grid_thw.prod(-1).tolist()
        unit = self.indices.merge**2
        check_tokens(max(counts) // unit, self.most)
        parts = [
            self.engine(patches.unflatten(0, (-1, unit)), self.indices.tensors(grid[None]))
            for patches, grid in zip(hidden_states.split(counts), grid_thw, strict=True)
        ]
        embeddings, *features = (torch.cat(outputs) for outputs in zip(*parts, strict=True))
        if not features:
            return BaseModelOutputWithPooling(pooler_output=embeddings)
        return _WithFeatures(pooler_output=embeddings, deepstack_features=features)


def check_tokens(count: int, most: int) -> None:
    """Raises an ``InputError`` if an image has more tokens than an engine takes."""
    if count > most:
        raise InputError(
            f"An image has {count} tokens, but the model was compiled for max_image_tokens={most}. Make it smaller, or "
            "compile the model again for more."
        )


@dataclasses.dataclass
class _WithFeatures(BaseModelOutputWithPooling):
    """The output of a tower whose features layers of the language model add."""

    deepstack_features: Any = None


def _attend_packed(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention of patches to those of their image, or window, whose numbers ``cu_seq_lens_q`` has."""
    mask = (cu_seq_lens_q[:, None] == cu_seq_lens_q[None, :])[None, None]
    result = F.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    return result.transpose(1, 2).contiguous(), None


AttentionInterface.register(_PACKED, _attend_packed)


def tower_of(model: Any) -> Any:
    """Returns the vision tower of a model that takes the grids of images."""
    return getattr(model.base_model, "visual", None)


def takes_grids(model: Any) -> bool:
    """Returns whether a model takes images of any size, with their grids."""
    return "image_grid_thw" in inspect.signature(model.forward).parameters


FEATURE_SETTINGS = ("vision_feature_layer", "vision_feature_select_strategy")
"""Options of ``get_image_features`` that the configuration sets, and that an engine has compiled in."""


def image_input(model: Any) -> torchtrt.Input | None:
    """Returns one image as the vision tower takes it; None where it takes more than images of one size."""
    vision = getattr(model.config, "vision_config", None)
    size, channels = getattr(vision, "image_size", None), getattr(vision, "num_channels", 3)
    sides = [size, size] if isinstance(size, int) else size
    if not isinstance(sides, list | tuple) or len(sides) != 2 or takes_grids(model):
        return None
    parameters = inspect.signature(model.base_model.get_image_features).parameters.values()
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if required != ["pixel_values"]:
        return None
    return dynamic_input((1, channels, *sides), model.dtype)


def packed_tower(model: Any) -> tuple[PackedPatches | None, str]:
    """Returns a model's tower as a program of packed patches, or None and the reason why it stays in PyTorch.

    The program and the tower read two images, the second with sides that windows do not divide, and are compared.
    """
    tower = tower_of(model)
    if vision_utils is None or tower is None:
        return None, "its tower does not take what transformers.vision_utils computes of grids"
    try:
        packed = PackedPatches(model).eval()
        side = packed.indices.merge
        device = next(tower.parameters()).device
        for rows, columns in ((2, 2), (3, 5)):
            grid = torch.tensor([[1, rows * side, columns * side]], device=device)
            patches = _example_patches(tower, int(grid.prod())).to(device, model.dtype)
            with torch.no_grad():
                wanted = sharing_copy(tower)(patches, grid_thw=grid, return_dict=True)
                outputs = packed(patches.unflatten(0, (-1, side**2)), packed.indices.tensors(grid))
            further = getattr(wanted, "deepstack_features", None) or ()
            if not agree(outputs, [wanted.pooler_output, *further]):
                return None, "its tower computes something else from precomputed indices"
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        return None, f"its tower does not run with precomputed indices ({error})"
    return packed, ""


def _example_patches(tower: Any, count: int) -> Tensor:
    """Returns random patches, ``(count, elements)``."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn((count, patch_elements(tower)), generator=generator)


def patch_elements(tower: Any) -> int:
    """Returns the elements of a patch: channels, frames, rows and columns."""
    weight: Tensor = tower.patch_embed.proj.weight
    return weight[0].numel()


def agree(outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Returns whether the outputs of two towers are equal up to rounding."""
    limit = 1e-3 if wanted[0].dtype == torch.float32 else 5e-2
    return len(outputs) == len(wanted) and all(
        bool((ours - theirs).abs().max() <= limit * theirs.abs().max())
        for ours, theirs in zip(outputs, wanted, strict=True)
    )
