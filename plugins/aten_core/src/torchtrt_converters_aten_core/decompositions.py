"""Ops computed by other ops, each a function of the op's own signature."""

from __future__ import annotations
