"""The compiler of PyTorch in tests: without a compiler of C++, and what it compiles."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[set[str]]]:
    """The ops of each graph that ``torch.compile`` compiles, in order.

    It compiles with the backend ``aot_eager``, which needs no compiler of C++ and no GPU. PyTorch before 2.13 has no
    setting for the backend of calls that name none, so ``torch.compile`` itself is replaced there.
    """
    graphs: list[set[str]] = []
    aot_eager = torch._dynamo.lookup_backend("aot_eager")

    def backend(graph_module: torch.fx.GraphModule, inputs: Any, **_: Any) -> Any:
        ops = (node for node in graph_module.graph.nodes if node.op == "call_function")
        graphs.append({str(node.target) for node in ops})
        return aot_eager(graph_module, inputs)

    torch._dynamo.reset()
    if not hasattr(torch.compiler, "set_default_backend"):
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
        yield graphs
        return
    torch.compiler.set_default_backend(backend)
    yield graphs
    torch.compiler.set_default_backend(None)


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets Inductor find no compiler of C++, as on many machines, and nothing that it compiled before."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")  # of the import
        from torch._inductor import compile_fx, config  # noqa: F401

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    with config.patch({"cpp.cxx": (str(tmp_path / "no-compiler"),)}):
        yield
