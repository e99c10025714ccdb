"""CheckedPack: what it refuses at registration."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchtrt.errors import PackError
from torchtrt_blocks.registration import CheckedPack


@pytest.mark.parametrize(
    "wrong", [torch.float32, "float32", [torch.float32, "int32"]], ids=["dtype", "text", "list"]
)
def test_dtypes_are_a_collection_of_dtypes(wrong: Any) -> None:
    """The message names the pack and shows the form."""
    pack = CheckedPack("vision")

    with pytest.raises(PackError, match=r"Pack 'vision': dtypes=.*write \{torch.float32\}"):
        pack.converter("aten.relu.default", dtypes=wrong)
    assert not pack.converters


@pytest.mark.parametrize("wrong", ["no", 3, ["no"]], ids=["text", "number", "list"])
def test_a_check_that_is_no_function_is_named(wrong: Any) -> None:
    """And none of the pack's own checks."""
    with pytest.raises(
        PackError, match=r"Pack 'vision': reject_if has ('no'|3), which is no function"
    ):
        CheckedPack("vision").converter("aten.relu.default", reject_if=wrong)(
            lambda ctx, self, **_: self
        )
