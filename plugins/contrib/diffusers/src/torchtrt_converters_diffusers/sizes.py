"""Sizes that a pipeline's call takes, and the sizes of tensors that follow from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

from torchtrt.errors import InputError


class Range(NamedTuple):
    """The least, the usual and the greatest size."""

    least: int
    usual: int
    most: int

    def times(self, factor: int, offset: int = 0) -> Range:
        """Returns the range of a size that is ``factor`` times this one, and ``offset`` more."""
        return Range(*(size * factor + offset for size in self))

    def over(self, divisor: int) -> Range:
        """Returns the range of a size that is this one divided by a number, rounded down."""
        return Range(*(size // divisor for size in self))

    def product(self, other: Range) -> Range:
        """Returns the range of the product of two sizes."""
        return Range(*(one * two for one, two in zip(self, other, strict=True)))

    def from_one(self) -> Range:
        """Returns the range from 1 on."""
        return Range(1, self.usual, self.most)


def as_range(value: Any, argument: str) -> Range:
    """Returns the range that a user gave: a number, ``(least, most)`` or ``(least, usual, most)``.

    Raises:
        InputError: It is no such size.
    """
    bounds: Any = (value,) * 3 if isinstance(value, Integral) else value
    is_sequence = isinstance(bounds, tuple | list)
    if is_sequence and len(bounds) == 2:
        bounds = (bounds[0], bounds[1], bounds[1])
    is_range = (
        is_sequence
        and len(bounds) == 3
        and all(isinstance(size, Integral) and not isinstance(size, bool) for size in bounds)
        and 1 <= bounds[0] <= bounds[1] <= bounds[2]
    )
    if not is_range:
        raise InputError(
            f"{argument}={value!r} is no range. Give a number, (least, most) or (least, usual, most), from 1 on."
        )
    return Range(*map(int, bounds))


_IMAGES = "prompts × images per prompt"


@dataclass(frozen=True)
class Axis:
    """A dimension of a tensor that follows from an argument of the pipeline's call.

    Attributes:
        sizes: The sizes of the dimension.
        argument: The argument of the pipeline's call.
        setting: The argument of ``compile_pipeline`` that gives the range.
        factor: The argument for each element of the dimension.
        offset: What the argument is besides.
        step: What the sizes are multiples of.
        note: The meaning of the argument, where its name does not give it.
    """

    sizes: Range
    argument: str
    setting: str
    factor: int = 1
    offset: int = 0
    step: int = 1
    note: str = ""

    def halved(self, times: int) -> Axis:
        """Returns the axis of a tensor with half the size, or a quarter, and so on."""
        return dataclasses.replace(
            self, sizes=self.sizes.over(2**times), factor=self.factor * 2**times
        )

    def text(self, size: int) -> str:
        """Returns the argument that a size of the dimension stands for."""
        note = f" ({self.note})" if self.note else ""
        return f"{self.argument}={size * self.factor + self.offset}{note}"

    def bounds(self) -> str:
        """Returns the argument's range."""
        least, _, most = self.sizes.times(self.factor, self.offset)
        return f"{least}" if least == most else f"{least} to {most}"

    def check(self, component: str) -> None:
        """Checks that the range has sizes of the steps only.

        Raises:
            InputError: It does not.
        """
        if any(size % self.step or size < 1 for size in self.sizes):
            raise InputError(
                f"{self.setting} gives {self.bounds()}, but {component!r} takes multiples of "
                f"{self.step * self.factor} only. Give such a range."
            )

    def problem(self, size: int) -> str | None:
        """Returns the reason why engines do not take a size; None if they do."""
        if not self.sizes.least <= size <= self.sizes.most:
            return f"{self.text(size)} is outside of {self.bounds()}"
        if size % self.step:
            return f"{self.text(size)} is no multiple of {self.step * self.factor}"
        return None


Axes = dict[int, Axis]
"""The dimensions of a tensor that vary."""
AxesOfArguments = dict[str, Any]
"""For parameters of ``forward``, the dynamic dimensions, or a dictionary or a list of these."""


