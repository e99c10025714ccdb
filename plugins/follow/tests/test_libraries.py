"""Followed modules in the libraries that call them, with small random configurations."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

import torchtrt
from plugins.contrib.diffusers.tests.models import wan_denoiser
from tests.support.later import later, needs
from torchtrt.errors import FollowWarning

transformers = pytest.importorskip("transformers")
diffusers = later("diffusers")

pytestmark = [
    needs("diffusers"),
    pytest.mark.filterwarnings("ignore::torchtrt.errors.NoEngineWarning"),
]


def agree(model, **arguments):
    """Compares a call with eager PyTorch: the class of the result, its names and its values."""
    with torch.no_grad():
        actual, expected = model(**arguments), model.torchtrt.model(**arguments)
    assert type(actual) is type(expected)
    if isinstance(expected, dict):
        assert list(expected) == list(actual)
    torch.testing.assert_close(actual[0], expected[0], rtol=2e-3, atol=2e-3)


def unet():
    """Returns a UNet of Stable Diffusion."""
    return diffusers.UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(4, 8),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=8,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()


@pytest.mark.slow  # the model has hundreds of ops
def test_a_unet_is_followed_in_its_pipeline():
    """The pipeline finds class, configuration and dtype, steps with tensors, and saves what it saved."""
    torch.manual_seed(0)
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=10)

    class Pipeline(diffusers.DiffusionPipeline):
        def __init__(self, unet, scheduler):
            super().__init__()
            self.register_modules(unet=unet, scheduler=scheduler)

        @torch.no_grad()
        def __call__(self, sample, states):
            self.scheduler.set_timesteps(3)
            for step in self.scheduler.timesteps:
                noise = self.unet(sample, step, encoder_hidden_states=states, return_dict=False)[0]
                sample = self.scheduler.step(noise, step, sample).prev_sample
            return sample

    pipe = Pipeline(unet(), scheduler)
    sample, states = torch.rand(1, 4, 8, 8), torch.rand(1, 3, 8)
    expected = pipe(sample, states)
    pipe.unet = torchtrt.follow(pipe.unet)

    torch.testing.assert_close(pipe(sample, states), expected, rtol=2e-3, atol=2e-3)
    assert isinstance(pipe.unet, diffusers.UNet2DConditionModel)
    assert ("UNet2DConditionModel", 8) == (pipe.config.unet[1], pipe.unet.config.sample_size)
    assert torch.float32 is pipe.unet.dtype
    assert 1 == len(pipe.to("cpu").unet.torchtrt.programs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's
        pipe.unet.add_adapter(_lora(), "style")
        agree(pipe.unet, sample=sample, timestep=torch.tensor(3), encoder_hidden_states=states)
        pipe.unet.disable_adapters()
        agree(pipe.unet, sample=sample, timestep=torch.tensor(3), encoder_hidden_states=states)


@pytest.mark.slow  # both models have hundreds of ops
def test_a_controlnet_and_its_unet_are_followed():
    """The results of the one are inputs of the other, in lists of tensors, at several sizes."""
    torch.manual_seed(0)
    eager = unet()
    control = diffusers.ControlNetModel.from_unet(eager, conditioning_embedding_out_channels=(4, 4))
    for weight in control.controlnet_down_blocks.parameters():
        torch.nn.init.normal_(weight)  # new ones are 0, which hides what they add
    followed = torchtrt.follow(control), torchtrt.follow(eager)

    for batch, size in ((2, 8), (1, 16)):
        call = {"timestep": 7, "encoder_hidden_states": torch.rand(batch, 3, 8)}
        sample, image = torch.rand(batch, 4, size, size), torch.rand(batch, 3, 2 * size, 2 * size)
        results = []
        for net, model in (followed, (control, eager)):
            with torch.no_grad():
                down, middle = net(sample, controlnet_cond=image, return_dict=False, **call)
                added = {
                    "down_block_additional_residuals": down,
                    "mid_block_additional_residual": middle,
                }
                results.append(model(sample, return_dict=False, **call, **added)[0])
        torch.testing.assert_close(results[0], results[1], rtol=2e-3, atol=2e-3)


def _lora():
    peft = pytest.importorskip("peft")
    return peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)


def test_an_autoencoders_decoder_is_followed():
    """Pipelines call ``decode``."""
    torch.manual_seed(0)
    vae = diffusers.AutoencoderKL(
        block_out_channels=(4,),
        layers_per_block=1,
        norm_num_groups=2,
        down_block_types=("DownEncoderBlock2D",),
        up_block_types=("UpDecoderBlock2D",),
    ).eval()
    latents = torch.rand(1, 4, 4, 4)
    with torch.no_grad():
        expected = vae.decode(latents).sample
        vae.decoder = torchtrt.follow(vae.decoder)
        torch.testing.assert_close(vae.decode(latents).sample, expected, rtol=2e-3, atol=2e-3)
    assert 1 == len(vae.decoder.torchtrt.programs)


@pytest.mark.slow  # three sizes are three compilations
def test_transformers_of_flux_and_wan_are_followed():
    """With another number of tokens, and in a context that names caches."""
    torch.manual_seed(0)
    flux = torchtrt.follow(
        diffusers.FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=8,
            pooled_projection_dim=8,
            axes_dims_rope=(4, 4, 8),
        ).eval()
    )
    for tokens in (6, 9, 12):
        agree(
            flux,
            hidden_states=torch.rand(1, tokens, 4),
            encoder_hidden_states=torch.rand(1, 5, 8),
            pooled_projections=torch.rand(1, 8),
            timestep=torch.rand(1),
            img_ids=torch.rand(tokens, 3),
            txt_ids=torch.rand(5, 3),
            return_dict=False,
        )
    assert 1 == len(flux.torchtrt.programs)
    wan = torchtrt.follow(wan_denoiser())
    for name in ("cond", "uncond", "cond"):
        with wan.cache_context(name):
            agree(
                wan,
                hidden_states=torch.rand(1, 4, 2, 8, 8),
                encoder_hidden_states=torch.rand(1, 5, 8),
                timestep=torch.tensor([3]),
            )
    assert 1 == len(wan.torchtrt.programs)


def test_a_text_encoder_returns_its_output_class_and_its_hidden_states():
    """Hooks of transformers collect these; the first call that needs them installs the hooks."""
    torch.manual_seed(0)
    configuration = transformers.T5Config(
        vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2
    )
    model = torchtrt.follow(transformers.T5EncoderModel(configuration).eval())
    ids = torch.randint(9, (2, 5))
    agree(model, input_ids=ids)
    for _ in range(2):
        agree(model, input_ids=ids, output_hidden_states=True)
    agree(model, input_ids=ids)
    assert "input_ids" == model.main_input_name


def test_the_encoder_of_an_encoder_decoder_model_is_followed_in_generate():
    """The decoder fills a cache, and stays in PyTorch."""
    torch.manual_seed(0)
    configuration = transformers.BartConfig(
        vocab_size=20,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = transformers.BartForConditionalGeneration(configuration).eval()
    options = {"max_new_tokens": 4, "do_sample": False}
    ids = torch.randint(3, 20, (2, 6))
    expected = model.generate(ids, **options)
    model.model.encoder = torchtrt.follow(model.model.encoder)

    assert torch.equal(expected, model.generate(ids, **options))
    assert 1 == len(model.model.encoder.torchtrt.programs)


def test_a_model_that_fills_a_cache_runs_in_pytorch():
    """The cache is the caller's; without one, engines run."""
    torch.manual_seed(0)
    configuration = transformers.LlamaConfig(
        vocab_size=9,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        eos_token_id=None,
    )
    plain = transformers.LlamaForCausalLM(configuration).eval()
    model = torchtrt.follow(copy.deepcopy(plain))
    ids, options = torch.randint(9, (2, 3)), {"max_new_tokens": 3, "do_sample": False}
    with pytest.warns(FollowWarning, match="DynamicCache"):
        assert torch.equal(plain.generate(ids, **options), model.generate(ids, **options))
    assert [] == model.torchtrt.programs
    agree(model, input_ids=ids, use_cache=False)
    assert 1 == len(model.torchtrt.programs)
