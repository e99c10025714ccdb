// How the library raises its errors.
#pragma once

#include <string>

#include "torchtrt.h"

namespace torchtrt {

/// Throws an EngineError, and keeps its text for last_error().
[[noreturn]] void fail(const std::string& message);

}  // namespace torchtrt
