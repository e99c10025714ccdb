"""Pipelines of diffusers as small as they can be, with random weights."""

import functools
import string

import torch
import transformers

from tests.support.later import later

diffusers = later("diffusers")
peft = later("peft")
_pack = later("torchtrt_converters_diffusers")

SIZE = {"height": 16, "width": 16}
LETTERS = string.ascii_lowercase
TOKENS = 8
"""The tokens of CLIP's texts."""


def clip_tokenizer():
    vocabulary = {
        text: number for number, text in enumerate([*LETTERS, *(f"{c}</w>" for c in LETTERS)])
    }
    vocabulary |= {"<|startoftext|>": 52, "<|endoftext|>": 53}
    return transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=TOKENS)


def clip(with_projection=False):
    config = transformers.CLIPTextConfig(
        vocab_size=54,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=TOKENS,
        projection_dim=8,
        bos_token_id=52,
        eos_token_id=53,
        pad_token_id=53,
    )
    name = "CLIPTextModelWithProjection" if with_projection else "CLIPTextModel"
    return getattr(transformers, name)(config).eval()


def t5_tokenizer():
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -1.0), ("▁", -2.0)]
    pieces += [(letter, -3.0) for letter in LETTERS]
    return transformers.T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=TOKENS)


def t5(width=8, name="T5"):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=40, d_model=width, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    return getattr(transformers, f"{name}EncoderModel")(config).eval()


def unet(**options):
    """Attention is in the middle, which has a quarter of the latents."""
    sizes = {
        "sample_size": 8,
        "block_out_channels": (4, 8),
        "layers_per_block": 1,
        "norm_num_groups": 4,
        "cross_attention_dim": 8,
        "attention_head_dim": 4,
        "down_block_types": ("DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D"),
    }
    return diffusers.UNet2DConditionModel(**{**sizes, **options}).eval()


def vae(layers_per_block=1, **options):
    """An autoencoder with a latent for 2 by 2 pixels."""
    return diffusers.AutoencoderKL(
        block_out_channels=(4, 4),
        layers_per_block=layers_per_block,
        norm_num_groups=2,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        shift_factor=0.1,
        sample_size=16,
        **options,
    ).eval()


def stable_diffusion():
    return diffusers.StableDiffusionPipeline(
        vae=vae(),
        text_encoder=clip(),
        tokenizer=clip_tokenizer(),
        unet=unet(),
        scheduler=diffusers.DDIMScheduler(
            num_train_timesteps=10, steps_offset=1, clip_sample=False
        ),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def stable_diffusion_xl():
    denoiser = unet(
        addition_embed_type="text_time",
        addition_time_embed_dim=4,
        projection_class_embeddings_input_dim=8 + 6 * 4,
        cross_attention_dim=16,
    )
    return diffusers.StableDiffusionXLPipeline(
        vae=vae(),
        text_encoder=clip(),
        text_encoder_2=clip(with_projection=True),
        tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(),
        unet=denoiser,
        scheduler=diffusers.EulerDiscreteScheduler(num_train_timesteps=10),
        add_watermarker=False,
    )


STABLE_DIFFUSION_3 = {
    "sample_size": 16,
    "patch_size": 2,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 1,
    "attention_head_dim": 8,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "caption_projection_dim": 16,
    "pooled_projection_dim": 16,
    "pos_embed_max_size": 16,
}
"""The sizes of its denoiser, and of a ControlNet for it."""


def stable_diffusion_3():
    denoiser = diffusers.SD3Transformer2DModel(**STABLE_DIFFUSION_3).eval()
    return diffusers.StableDiffusion3Pipeline(
        transformer=denoiser,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae(),
        text_encoder=clip(with_projection=True),
        tokenizer=clip_tokenizer(),
        text_encoder_2=clip(with_projection=True),
        tokenizer_2=clip_tokenizer(),
        text_encoder_3=t5(width=16),
        tokenizer_3=t5_tokenizer(),
    )


def flux():
    denoiser = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    ).eval()
    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        vae=vae(),
        text_encoder=clip(),
        tokenizer=clip_tokenizer(),
        text_encoder_2=t5(),
        tokenizer_2=t5_tokenizer(),
        transformer=denoiser,
    )


def wan_denoiser():
    return diffusers.WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=4,
        out_channels=4,
        text_dim=8,
        freq_dim=16,
        ffn_dim=16,
        num_layers=1,
        rope_max_seq_len=32,
    ).eval()


