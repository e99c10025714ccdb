"""PyTorch's samples in one engine: the outcome of a sample does not depend on those it runs together with."""

import dataclasses

import pytest
import torch

import torchtrt
from torchtrt_testing.faults import watched_tensorrt
from torchtrt_testing.op_info import samples_of
from torchtrt_testing.verification.findings import AGREES, DIFFERS, IN_PYTORCH, NOT_APPLICABLE
from torchtrt_testing.verification.samples import check_samples


@pytest.fixture
def engines():
    """Lists the engines that are built; the first build fails if the list holds an error."""
    built = []

    def counted(build):
        if built and isinstance(built[0], Exception):
            raise built.pop()
        built.append(build)
        return ""

    with torchtrt.use_tensorrt("reference@8.6.0"), watched_tensorrt(refuses=counted):
        yield built


def items_of(*names):
    """Returns the first samples of some ops, in float32."""
    return {name: samples_of(name, torch.float32)[:2] for name in names}


def check(items):
    """Returns the findings of each item."""
    with torchtrt.use_tensorrt("reference@8.6.0"):
        return dict(check_samples(items, {}))


def kinds(findings):
    """Returns the outcome of each sample of each item."""
    return {
        name: [finding[index].kind for index in sorted(finding)]
        for name, finding in findings.items()
    }


def with_second(items, name, function):
    """Replaces the function of an item's second sample."""
    first, second = items[name]
    return items | {name: [first, dataclasses.replace(second, function=function)]}


def test_samples_become_one_engine(engines):
    """Also random ones and those that write to their inputs; what stays in PyTorch is not compared."""
    verdicts = check(items_of("add", "bernoulli", "fill", "index_put", "nextafter", "median"))

    agree = dict.fromkeys(["add", "bernoulli", "fill", "index_put", "median"], [AGREES] * 2)
    assert kinds(verdicts) == {**agree, "nextafter": [IN_PYTORCH] * 2}
    assert "nextafter" in verdicts["nextafter"][0].message
    assert len(engines) == 1


def test_a_wrong_sample_is_named_and_the_others_are_right(engines):
    """It is tried alone, and nothing else is."""

    def exported_as_another(input, *others, **settings):
        result = torch.mul(input, *others)
        return result + 1 if torch.compiler.is_exporting() else result

    verdicts = check(with_second(items_of("sub", "mul", "add"), "mul", exported_as_another))

    right = [AGREES] * 2
    assert kinds(verdicts) == {"sub": right, "mul": [AGREES, DIFFERS], "add": right}
    assert verdicts["mul"][1].message.startswith("result 0")
    assert len(engines) == 2


def test_an_input_that_is_written_wrongly_is_wrong():
    """Inputs are compared as they are after the call."""

    def writes(input, *others, **settings):
        input.add_(2 if torch.compiler.is_exporting() else 1)
        return torch.mul(input, 0)

    verdicts = check(with_second(items_of("mul", "add"), "mul", writes))

    assert kinds(verdicts) == {"mul": [AGREES, DIFFERS], "add": [AGREES] * 2}
    assert verdicts["mul"][1].message.startswith("result 1")


def test_what_fails_together_is_tried_in_halves(engines):
    """A build that fails for all may succeed for some."""
    engines.append(RuntimeError("not these"))

    verdicts = check(items_of("sub", "mul", "add", "pow"))

    assert kinds(verdicts) == dict.fromkeys(["sub", "mul", "add", "pow"], [AGREES] * 2)
    assert len(engines) == 2


def test_what_is_wrong_only_together_is_reported():
    """TensorRT computes a sample otherwise because of its neighbours."""
    exports = []

    def wrong_later(input, *others, **settings):
        result = torch.mul(input, *others)
        if not torch.compiler.is_exporting():
            return result
        exports.append(input)
        return result + len(exports) - 1

    verdicts = check(with_second(items_of("mul", "add"), "mul", wrong_later))

    assert kinds(verdicts) == {"mul": [AGREES, DIFFERS], "add": [AGREES] * 2}
    assert "in an engine with other samples, and not alone" in verdicts["mul"][1].message


def test_what_pytorch_does_not_run_is_not_applicable():
    """No TensorRT can be blamed."""

    def refuses(input, *others, **settings):
        raise NotImplementedError

    verdicts = check(with_second(items_of("mul"), "mul", refuses))

    assert kinds(verdicts) == {"mul": [AGREES, NOT_APPLICABLE]}
