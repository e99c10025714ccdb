"""Saved models in model repositories of the Triton Inference Server."""

from __future__ import annotations

from torchtrt_triton.config import ServingOptions
from torchtrt_triton.interface import ModelInterface, ModelTensor
from torchtrt_triton.repository import AddedModel, add_model

__all__ = ["AddedModel", "ModelInterface", "ModelTensor", "ServingOptions", "add_model"]
