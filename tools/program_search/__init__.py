"""A search for programs that a compiled model computes otherwise than eager PyTorch does.

``python -m tools.program_search OUT.jsonl --seconds 3600``, and with ``--kind corners`` or ``--kind further``

A seed makes a model: its source, its inputs and how it is compiled. Outcomes are appended as they come, so that an
interrupted search goes on where it stopped. A finding is printed as a Python program, made as short as it gets.
"""
