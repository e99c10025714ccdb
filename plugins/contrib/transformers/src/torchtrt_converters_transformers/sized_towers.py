"""Vision towers that take images with their sizes, as that of Mistral 3: the patches of one image as a program."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel

from torchtrt.errors import InputError
from torchtrt_converters_transformers.image_towers import agree, check_tokens
from torchtrt_converters_transformers.step import dynamic_input, sharing_copy


@dataclasses.dataclass(frozen=True)
class ImagePatches:
    """The patches of images, in groups that become one token.

    Attributes:
        patch: The rows, and columns, of pixels of a patch.
        merge: The rows, and columns, of patches of a token.
        most: The maximum number of tokens of an image.
    """

    patch: int
    merge: int
    most: int

    @classmethod
    def of(cls, config: Any, most: int) -> ImagePatches:
        """Returns those of a model's configuration."""
        return cls(config.vision_config.patch_size, config.spatial_merge_size, most)

    def inputs(self, image: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the patches of an image and their places, as the program takes them.

        Args:
            image: ``(channels, rows, columns)``, perhaps with padding behind the image.
            size: The rows and columns of pixels of the image.

        Returns:
            ``(tokens, merge ** 2, channels * patch ** 2)``, and integers ``(tokens, merge ** 2, 2)``: row and column.

        Raises:
            InputError: The tower would drop patches at the edges, or the image has too many tokens.
        """
        side = self.patch * self.merge
        rows, columns = (int(length) for length in size)
        if rows % side or columns % side:
            raise InputError(
                f"The sides of an image, {rows} x {columns} pixels, are no multiples of {side}. The model's image "
                "processor resizes images to such sides."
            )
        grid = rows // side, columns // side
        check_tokens(grid[0] * grid[1], self.most)
        pixels = image[:, :rows, :columns]
        split = (-1, grid[0], self.merge, self.patch, grid[1], self.merge, self.patch)
        patches = pixels.reshape(split).permute(1, 4, 2, 5, 0, 3, 6)
        coordinates = torch.stack(
            torch.meshgrid(
                torch.arange(grid[0] * self.merge, device=image.device),
                torch.arange(grid[1] * self.merge, device=image.device),
                indexing="ij",
            ),
            -1,
        )
        grouped = coordinates.reshape(grid[0], self.merge, grid[1], self.merge, 2).transpose(1, 2)
        return patches.flatten(4).flatten(0, 1).flatten(1, 2), grouped.flatten(0, 1).flatten(1, 2)


class SizedPatches(torch.nn.Module):
    """A vision tower, and what projects its features to embeddings, for the patches of one image of any size.

    Args:
        model: A model with the tower and the projector of Mistral 3. It is left as it is.
        most: The maximum number of tokens of an image.
    """

    def __init__(self, model: PreTrainedModel, most: int) -> None:
        super().__init__()
        self.model: Any = sharing_copy(model).base_model
        self.model.language_model = torch.nn.Identity()
        self.patches = ImagePatches.of(model.config, most)
        projector: Any = self.model.multi_modal_projector
        projector.patch_merger = _Merger(projector.patch_merger.merging_layer, self.patches.merge)
        layers = model.config.vision_feature_layer
        self.chosen: list[int] = [layers] if isinstance(layers, int) else list(layers)

    def forward(self, patches: Tensor, coordinates: Tensor) -> Tensor:
        """Returns embeddings, ``(tokens, width)``; the arguments are those of ``ImagePatches.inputs``."""
        tower = self.model.vision_tower
        embedded = F.linear(patches.flatten(0, 1), tower.patch_conv.weight.flatten(1))
        states = [tower.ln_pre(embedded[None])]
        positions = tower.patch_positional_embedding(states[0], coordinates.flatten(0, 1))
        for layer in tower.transformer.layers:
            states.append(layer(states[-1], None, position_embeddings=positions))
        features = torch.cat([states[layer] for layer in self.chosen], -1)
        return self.model.multi_modal_projector(features[0], None)  # type: ignore[no-any-return]

    def inputs(self) -> list[Any]:
        """Returns the ranges of an image of up to so many tokens."""
        tokens = (1, max(1, self.patches.most // 4), self.patches.most)
        weight: Tensor = self.model.vision_tower.patch_conv.weight
        group = self.patches.merge**2
        return [
            dynamic_input((tokens, group, weight[0].numel()), weight.dtype),
            dynamic_input((tokens, group, 2), torch.int64),
        ]


class _Merger(torch.nn.Module):
    """Merges patches that are in groups, in the place of a merger that derives groups from the sizes of images."""

    def __init__(self, layer: torch.nn.Module, merge: int) -> None:
        super().__init__()
        self.merging_layer, self.merge = layer, merge

    def forward(self, features: Tensor, _: Any) -> Tensor:
        """Returns ``(tokens, width)`` of ``(patches, width)``."""
        groups = features.unflatten(0, (-1, self.merge**2))
        return self.merging_layer(groups.transpose(1, 2).flatten(1))  # type: ignore[no-any-return]


def takes_sizes(model: Any) -> bool:
    """Returns whether a model has a tower and a projector like those of Mistral 3."""
    projector = getattr(model.base_model, "multi_modal_projector", None)
    tower = getattr(model.base_model, "vision_tower", None)
    return hasattr(getattr(projector, "patch_merger", None), "merging_layer") and hasattr(
        tower, "patch_positional_embedding"
    )


def sized_tower(model: Any, most: int) -> tuple[SizedPatches | None, str]:
    """Returns a model's tower as a program of patches, or None and the reason why it stays in PyTorch.

    The program and the model read two images of other sides each, and are compared.

    Args:
        model: The model.
        most: The maximum number of tokens of an image.
    """
    try:
        program = SizedPatches(model, most).eval()
        patches = dataclasses.replace(program.patches, most=6)  # of the images here
        side = patches.patch * patches.merge
        weight = model.base_model.vision_tower.patch_conv.weight
        generator = torch.Generator().manual_seed(0)
        shape = 2, weight.shape[1], 2 * side, 3 * side
        images = torch.randn(shape, generator=generator).to(weight.device, weight.dtype)
        sizes = torch.tensor([[2 * side, 3 * side], [side, 2 * side]], device=weight.device)
        with torch.no_grad():
            whole: Any = sharing_copy(model).base_model
            wanted = whole.get_image_features(images, image_sizes=sizes, return_dict=True)
            outputs = [
                program(*patches.inputs(image, size))
                for image, size in zip(images, sizes, strict=True)
            ]
        if not agree(outputs, list(wanted.pooler_output)):
            return None, "its tower computes something else from patches in groups"
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        return None, f"its tower does not run with patches in groups ({error})"
    return program, ""
