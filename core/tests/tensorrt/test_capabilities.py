"""The table of what a TensorRT can do."""

from types import ModuleType, SimpleNamespace

import pytest

from torchtrt.capability import Capability
from torchtrt.tensorrt import capability_table, lacking, probes, selection, supports, use_tensorrt
from torchtrt.tensorrt.selection import device_objection, version

VERSIONS = ("8.6.0", "10.16.1", "11.4.0")
DECLARED = {Capability.BUILDS_WITHOUT_GPU, Capability.PROCESS_GROUPS, Capability.TORCH_DEVICES}
"""The capabilities that the reference has beyond the interface of its version."""


def capabilities_of(tensorrt):
    """Returns the capabilities of a TensorRT."""
    with use_tensorrt(tensorrt):
        return {row.capability for row in capability_table() if row.available}


@pytest.mark.parametrize("number", VERSIONS)
def test_a_version_has_what_came_with_it_or_before(number):
    """The first version that a capability states, and the names in TensorRT's module, agree."""
    in_use = tuple(map(int, number.split(".")))
    expected = set()
    for capability in Capability:
        product, _, since = capability.since.rpartition(" ")
        if product == "TensorRT" and tuple(map(int, since.split("."))) <= in_use:
            expected.add(capability)

    assert expected | DECLARED == capabilities_of(f"reference@{number}")


def test_every_capability_has_a_probe_or_is_declared():
    """No capability is missing from both."""
    assert DECLARED == set(Capability) - set(probes._PROBES)


@pytest.mark.parametrize("capability", list(Capability), ids=lambda value: value.name)
def test_a_capability_has_a_sentence(capability):
    """The docs page and messages show them."""
    assert capability.description.endswith(".")
    assert len(capability.description.split()) <= 25
    assert not capability.title.endswith(".")


def test_a_message_names_the_need_the_first_version_and_the_tensorrt_in_use():
    """One form serves settings, ops and dtypes."""
    with use_tensorrt("reference@10.16.1"):
        message = lacking("The setting a=1", Capability.INT64, Capability.ATTENTION_V2)

    assert message == (
        "The setting a=1 needs version 2 of the layer IAttention, which TensorRT has from version 11.0 on; "
        "the one in use is reference@10.16.1"
    )


def test_a_capability_of_another_product_names_the_product():
    """TensorRT 11 lacks what TensorRT for RTX has from its version 1.0 on."""
    with use_tensorrt("reference@11.4.0"):
        message = lacking("The setting a=1", Capability.RUNTIME_CACHE)

    assert "which TensorRT for RTX has from version 1.0 on" in message


@pytest.fixture
def declaring(monkeypatch):
    """Returns a function that makes an implementation of TensorRT the one in use, by what it declares."""
    module = ModuleType("mine")
    vars(module).update(__version__="1.0", DataType=SimpleNamespace(INT64=1))

    def use(**attributes):
        implementation = SimpleNamespace(**attributes)
        monkeypatch.setitem(selection._loaded, id(module), ("mine", implementation))
        token = selection.use_module(module)
        token.__enter__()
        tokens.append(token)

    tokens = []
    yield use
    for token in tokens:
        token.__exit__(None, None, None)


def test_an_implementation_declares_what_its_names_do_not_show(declaring):
    """A reason, an empty text, and nothing for what its names show."""
    answers = {"INT64": "it is slow", "ATTENTION": ""}
    declaring(capability_objection=answers.get)

    assert not supports(Capability.INT64)
    assert supports(Capability.ATTENTION)
    assert supports(Capability.INTEGER_REDUCTION)
    assert not supports(Capability.FP8)
    message = "x needs the dtype INT64, which mine@1.0 does not have here: it is slow"
    assert message == lacking("x", Capability.INT64)


def test_an_implementation_that_declares_nothing_has_what_its_names_tell(declaring):
    """The function is optional."""
    declaring()

    assert supports(Capability.INT64)
    assert not supports(Capability.BUILDS_WITHOUT_GPU)


def test_an_implementation_states_its_interface_and_devices(declaring):
    """Packs give ranges of TensorRT's own versions."""
    declaring(INTERFACE="11.4.0", DEVICES="my GPU", device_objection=lambda device: f"no {device}")

    assert "11.4.0" == version()
    assert "my GPU" == selection.devices()
    assert "no cpu" == device_objection("cpu")
