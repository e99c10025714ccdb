"""Helpers of the tests of the TorchScript front end."""

import warnings

import torch

import torchtrt_torchscript as torchscript
from tests.support.compiled import assert_same as assert_same


def quiet(function, *args):
    """Calls TorchScript without PyTorch's notes that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*args)


def script(model):
    """Returns the scripted model."""
    return quiet(torch.jit.script, model)


def assert_compiles(function, *calls, dynamic_shapes=None, **settings):
    """Compiles a function whole for the first call's inputs, and checks every call against PyTorch."""
    scripted = script(function)
    settings = {"require_full_compilation": True, **settings}
    compiled = torchscript.compile(scripted, calls[0], dynamic_shapes=dynamic_shapes, **settings)
    for inputs in calls:
        copies = [[tensor.clone() for tensor in inputs] for _ in range(2)]
        torch.testing.assert_close(compiled(*copies[0]), function(*copies[1]), rtol=1e-4, atol=1e-4)
    return compiled
