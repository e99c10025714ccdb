// One engine of a saved model, for calls from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "description.h"
#include "tensorrt.h"

namespace torchtrt {

class Execution;

/// Runs one engine on PyTorch tensors. It loads the plan once for each device.
///
/// The scratch memory of an execution context is in use until its stream is done. So contexts are kept by device and
/// stream, and a call takes an idle one or makes one: threads run side by side.
class Engine {
 public:
  /// Describes an engine, whose plan is damaged or is for another TensorRT or GPU where it throws an EngineError.
  Engine(EngineDescription description, const at::Tensor& plan);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Returns the outputs for inputs on the device in use, contiguous or strided; an EngineError where they do not fit.
  std::vector<at::Tensor> run(at::TensorList inputs, const at::Tensor& plan);

  const EngineDescription& description() const { return description_; }
  const std::vector<std::vector<Ranges>>& profiles() const { return profiles_; }

  /// Returns the engine of the plan, loaded by a runtime of its own; an EngineError where TensorRT refuses it.
  std::shared_ptr<LoadedEngine> load(const at::Tensor& plan) const;

 private:
  using Place = std::pair<c10::DeviceIndex, void*>;  // a device, and a stream of it

  std::unique_ptr<Execution> take(const Place& place, c10::Device device, const at::Tensor& plan);
  std::unique_ptr<Execution> take_recorded(const Place& place);

  EngineDescription description_;
  std::vector<std::vector<Ranges>> profiles_;
  std::mutex mutex_;
  std::map<c10::DeviceIndex, std::shared_ptr<LoadedEngine>> loaded_;
  std::map<Place, std::vector<std::unique_ptr<Execution>>> idle_;
  std::vector<std::unique_ptr<Execution>> recorded_;  // in CUDA graphs, which may run at any time
};

}  // namespace torchtrt
