"""Published architectures at their published sizes, in float16, with random weights: what ``gpu.py`` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 30_000
"""Token ids are drawn below this; every model here has more."""


@dataclass(frozen=True)
class Model:
    """A model and the inputs to measure it with.

    Attributes:
        name: The row's name.
        make: Returns the module.
        inputs: Returns the inputs of a batch, on the CPU.
        batches: The batches to measure.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    batches: tuple[int, ...] = (1, 32)


class _Logits(nn.Module):
    """A model of transformers that returns a tensor: the first of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, return_dict=False)[0]  # type: ignore[no-any-return]


class _Gpt2Step(nn.Module):
    """GPT-2's step from one token to the next, with the keys and values of those before as an input.

    ``cache`` has the keys and the values of each layer in turn, ``(batch, heads, length, width)``. Returned are the
    logits ``(batch, vocabulary)``, and the new token's keys and values likewise.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.transformer, self.head = model.transformer, model.lm_head
        self.heads = model.config.n_head

    def forward(self, ids: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        """Returns the logits of the next token, and the keys and values of this one for each layer."""
        batch, length = ids.shape[0], cache[0].shape[2]
        hidden = self.transformer.wte(ids) + self.transformer.wpe.weight[length]
        new = []
        for layer, block in enumerate(self.transformer.h):
            projected = block.attn.c_attn(block.ln_1(hidden))
            query, key, value = (
                part.view(batch, 1, self.heads, -1).transpose(1, 2)
                for part in projected.chunk(3, -1)
            )
            keys = torch.cat((cache[2 * layer], key), 2)
            values = torch.cat((cache[2 * layer + 1], value), 2)
            seen = F.scaled_dot_product_attention(query, keys, values)
            hidden = hidden + block.attn.c_proj(seen.transpose(1, 2).reshape(batch, 1, -1))
            hidden = hidden + block.mlp(block.ln_2(hidden))
            new += [key, value]
        return self.head(self.transformer.ln_f(hidden))[:, 0], *new


class _UnetBlock(nn.Module):
    """A block of a latent diffusion model's U-Net: residual convolutions, then self- and cross-attention.

    The sizes are those of Stable Diffusion's outermost level: 320 channels over 64 x 64 places, 77 words.
    """

    def __init__(self, channels: int = 320, heads: int = 8, words: int = 768) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convolutions = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)
        )
        self.time = nn.Linear(1280, channels)
        self.layer_norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(3))
        self.queries = nn.ModuleList(nn.Linear(channels, channels, bias=False) for _ in range(2))
        self.keys = nn.ModuleList(
            nn.Linear(width, 2 * channels, bias=False) for width in (channels, words)
        )
        self.outputs = nn.ModuleList(nn.Linear(channels, channels) for _ in range(2))
        self.gate, self.down = nn.Linear(channels, 8 * channels), nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, time: Tensor, words: Tensor) -> Tensor:
        """Returns images ``(batch, channels, height, width)`` after one block, for embedded time steps and words."""
        hidden = self.convolutions[0](F.silu(self.norms[0](x)))
        hidden = hidden + self.time(F.silu(time))[:, :, None, None]
        x = x + self.convolutions[1](F.silu(self.norms[1](hidden)))
        batch, channels, height, width = x.shape
        tokens = self.norms[2](x).flatten(2).transpose(1, 2)
        for index, source in enumerate((None, words)):
            normed = self.layer_norms[index](tokens)
            source = normed if source is None else source
            key, value = self.keys[index](source).chunk(2, -1)
            query, key, value = (
                part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for part in (self.queries[index](normed), key, value)
            )
            seen = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
            tokens = tokens + self.outputs[index](seen)
        gate, up = self.gate(self.layer_norms[2](tokens)).chunk(2, -1)
        tokens = tokens + self.down(up * F.gelu(gate))
        return x + tokens.transpose(1, 2).reshape(batch, channels, height, width)


