// A backend of ExecuTorch that hands each delegate to functions of the test, as the backend of TensorRT would run it.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <cstdint>
#include <vector>

using namespace executorch::runtime;

namespace {

/// Returns the number of an engine, or -1 if it takes no such blob.
using Load = std::int64_t (*)(const void* blob, std::int64_t size);

/// Runs an engine: addresses and sizes of its inputs and outputs; writes the sizes of the outputs. Returns 0.
using Run = int (*)(std::int64_t engine, int count, void** addresses, std::int64_t* ranks, std::int64_t* sizes);

constexpr int kRanks = 8;
Load load = nullptr;
Run run = nullptr;

class StandIn final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(
      BackendInitContext&, FreeableBuffer* processed, ArrayRef<CompileSpec>) const override {
    const auto engine = load(processed->data(), static_cast<std::int64_t>(processed->size()));
    if (engine < 0) return Error::InvalidProgram;
    return reinterpret_cast<DelegateHandle*>(engine + 1);
  }

  Error execute(BackendExecutionContext&, DelegateHandle* handle, Span<EValue*> args) const override {
    std::vector<void*> addresses;
    std::vector<std::int64_t> ranks, sizes(args.size() * kRanks);
    for (std::size_t index = 0; index < args.size(); ++index) {
      auto tensor = args[index]->toTensor();
      addresses.push_back(tensor.mutable_data_ptr());
      ranks.push_back(tensor.dim());
      for (int dim = 0; dim < tensor.dim(); ++dim) sizes[index * kRanks + dim] = tensor.size(dim);
    }
    const auto engine = reinterpret_cast<std::int64_t>(handle) - 1;
    if (run(engine, static_cast<int>(args.size()), addresses.data(), ranks.data(), sizes.data()) != 0) {
      return Error::InvalidState;
    }
    for (std::size_t index = 0; index < args.size(); ++index) {
      auto tensor = args[index]->toTensor();
      std::vector<executorch::aten::SizesType> made(
          sizes.begin() + index * kRanks, sizes.begin() + index * kRanks + ranks[index]);
      const auto error = resize_tensor(tensor, {made.data(), made.size()});
      if (error != Error::Ok) return error;
    }
    return Error::Ok;
  }
};

StandIn backend;

}  // namespace

extern "C" int register_stand_in(Load load_function, Run run_function) {
  load = load_function;
  run = run_function;
  return static_cast<int>(register_backend({"TensorRTBackend", &backend}));
}
