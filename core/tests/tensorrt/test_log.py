"""TensorRT's messages in Python's logging, as the page inspect-a-compilation.md has them."""

import logging

import pytest

import torchtrt
from torchtrt.tensorrt.logging import ErrorLog, logger

LEVELS = {
    "VERBOSE": logging.DEBUG, "INFO": logging.INFO, "WARNING": logging.INFO, "ERROR": logging.INFO,
    "INTERNAL_ERROR": logging.INFO,
}  # fmt: skip


@pytest.mark.parametrize("least", [logging.DEBUG, logging.INFO, logging.WARNING])
def test_the_level_of_the_logger_selects_tensorrts_messages(version, caplog, least):
    """Errors are collected for the exception at every level."""
    caplog.set_level(least, "torchtrt.tensorrt")
    with ErrorLog() as errors:
        for name in LEVELS:
            logger().log(getattr(torchtrt.trt.ILogger.Severity, name), f"about {name}")

    expected = [(level, f"about {name}") for name, level in LEVELS.items() if level >= least]
    assert expected == [(record.levelno, record.message) for record in caplog.records]
    assert ["about ERROR", "about INTERNAL_ERROR"] == errors.errors
