"""A tape that plays the recording of CUDA graphs, which works without a GPU."""

import threading
from collections import OrderedDict

import torch
from torch import nn

import torchtrt
from torchtrt_runtime.executors.cuda_graphs import CudaGraphs


class Tape:
    """Records a call by keeping what it reads and writes; a replay calls again, and writes where the first wrote."""

    made = 0
    stream_key = -1, 0  # no GPU, and the only stream of it

    def __init__(self, _, source):
        self.source = source
        self.lock, self.entries, self.latest = threading.Lock(), OrderedDict(), None

    @staticmethod
    def is_current():
        return True

    @staticmethod
    def wait():
        pass

    @staticmethod
    def place_of(leaves):
        return "a stream" if all(isinstance(leaf, torch.Tensor) for leaf in leaves) else None

    @staticmethod
    def run(function, leaves):
        return function()

    @staticmethod
    def capture_graph(function):
        Tape.made += 1
        outputs = function()

        def replay():
            for output, value in zip(outputs, function(), strict=True):
                output.copy_(value)

        for output in outputs:
            if not output._is_view():
                output.fill_(-1)  # capturing computes nothing
        return replay, outputs


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, y):
        return torch.relu(self.linear(x)) + y, x.sum(-1)


def compiled_model(model=None, inputs=None, **settings):
    """Returns a compiled model on a tape."""
    model = (model or Model()).eval()
    if inputs is None:
        batch = torchtrt.Input(min_shape=(1, 4), opt_shape=(2, 4), max_shape=(99, 4))
        inputs = [batch, torchtrt.Input(shape=(3,))]
    compiled = torchtrt.compile(model, inputs, min_block_size=1, cuda_graphs=True, **settings)
    compiled.executor = CudaGraphs(capture=Tape)
    return model, compiled


def check(compiled, model, *inputs):
    """Calls both, and returns the compiled model's results."""
    with torch.no_grad():
        expected = model(*inputs)
    results = compiled(*inputs)
    torch.testing.assert_close(results, expected)
    return results