@dataclass(frozen=True)
class PipelineSizes:
    """The sizes that a pipeline is compiled for.

    Attributes:
        height: Of images, in pixels.
        width: Of images, in pixels.
        batch: The images of a call: prompts, times the images for each.
        frames: Of videos; None for images.
        text: The tokens of the longest text; None if the pipeline's configuration does not give it.
        text_argument: The argument of the pipeline's call that gives the number of tokens.
        first_tokens: The tokens of CLIP, where a denoiser reads them before those of T5.
        guided: Whether a call may compute with and without the prompt at once.
        scale: The pixels for each latent, in height and in width.
        frame_scale: The frames for each latent frame.
    """

    height: Range
    width: Range
    batch: Range
    frames: Range | None
    text: Range | None
    text_argument: str
    first_tokens: int
    guided: bool
    scale: int
    frame_scale: int

    def latent_images(self) -> Axis:
        """Returns the images that an autoencoder takes at once. With slicing, it is one."""
        return Axis(self.batch.from_one(), "batch", "batch_sizes", note=_IMAGES)

    def pixels(self) -> tuple[Axis, Axis]:
        """Returns height and width of images."""
        return Axis(self.height, "height", "heights"), Axis(self.width, "width", "widths")

    def latent_height(self, step: int = 1) -> Axis:
        """Returns the height of latents."""
        return Axis(self.height.over(self.scale), "height", "heights", self.scale, step=step)

    def latent_width(self, step: int = 1) -> Axis:
        """Returns the width of latents."""
        return Axis(self.width.over(self.scale), "width", "widths", self.scale, step=step)

    def latent_frames(self, step: int = 1) -> Axis:
        """Returns the frames of latents."""
        frames = self.frames or Range(1, 1, 1)
        latents = frames.times(1, -1).over(self.frame_scale).times(1, 1)
        offset = 1 - self.frame_scale
        return Axis(latents, "num_frames", "num_frames", self.frame_scale, offset, step)

    def images(self) -> Axis:
        """Returns the images of a call."""
        return Axis(self.batch, "batch", "batch_sizes", note=_IMAGES)

    def prompts(self) -> Axis:
        """Returns the prompts of a call: several images may have one."""
        return Axis(self.batch.from_one(), "batch", "batch_sizes", note="prompts")

    def guided_images(self) -> Axis:
        """Returns the rows of a denoiser that computes with and without the prompt in one call."""
        note = f"{_IMAGES}, doubled by guidance"
        if not self.guided:
            return Axis(self.batch, "batch", "batch_sizes or guidance=True", note=note)
        least, usual, most = self.batch
        return Axis(Range(least, 2 * usual, 2 * most), "batch", "batch_sizes", note=note)

    def tokens(self, besides: int = 0) -> Axis | None:
        """Returns the tokens of a text, with so many besides the argument's; None if that is unknown."""
        if self.text is None:
            return None
        return Axis(
            self.text.times(1, besides), self.text_argument, "sequence_lengths", offset=-besides
        )

    def texts(self, rows: Axis, besides: int = 0) -> Axes:
        """Returns the dimensions of embeddings of texts, with so many tokens besides the argument's."""
        tokens = self.tokens(besides)
        return {0: rows, 1: tokens} if tokens else {0: rows}

    def patches(self, latents: int) -> Axis:
        """Returns the tokens of an image: squares of so many latents in height and in width."""
        side = latents * self.scale
        return Axis(
            self.height.over(side).product(self.width.over(side)),
            "height × width",
            "heights × widths",
            side**2,
        )

    def flux_tokens(self) -> AxesOfArguments:
        """Returns the sizes of FLUX's transformer and ControlNets: tokens of 2 by 2 latents, and of texts."""
        rows, patches, text = self.images(), self.patches(2), self.tokens()
        return {
            "hidden_states": {0: rows, 1: patches},
            "encoder_hidden_states": self.texts(rows),
            "pooled_projections": {0: rows},
            "timestep": {0: rows},
            "guidance": {0: rows},
            "img_ids": {0: patches},
            "txt_ids": {0: text} if text else {},
        }
