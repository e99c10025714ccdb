"""The conformance suite: PyTorch's own samples of every op, converted, run and compared with PyTorch.

``python -m tools.conformance run`` takes every op of PyTorch's OpInfo database and exports a call with
each of its samples. It converts the call for the reference TensorRT of three versions with everything in
engines, and compares the result with PyTorch's. The outcome of each sample is kept in the pack's
``coverage.json``, which ``torchtrt coverage`` prints.
"""
