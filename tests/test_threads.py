"""Several threads compile, save and load."""

import sys
import threading

import torch
from torch import nn

import torchtrt


def test_models_are_saved_and_loaded_while_others_are_compiled(tmp_path):
    """PyTorch exports in modes that are those of all threads, and reads programs with the same functions."""
    rows = torchtrt.Input(min_shape=(1, 4), opt_shape=(3, 4), max_shape=(8, 4))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    compiled = torchtrt.compile(model, [rows], min_block_size=1)
    path, x = tmp_path / "model.pt2", torch.rand(5, 4)
    torchtrt.save(compiled, path)
    is_over, errors = threading.Event(), []

    def compile_models():
        while not is_over.is_set():
            try:
                torchtrt.compile(model, [rows], min_block_size=1)
            except Exception as error:
                errors.append(error)

    compiling = [threading.Thread(target=compile_models) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    for thread in compiling:
        thread.start()
    try:
        for _ in range(20):
            loaded = torchtrt.load(path)
            torchtrt.save(loaded, tmp_path / "again.pt2")
    except Exception as error:
        errors.append(error)
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
        for thread in compiling:
            thread.join()

    assert errors == []
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
