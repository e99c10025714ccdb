#include "engine.h"

#include "device.h"
#include "errors.h"
#include "execution.h"

namespace torchtrt {

namespace {

constexpr std::size_t kStreams = 16;  // the most streams for which contexts are kept

at::Tensor bytes_of(const at::Tensor& plan) { return plan.detach().to(at::kCPU).contiguous(); }

}  // namespace

Engine::Engine(EngineDescription description, const at::Tensor& plan)
    : description_(std::move(description)), profiles_(description_.profiles()) {
  const at::Tensor bytes = bytes_of(plan);
  description_.check_plan(bytes.const_data_ptr(), bytes.nbytes());
  for (const InputDescription& input : description_.inputs) scalar_type(input.dtype, description_.name);
  for (const OutputDescription& output : description_.outputs) scalar_type(output.dtype, description_.name);
  check_tensorrt(description_);
}

Engine::~Engine() = default;

std::shared_ptr<LoadedEngine> Engine::load(const at::Tensor& plan) const {
  const ErrorLog log;
  const at::Tensor bytes = bytes_of(plan);
  auto loaded = std::make_shared<LoadedEngine>(description_, bytes.const_data_ptr(), bytes.nbytes());
  if (!loaded->engine) {
    fail("TensorRT " + tensorrt_version() + " could not load the engine of " + description_.name + ": " + log.text());
  }
  return loaded;
}

std::vector<at::Tensor> Engine::run(at::TensorList inputs, const at::Tensor& plan) {
  const std::string& name = description_.name;
  if (inputs.empty() || inputs.size() != description_.inputs.size()) {
    fail("The engine of " + name + " takes " + std::to_string(description_.inputs.size()) + " inputs, and got " +
         std::to_string(inputs.size()) + ".");
  }
  for (const at::Tensor& tensor : inputs) {
    if (tensor.is_nested()) fail(name + " got a nested tensor, which no engine takes.");
  }
  const c10::Device device = inputs[0].device();
  if (device.type() != kDeviceType) {
    fail(name + " cannot run: TensorRT " + tensorrt_version() + " runs on " + c10::DeviceTypeName(kDeviceType) +
         " tensors, and the tensors are on " + device.str() + ".");
  }
  const Place place{device.index(), current_stream(device)};
  std::unique_ptr<Execution> execution = take(place, device, plan);
  const bool is_recorded = is_capturing(place.second);
  std::vector<at::Tensor> outputs = execution->run(inputs, place.second);
  const std::lock_guard<std::mutex> lock(mutex_);
  (is_recorded ? recorded_ : idle_[place]).push_back(std::move(execution));
  return outputs;
}

std::unique_ptr<Execution> Engine::take(const Place& place, c10::Device device, const at::Tensor& plan) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_capturing(place.second)) return take_recorded(place);
  auto& idle = idle_[place];
  if (!idle.empty()) {
    std::unique_ptr<Execution> execution = std::move(idle.back());
    idle.pop_back();
    return execution;
  }
  if (idle_.size() > kStreams) idle_.erase(idle_.begin()->first == place ? std::prev(idle_.end()) : idle_.begin());
  auto execution = std::make_unique<Execution>(*this, device, loaded_[place.first], plan);
  loaded_[place.first] = execution->loaded();
  return execution;
}

/// Returns an execution for a CUDA graph of the caller's: it keeps one, which must have run before.
std::unique_ptr<Execution> Engine::take_recorded(const Place& place) {
  for (auto& [where, idle] : idle_) {
    if (where.first != place.first || idle.empty()) continue;
    std::unique_ptr<Execution> execution = std::move(idle.back());
    idle.pop_back();
    return execution;
  }
  fail(description_.name + " has not run yet, and cannot be recorded in a CUDA graph. Call the model once before.");
}

}  // namespace torchtrt
