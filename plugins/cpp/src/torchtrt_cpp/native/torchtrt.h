// The public header of the library that runs engines of torchtrt without Python.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#if defined(__GNUC__)
#define TORCHTRT_API __attribute__((visibility("default")))
#else
#define TORCHTRT_API
#endif

namespace torchtrt {

/// An engine cannot be loaded, or a call does not fit it. The text says what happened and what to do.
class TORCHTRT_API EngineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns the version of the TensorRT that runs the engines: "10.16.1.11".
TORCHTRT_API std::string tensorrt_version();

/// Returns how many engines are in memory, and frees those whose plans are gone.
TORCHTRT_API std::size_t loaded_engines();

/// Returns the text of this thread's last EngineError: callers such as AOTInductor raise one of their own.
TORCHTRT_API std::string last_error();

}  // namespace torchtrt
