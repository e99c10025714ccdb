"""Settings that leave a whole model to PyTorch."""

from __future__ import annotations

from typing import Any

import torchtrt


def left_in_pytorch(model: Any, *inputs: Any, **options: Any) -> dict[str, Any]:
    """Returns settings that exclude the ops that engines would run otherwise.

    ``min_block_size`` does not: a block that is the whole model is an engine.
    """
    report = torchtrt.explain(model, inputs, **options)
    # getitem runs where the op runs
    converted = {row.op for row in report.converted} - {"operator.getitem"}
    return {"torch_executed_ops": {*converted, *options.get("torch_executed_ops", ())}}