def wan():
    denoiser = wan_denoiser()
    autoencoder = diffusers.AutoencoderKLWan(
        base_dim=4,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    ).eval()
    return diffusers.WanPipeline(
        tokenizer=t5_tokenizer(),
        text_encoder=t5(name="UMT5"),
        vae=autoencoder,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        transformer=denoiser,
    )


def lora(folder, seed, rank=2):
    """Saves an adapter for Stable Diffusion, and returns the folder."""
    torch.manual_seed(seed)
    layers = {}
    for part, model, targets in (
        ("unet", unet(), ["to_q", "to_v"]),
        ("text_encoder", clip(), ["q_proj", "v_proj"]),
    ):
        model.add_adapter(peft.LoraConfig(r=rank, target_modules=targets, init_lora_weights=False))
        layers[f"{part}_lora_layers"] = peft.get_peft_model_state_dict(model)
    diffusers.StableDiffusionPipeline.save_lora_weights(folder, **layers)
    return folder


def ip_adapter(denoiser, width=6, tokens=4):
    """Returns the weights of an IP-Adapter that reads embeddings of images of some width."""
    torch.manual_seed(0)
    text, hidden = denoiser.config.cross_attention_dim, denoiser.config.block_out_channels[-1]
    cross = [name for name in denoiser.attn_processors if name.endswith("attn2.processor")]
    layers = {
        f"{2 * number + 1}.to_{kind}_ip.weight": torch.randn(hidden, text) * 0.3
        for number in range(len(cross))
        for kind in "kv"
    }
    projection = {
        "proj.weight": torch.randn(tokens * text, width) * 0.3,
        "proj.bias": torch.zeros(tokens * text),
        "norm.weight": torch.ones(text),
        "norm.bias": torch.zeros(text),
    }
    return {"image_proj": projection, "ip_adapter": layers}


def with_control(build, nets=1):
    """Returns a pipeline of Stable Diffusion, or Stable Diffusion XL, with ControlNets."""
    parts = made(build).components
    torch.manual_seed(0)
    control = [
        diffusers.ControlNetModel.from_unet(
            parts["unet"], conditioning_embedding_out_channels=(4, 4)
        ).eval()
        for _ in range(nets)
    ]
    for net in control:
        for weight in net.parameters():
            torch.nn.init.normal_(weight, std=0.1)
    kind, options = diffusers.StableDiffusionControlNetPipeline, {"requires_safety_checker": False}
    if build is stable_diffusion_xl:
        kind = diffusers.StableDiffusionXLControlNetPipeline
        options = {"add_watermarker": False}
    options["controlnet"] = control if nets > 1 else control[0]
    return made(lambda: kind(**parts, **options))


def made(build):
    """Returns a pipeline with the same weights each time, which prints no bar."""
    torch.manual_seed(0)
    pipe = build()
    pipe.set_progress_bar_config(disable=True)
    return pipe


def images(pipe, prompt="abc", seed=0, **options):
    """Returns what a pipeline makes in two steps, as a tensor."""
    generator = torch.Generator().manual_seed(seed)
    arguments = {"num_inference_steps": 2, "output_type": "pt", "generator": generator, **options}
    return pipe(prompt, **arguments)[0]


def assert_same_images(compiled, pipe, rtol=1e-4, atol=1e-5, **options):
    """Compares the images of a pipeline with those of another one, and returns them."""
    actual, expected = images(compiled, **options), images(pipe, **options)
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)
    return actual


def programs(compiled):
    """Returns the programs of each component."""
    return {row.component: row.programs for row in compiled.torchtrt.report.components}


class Noise(torch.nn.Module):
    """A denoiser that no library has."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(6):
            x = self.layer(x).relu()
        return x


@functools.cache
def _own_pipeline():
    class OwnPipeline(diffusers.DiffusionPipeline):
        """A pipeline whose only component is a denoiser."""

        def __init__(self, denoiser):
            super().__init__()
            self.register_modules(denoiser=denoiser)

        @torch.no_grad()
        def __call__(self, rows):
            return self.denoiser(torch.ones(rows, 4))

    return OwnPipeline


def own_pipeline(denoiser):
    """Returns a pipeline of no library's class, ``OwnPipeline``."""
    return _own_pipeline()(denoiser)


def compile_pipeline(*args, **options):
    """Calls the pack's function, which imports diffusers."""
    return _pack.compile_pipeline(*args, **options)


def load_compiled_pipeline(*args, **options):
    """Calls the pack's function, which imports diffusers."""
    return _pack.load_compiled_pipeline(*args, **options)
