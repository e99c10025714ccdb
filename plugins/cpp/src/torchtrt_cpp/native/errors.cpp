#include "errors.h"

namespace torchtrt {

namespace {
thread_local std::string last_message;
}

void fail(const std::string& message) {
  last_message = message;
  throw EngineError(message);
}

std::string last_error() { return last_message; }

}  // namespace torchtrt
