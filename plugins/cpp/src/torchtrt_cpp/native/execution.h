// One execution context of an engine.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine.h"
#include "tensorrt.h"

namespace torchtrt {

class OutputAllocator;

/// An execution context of an engine, with the addresses, shapes and profile that were set last.
class Execution {
 public:
  /// Makes a context of an engine that is loaded, or loads it; an EngineError where TensorRT refuses either.
  Execution(const Engine& engine, c10::Device device, std::shared_ptr<LoadedEngine> loaded, const at::Tensor& plan);
  ~Execution();

  /// Enqueues the engine on a stream, and returns its outputs.
  std::vector<at::Tensor> run(at::TensorList inputs, void* stream);

  const std::shared_ptr<LoadedEngine>& loaded() const { return loaded_; }

 private:
  struct Input {
    std::string name;
    c10::ScalarType dtype;
    void* address = nullptr;
  };
  struct Output {
    std::string name;
    c10::ScalarType dtype;   // that the engine writes
    c10::ScalarType wanted;  // that the model has
    std::vector<std::int64_t> sizes;
    std::unique_ptr<OutputAllocator> allocator;
    std::optional<std::size_t> cache;  // the input that it is an update of
  };

  void make_context(const Engine& engine, const at::Tensor& plan);
  void add_outputs();
  std::vector<at::Tensor> prepare(at::TensorList inputs) const;
  bool has_shapes(at::TensorList inputs) const;
  void set_shapes(at::TensorList inputs, void* stream);
  void select_profile(void* stream);
  void refuse_shape(std::size_t index, const ErrorLog& log) const;
  void bind_inputs(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> bind_outputs(const std::vector<at::Tensor>& inputs);
  void* address_of(const at::Tensor& tensor) const;

  const EngineDescription& description_;
  const std::vector<std::vector<Ranges>>& profiles_;
  c10::Device device_;
  std::shared_ptr<LoadedEngine> loaded_;
  at::Tensor no_elements_;  // whose address empty tensors have, as their own is null
  std::vector<Input> inputs_;
  std::vector<Output> outputs_;
  std::vector<std::vector<std::int64_t>> shapes_;
  bool has_set_shapes_ = false;
  std::unique_ptr<nvinfer1::IExecutionContext> context_;  // the first to go
};

}  // namespace torchtrt
