"""The pack as a whole, and each of its ops against PyTorch; attention by aten_core's cases too, which it overrides."""

import torch

from torchtrt.testing import PackConformance, TensorSpec, op_case

MASK = TensorSpec("3 4", torch.bool)
WHOLE = TensorSpec("2 6", torch.int64)


class TestAtenExperimental(PackConformance):
    """Outputs whose size depends on the data."""

    pack = "aten_experimental"
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
    cases = (
        op_case("aten.nonzero.default", MASK),
        op_case("aten.nonzero.default", "3 4", label="all"),
        op_case("aten.masked_select.default", "3 4", MASK),
        op_case("aten.index.Tensor", "3 4", [MASK], label="mask"),
        op_case("aten._unique2.default", WHOLE, True, True, True),
        op_case("aten.unique_consecutive.default", WHOLE, True, True),
        op_case("aten.unique_dim.default", WHOLE, 0, True, True, True),
    )
