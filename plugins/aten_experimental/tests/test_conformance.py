"""The pack as a whole, and each of its ops against PyTorch; attention by aten_core's cases too, which it overrides."""

from torchtrt.testing import PackConformance, cases_of


class TestAtenExperimental(PackConformance):
    """Outputs whose size depends on the data."""

    pack = "aten_experimental"
    exported_since = "2.13"
    without_case = {
        f"aten._scaled_dot_product_{kind}.default": "PyTorch runs it on a GPU only; aten_core's tests export it"
        for kind in (
            "cudnn_attention",
            "efficient_attention",
            "flash_attention",
            "fused_attention_overrideable",
        )
    } | {
        "torchtrt_experimental.rotary_embedding.default": "test_rotary_embeddings.py has its own, on each TensorRT"
    }
    cases = cases_of("aten_experimental")
