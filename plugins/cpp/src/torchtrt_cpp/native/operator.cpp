// Registers the op torchtrt::execute_engine, in which saved models hold their engines.
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/DeviceGuard.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "engine.h"
#include "torchtrt.h"

namespace torchtrt {

namespace {

/// The engines of the plans that exist, each with the description that it was loaded by.
class EngineTable {
 public:
  std::shared_ptr<Engine> engine_of(const at::Tensor& plan, std::string_view description) {
    const Key key{plan.storage().unsafeGetStorageImpl(), plan.storage_offset()};
    if (auto engine = find(key, description)) return engine;
    const std::lock_guard<std::mutex> loading(loading_);
    if (auto engine = find(key, description)) return engine;
    free_unused();
    auto engine = std::make_shared<Engine>(EngineDescription::parse(std::string(description)), plan);
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    entries_.insert_or_assign(key, Entry{plan.storage().getWeakStorageImpl(), std::string(description), engine});
    return engine;
  }

  std::size_t free_unused() {
    std::vector<Entry> unused;  // freed without the lock, since TensorRT takes its time
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      if (entry->second.storage.expired()) {
        unused.push_back(std::move(entry->second));
        entry = entries_.erase(entry);
      } else {
        ++entry;
      }
    }
    return entries_.size();
  }

 private:
  using Key = std::pair<const c10::StorageImpl*, std::int64_t>;
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being used for another plan
    std::string description;
    std::shared_ptr<Engine> engine;
  };

  std::shared_ptr<Engine> find(const Key& key, std::string_view description) {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto entry = entries_.find(key);
    const bool is_known = entry != entries_.end() && entry->second.description == description;
    return is_known ? entry->second.engine : nullptr;
  }

  std::mutex loading_;
  std::shared_mutex mutex_;
  std::map<Key, Entry> entries_;
};

EngineTable& table() {
  static EngineTable& shared = *new EngineTable;  // at the end of a process, CUDA may be gone
  return shared;
}

std::vector<at::Tensor> execute_engine(at::TensorList inputs, const at::Tensor& plan, c10::string_view description) {
  const c10::OptionalDeviceGuard guard(at::device_of(inputs));
  return table().engine_of(plan, description)->run(inputs, plan);
}

}  // namespace

std::size_t loaded_engines() { return table().free_unused(); }

TORCH_LIBRARY_FRAGMENT(torchtrt, library) {
  // In a Python process that imported torchtrt, its op stays.
  if (c10::Dispatcher::singleton().findSchema({"torchtrt::execute_engine", ""})) return;
  library.def("execute_engine(Tensor[] inputs, Tensor plan, str description) -> Tensor[]");
  library.impl("execute_engine", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &execute_engine));
  library.impl("execute_engine",
               torch::dispatch(c10::DispatchKey::Autograd, torch::autograd::autogradNotImplementedFallback()));
}

}  // namespace torchtrt
