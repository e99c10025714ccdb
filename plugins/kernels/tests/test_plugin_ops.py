"""Which ops a pack can make plugins of, and its errors for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from torchtrt.errors import AmbiguousTargetError, PackError, UnknownTargetError
from torchtrt.packs import ConverterPack
from torchtrt.tensorrt import Capability
from torchtrt_kernels.operators import PluginKey

Tensor = torch.Tensor
SCHEMAS = {
    "good": "(Tensor x, int n=1) -> Tensor",
    "written": "(Tensor(a!) x) -> ()",
    "view": "(Tensor(a) x) -> Tensor(a)",
    "nothing": "(Tensor x) -> ()",
    "number": "(Tensor x) -> int",
    "several": "(Tensor x) -> Tensor[]",
    "blind": "(Tensor x) -> Tensor",
}


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    """A library with ops of each kind, of which one has no fake implementation."""
    made = torch.library.Library("plugin_ops", "FRAGMENT")
    for name, schema in SCHEMAS.items():
        made.define(name + schema)
        made.impl(name, lambda x, *_: x, "CPU")
        if name != "blind":
            torch.library.register_fake(f"plugin_ops::{name}", lambda x, *_: x, lib=made)
    yield made
    made._destroy()  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    "spelled",
    [
        lambda: torch.ops.plugin_ops.good.default,
        lambda: torch.ops.plugin_ops.good,
        lambda: "plugin_ops::good",
        lambda: "plugin_ops.good.default",
    ],
)
def test_a_plugin_is_a_converter_of_its_op(spelled: Callable[[], Any]) -> None:
    """In every spelling of the op; it handles varying sizes, and needs a TensorRT with plugins."""
    pack = ConverterPack("vision")

    pack.plugin(spelled(), version="3")

    (plugin,) = pack.plugins
    (registration,) = pack.converters
    assert plugin.key == PluginKey("vision", "plugin_ops::good", "3")
    assert registration.target is plugin.op is torch.ops.plugin_ops.good.default
    assert registration.support.supports_dynamic_shapes
    assert registration.support.requires == (Capability.PLUGINS_V3,)
    assert f"{__name__}:plugin[plugin_ops::good]" == _where(registration.support)


def _where(support: Any) -> str:
    function = support.converter_implementation
    return f"{function.__module__}:{function.__qualname__}"


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("written", "writes to its argument x. Write an op that returns the new value"),
        ("view", "returns a view of an argument.* Return a copy"),
        ("nothing", "returns nothing"),
        ("number", "returns a value of type int"),
        ("several", r"returns a value of type List\[Tensor\].* Return tensors"),
        ("blind", r'no fake implementation.*torch\.library\.register_fake\("plugin_ops::blind"\)'),
    ],
)
def test_an_op_that_cannot_be_a_plugin_is_refused(name: str, expected: str) -> None:
    """When it is registered, with what to do; nothing is registered."""
    pack = ConverterPack("vision")

    with pytest.raises(
        PackError, match=f"Pack 'vision' cannot make a plugin of plugin_ops.{name}.*{expected}"
    ):
        pack.plugin(f"plugin_ops::{name}")

    assert () == pack.plugins == pack.converters


def test_a_custom_op_needs_its_fake_implementation_before_the_plugin() -> None:
    """PyTorch registers a stand-in for it with each custom op."""

    @torch.library.custom_op("plugin_ops::custom", mutates_args=())
    def custom(x: Tensor) -> Tensor:
        return x.clone()

    pack = ConverterPack("vision")
    with pytest.raises(PackError, match="no fake implementation"):
        pack.plugin(custom)

    custom.register_fake(torch.empty_like)
    pack.plugin(custom)

    assert [plugin.op.name() for plugin in pack.plugins] == ["plugin_ops::custom"]


@pytest.mark.usefixtures("library")
def test_a_refused_registration_leaves_nothing() -> None:
    """The corrected call registers the plugin."""
    pack = ConverterPack("vision")

    with pytest.raises(PackError, match="no range of TensorRT versions"):
        pack.plugin("plugin_ops::good", tensorrt="8")
    assert () == pack.plugins == pack.converters

    pack.plugin("plugin_ops::good", tensorrt=">=10")
    assert len(pack.plugins) == 1


@pytest.mark.usefixtures("library")
def test_wrong_arguments_are_refused() -> None:
    """With what is meant."""
    pack = ConverterPack("vision")
    pack.plugin("plugin_ops::good")

    with pytest.raises(PackError, match=r"plugin_ops\.good\.default version 1 twice"):
        pack.plugin("plugin_ops::good")
    with pytest.raises(PackError, match="is a text such as '1', not 2"):
        pack.plugin("plugin_ops::good", version=2)  # type: ignore[arg-type]
    with pytest.raises(PackError, match=r"no op of torch\.library"):
        pack.plugin(len)
    with pytest.raises(UnknownTargetError):
        pack.plugin("plugin_ops::absent")
    with pytest.raises(AmbiguousTargetError):
        pack.plugin(torch.ops.aten.add)
    pack.plugin("plugin_ops::blind", enabled=False)
    pack.seal()
    with pytest.raises(PackError, match="already loaded"):
        pack.plugin(torch.ops.aten.relu.default)