class _WhisperStep(nn.Module):
    """A step of Whisper's decoder, with the keys and values of the text and of the recording as inputs.

    ``caches`` has for each layer the keys and the values of the text, ``(batch, heads, length, width)``, and those of
    the recording, with the encoder's 1,500 places. Returned are the logits ``(batch, vocabulary)``, and the new token's
    keys and values.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.model.decoder, model.proj_out
        self.heads = model.config.decoder_attention_heads

    def forward(self, ids: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Returns the logits of the next token, and its keys and values; those of the recording do not change."""
        position = caches[0].shape[2]
        hidden = self.decoder.embed_tokens(ids) + self.decoder.embed_positions.weight[position]
        new = []
        for layer, block in enumerate(self.decoder.layers):
            normed = block.self_attn_layer_norm(hidden)
            key, value = (
                self._split(project(normed))
                for project in (block.self_attn.k_proj, block.self_attn.v_proj)
            )
            keys, values, *recording = caches[4 * layer : 4 * layer + 4]
            keys = torch.cat((keys, key), 2)
            values = torch.cat((values, value), 2)
            hidden = hidden + self._attend(block.self_attn, normed, keys, values)
            normed = block.encoder_attn_layer_norm(hidden)
            hidden = hidden + self._attend(block.encoder_attn, normed, *recording)
            normed = block.final_layer_norm(hidden)
            hidden = hidden + block.fc2(F.gelu(block.fc1(normed)))
            new += [key, value]
        return self.head(self.decoder.layer_norm(hidden))[:, 0], *new

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def _attend(self, attention: Any, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        seen = F.scaled_dot_product_attention(self._split(attention.q_proj(x)), keys, values)
        return attention.out_proj(seen.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _DiffusionStep(nn.Module):
    """A step of Stable Diffusion XL: its U-Net with the arguments that the pipeline passes, as tensors."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(
        self, latents: Tensor, time: Tensor, words: Tensor, text: Tensor, sizes: Tensor
    ) -> Tensor:
        added = {"text_embeds": text, "time_ids": sizes}
        return self.unet(latents, time, words, added_cond_kwargs=added, return_dict=False)[0]  # type: ignore[no-any-return]


class _Decode(nn.Module):
    """The decoder of an autoencoder: latents to an image."""

    def __init__(self, autoencoder: Any) -> None:
        super().__init__()
        self.autoencoder = autoencoder

    def forward(self, latents: Tensor) -> Tensor:
        return self.autoencoder.decode(latents, return_dict=False)[0]  # type: ignore[no-any-return]


def _convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
    )


class _SplitStage(nn.Module):
    """A stage that divides the channels, and joins the results of its blocks (C2f of YOLOv8)."""

    def __init__(self, inputs: int, outputs: int, blocks: int, shortcut: bool) -> None:
        super().__init__()
        width = outputs // 2
        self.shortcut = shortcut
        self.enter = _convolution(inputs, outputs, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(_convolution(width, width), _convolution(width, width))
            for _ in range(blocks)
        )
        self.leave = _convolution((2 + blocks) * width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            result = block(parts[-1])
            parts.append(parts[-1] + result if self.shortcut else result)
        return self.leave(torch.cat(parts, 1))  # type: ignore[no-any-return]


class _Detector(nn.Module):
    """A one-stage detector of the size of YOLOv8-s, from images to boxes and scores, without their selection.

    Returned are corners in pixels, ``(batch, places, 4)``, and scores, ``(batch, places, classes)``. Each side of a
    box is the mean of a distribution over sixteen distances, as that model has it.
    """

    def __init__(self, classes: int = 80, bins: int = 16) -> None:
        super().__init__()
        widths = (32, 64, 128, 256, 512)
        self.bins = bins
        self.stem = _convolution(3, widths[0], 3, 2)
        self.stages = nn.ModuleList(
            nn.Sequential(
                _convolution(before, after, 3, 2), _SplitStage(after, after, blocks, True)
            )
            for before, after, blocks in zip(widths, widths[1:], (1, 2, 2, 1), strict=False)
        )
        self.pool_enter, self.pool_leave = (
            _convolution(512, 256, 1),
            _convolution(1024, 512, 1),
        )
        self.up = nn.ModuleList((_SplitStage(768, 256, 1, False), _SplitStage(384, 128, 1, False)))
        self.down = nn.ModuleList((_convolution(128, 128, 3, 2), _convolution(256, 256, 3, 2)))
        self.join = nn.ModuleList(
            (_SplitStage(384, 256, 1, False), _SplitStage(768, 512, 1, False))
        )
        self.boxes, self.scores = (
            nn.ModuleList(
                nn.Sequential(
                    _convolution(width, 128), _convolution(128, 128), nn.Conv2d(128, count, 1)
                )
                for width in widths[2:]
            )
            for count in (4 * bins, classes)
        )

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns boxes ``(batch, places, 4)`` in pixels, and a score for each place and class."""
        x = self.stem(images)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        small, middle, large = levels[1:]
        pools = [self.pool_enter(large)]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        large = self.pool_leave(torch.cat(pools, 1))
        middle = self.up[0](torch.cat((F.interpolate(large, scale_factor=2.0), middle), 1))
        small = self.up[1](torch.cat((F.interpolate(middle, scale_factor=2.0), small), 1))
        middle = self.join[0](torch.cat((self.down[0](small), middle), 1))
        large = self.join[1](torch.cat((self.down[1](middle), large), 1))
        outputs = [
            self._decoded(level, *heads, stride)
            for level, *heads, stride in zip(
                (small, middle, large), self.boxes, self.scores, (8, 16, 32), strict=True
            )
        ]
        boxes, scores = (torch.cat(parts, 1) for parts in zip(*outputs, strict=True))
        return boxes, scores

    def _decoded(
        self, level: Tensor, boxes: nn.Module, scores: nn.Module, stride: int
    ) -> tuple[Tensor, Tensor]:
        """Returns the corners and scores of one level, whose places are ``stride`` pixels apart."""
        height, width = level.shape[-2:]
        sides = boxes(level).flatten(2).transpose(1, 2).unflatten(-1, (4, self.bins)).softmax(-1)
        sides = sides @ torch.arange(self.bins, device=level.device, dtype=level.dtype)
        rows, columns = (
            torch.arange(size, device=level.device, dtype=level.dtype) + 0.5
            for size in (height, width)
        )
        centers = torch.stack(
            (columns.repeat(height), rows.repeat_interleave(width, output_size=height * width)), -1
        )
        corners = torch.cat((centers - sides[..., :2], centers + sides[..., 2:]), -1) * stride
        return corners, scores(level).flatten(2).transpose(1, 2).sigmoid()


class _TwoStageDetector(nn.Module):
    """What Faster R-CNN computes around its selections: the pyramid, proposals' heads, and the heads of 1,000 boxes.

    ``boxes`` is what is cut from the pyramid for each proposal, ``(1000, 256, 7, 7)``. Selecting the proposals and
    the results depends on the data, and stays in PyTorch (`docs/models.md`).
    """

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        model = torchvision.models.detection.fasterrcnn_resnet50_fpn(
            weights=None, weights_backbone=None
        )
        self.backbone, self.proposals = model.backbone, model.rpn.head
        self.box_head, self.predictor = model.roi_heads.box_head, model.roi_heads.box_predictor

    def forward(self, images: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
        levels = list(self.backbone(images).values())
        scores, shifts = self.proposals(levels)
        return *scores, *shifts, *self.predictor(self.box_head(boxes))


def _vision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)(weights=None)  # type: ignore[no-any-return]

    return make


def _text(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, model)(getattr(transformers, config)(**settings))  # type: ignore[no-any-return]

    return make


def _whisper() -> nn.Module:
    import transformers

    model = transformers.WhisperModel(transformers.WhisperConfig())  # tiny
    return model.get_encoder()  # type: ignore[no-any-return]


def _whisper_base() -> Any:
    """Returns Whisper of its base size, with random weights."""
    import transformers

    config = transformers.WhisperConfig(
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
    )
    return transformers.WhisperForConditionalGeneration(config)


def _diffusion_step() -> nn.Module:
    """The U-Net of Stable Diffusion XL 1.0, as its configuration on the hub has it."""
    import diffusers

    return _DiffusionStep(
        diffusers.UNet2DConditionModel(
            sample_size=128,
            block_out_channels=(320, 640, 1280),
            layers_per_block=2,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=(5, 10, 20),
            transformer_layers_per_block=(1, 2, 10),
            cross_attention_dim=2048,
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        )
    )


def _decode() -> nn.Module:
    """The autoencoder of Stable Diffusion XL 1.0, likewise."""
    import diffusers

    return _Decode(
        diffusers.AutoencoderKL(
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            latent_channels=4,
            sample_size=1024,
        )
    )


def _image(batch: int) -> tuple[Tensor, ...]:
    return (torch.rand(batch, 3, 224, 224),)


def _tokens(batch: int) -> tuple[Tensor, ...]:
    return (torch.randint(VOCABULARY, (batch, 128)),)


MODELS = {
    model.name: model
    for model in (
        Model("ResNet-50", _vision("resnet50"), _image),
        Model("ViT-B/16", _vision("vit_b_16"), _image),
        Model("Swin-T", _vision("swin_t"), _image),
        Model("ConvNeXt-T", _vision("convnext_tiny"), _image),
        Model(
            "BERT-base 128 tokens",
            lambda: _Logits(_text("BertModel", "BertConfig", vocab_size=30_522)()),
            _tokens,
        ),
        Model(
            "GPT-2 128 tokens",
            lambda: _Logits(_text("GPT2LMHeadModel", "GPT2Config", use_cache=False)()),
            _tokens,
        ),
        Model(
            "GPT-2 step, 512 in cache",
            lambda: _Gpt2Step(_text("GPT2LMHeadModel", "GPT2Config")()),
            lambda batch: (
                torch.randint(VOCABULARY, (batch, 1)),
                *(torch.randn(batch, 12, 512, 64) for _ in range(24)),
            ),
        ),
        Model(
            "Whisper-tiny encoder",
            lambda: _Logits(_whisper()),
            lambda batch: (torch.randn(batch, 80, 3000),),
        ),
        Model(
            "U-Net block",
            _UnetBlock,
            lambda batch: (
                torch.randn(batch, 320, 64, 64),
                torch.randn(batch, 1280),
                torch.randn(batch, 77, 768),
            ),
            (2, 16),
        ),
        Model(
            "Whisper-base encoder",
            lambda: _Logits(_whisper_base().get_encoder()),
            lambda batch: (torch.randn(batch, 80, 3000),),
            (1, 8),
        ),
        Model(
            "Whisper-base step, 224 in cache",
            lambda: _WhisperStep(_whisper_base()),
            lambda batch: (
                torch.randint(VOCABULARY, (batch, 1)),
                *(
                    torch.randn(batch, 8, positions, 64)
                    for _ in range(6)
                    for positions in (224, 224, 1500, 1500)
                ),
            ),
            (1, 8),
        ),
        Model(
            "YOLOv8-s size, 640 x 640",
            _Detector,
            lambda batch: (torch.rand(batch, 3, 640, 640),),
            (1, 8),
        ),
        Model(
            "Faster R-CNN ResNet-50, 800 x 1216",
            _TwoStageDetector,
            lambda batch: (torch.rand(batch, 3, 800, 1216), torch.randn(1000 * batch, 256, 7, 7)),
            (1,),
        ),
        Model(
            "SDXL VAE decode, 1024 x 1024",
            _decode,
            lambda batch: (torch.randn(batch, 4, 128, 128),),
            (1,),
        ),
        Model(
            "SDXL U-Net step, 1024 x 1024",
            _diffusion_step,
            lambda batch: (
                torch.randn(batch, 4, 128, 128),
                torch.tensor([500]),
                torch.randn(batch, 77, 2048),
                torch.randn(batch, 1280),
                torch.tensor([[1024.0, 1024, 0, 0, 1024, 1024]]).repeat(batch, 1),
            ),
            (2,),
        ),
    )
}
