"""The test kit of pack authors, ``from torchtrt.testing import PackConformance``: a distribution of its own."""

try:
    from torchtrt_testing import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "torchtrt_testing":
        raise
    message = "torchtrt.testing is not installed: `pip install torchtrt-testing` brings it."
    raise ModuleNotFoundError(message, name=error.name) from None
