"""The contract of packs: converters, validators, and the arguments that they receive."""

from torchtrt.contract.arguments import (
    SchemaArguments,
    arguments_of,
    check_decomposition,
    constant_of,
    named_arguments,
    value_of,
)
from torchtrt.contract.converters import (
    AutocastRule,
    CallingConvention,
    Converter,
    ConverterPriority,
    ConverterSupport,
    calling_convention,
    looks_like_converter,
)
from torchtrt.contract.functions import qualified_function
from torchtrt.contract.validators import (
    FailedCheckError,
    Reject,
    RejectIf,
    Validator,
    WrongAnswerError,
    accept_every_node,
    check_names,
    declared_dtypes,
    to_rejection,
    with_settings,
)

__all__ = [
    "AutocastRule",
    "CallingConvention",
    "Converter",
    "ConverterPriority",
    "ConverterSupport",
    "FailedCheckError",
    "Reject",
    "RejectIf",
    "SchemaArguments",
    "Validator",
    "WrongAnswerError",
    "accept_every_node",
    "arguments_of",
    "calling_convention",
    "check_decomposition",
    "check_names",
    "constant_of",
    "declared_dtypes",
    "looks_like_converter",
    "named_arguments",
    "qualified_function",
    "to_rejection",
    "value_of",
    "with_settings",
]
