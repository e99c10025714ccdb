// TensorRT's runtime: which one is here, its log, and its dtypes as PyTorch's.
#pragma once

#include <NvInfer.h>

#include <memory>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "description.h"

namespace torchtrt {

/// Whether TensorRT's interface is at least of a version.
#define TORCHTRT_HAS(major, minor) \
  (NV_TENSORRT_MAJOR > (major) || (NV_TENSORRT_MAJOR == (major) && NV_TENSORRT_MINOR >= (minor)))

/// Collects the errors that TensorRT logs in this thread while it exists.
///
/// TensorRT's own threads do not say for whom they work: their last error counts where this thread logged none.
class ErrorLog {
 public:
  ErrorLog();
  ~ErrorLog();
  ErrorLog(const ErrorLog&) = delete;
  ErrorLog& operator=(const ErrorLog&) = delete;

  /// Returns the errors, each once, with a remedy for each known cause.
  std::string text() const;

  void add(const std::string& message);

 private:
  ErrorLog* outer_;
  std::vector<std::string> errors_;
};

/// Returns the logger that everything of TensorRT shares.
nvinfer1::ILogger& logger();

/// Checks that TensorRT, and the GPU in use where it needs one, run an engine; an EngineError where they do not.
void check_tensorrt(const EngineDescription& engine);

/// Returns PyTorch's dtype for one of TensorRT's; an EngineError that names the engine where there is none.
c10::ScalarType scalar_type(nvinfer1::DataType dtype, const std::string& engine);

/// Returns PyTorch's dtype of a name in an engine's description: "float32"; an EngineError where it has none.
c10::ScalarType scalar_type(const std::string& name, const std::string& engine);

/// Returns the name of one of PyTorch's dtypes: "torch.float32".
std::string dtype_text(c10::ScalarType dtype);

/// An engine in memory, and the runtime that loaded it, which has to outlive it.
struct LoadedEngine {
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;

  /// Loads a plan; without an engine where TensorRT refuses it.
  LoadedEngine(const EngineDescription& description, const void* plan, std::size_t size);
};

}  // namespace torchtrt
