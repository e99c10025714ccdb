#include "execution.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "errors.h"

namespace torchtrt {

namespace {

void* const kUnset = reinterpret_cast<void*>(-1);
constexpr std::int64_t kLargest = 16;  // some ops of PyTorch refuse memory that ends within an element

at::Tensor make_bytes(std::int64_t count, c10::Device device) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(device));
}

std::vector<std::int64_t> sizes_of(const nvinfer1::Dims& dims) { return {dims.d, dims.d + std::max(dims.nbDims, 0)}; }

}  // namespace

/// Memory for an output whose size is known only while the engine runs, from PyTorch's allocator.
class OutputAllocator : public nvinfer1::IOutputAllocator {
 public:
  explicit OutputAllocator(c10::Device device) : device_(device) {}

#if NV_TENSORRT_MAJOR >= 10
  void* reallocateOutputAsync(char const*, void*, uint64_t size, uint64_t, cudaStream_t) noexcept override {
    return allocate(size);
  }
#else
  void* reallocateOutput(char const*, void*, uint64_t size, uint64_t) noexcept override { return allocate(size); }
#endif

  void notifyShape(char const*, nvinfer1::Dims const& dims) noexcept override { sizes_ = sizes_of(dims); }

  /// Returns the output as a tensor that owns its memory.
  at::Tensor take(c10::ScalarType dtype) {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(dtype));
    for (const std::int64_t size : sizes_) bytes *= size;
    const at::Tensor output = buffer_.narrow(0, 0, bytes).view(dtype).reshape(sizes_);
    buffer_.reset();
    return output;
  }

 private:
  void* allocate(uint64_t size) noexcept {
    const std::int64_t count = (static_cast<std::int64_t>(std::max<uint64_t>(size, 1)) + kLargest - 1) / kLargest;
    try {
      buffer_ = make_bytes(count * kLargest, device_);
      return buffer_.data_ptr();
    } catch (const std::exception& error) {
      logger().log(nvinfer1::ILogger::Severity::kERROR, error.what());
      return nullptr;
    }
  }

  c10::Device device_;
  at::Tensor buffer_;
  std::vector<std::int64_t> sizes_;
};

Execution::Execution(const Engine& engine, c10::Device device, std::shared_ptr<LoadedEngine> loaded,
                     const at::Tensor& plan)
    : description_(engine.description()),
      profiles_(engine.profiles()),
      device_(device),
      loaded_(std::move(loaded)),
      no_elements_(make_bytes(256, device)) {
  make_context(engine, plan);
  for (const InputDescription& input : description_.inputs) {
    const auto dtype = loaded_->engine->getTensorDataType(input.name.c_str());
    inputs_.push_back({input.name, scalar_type(dtype, description_.name), kUnset});
  }
  add_outputs();
}

Execution::~Execution() = default;

void Execution::make_context(const Engine& engine, const at::Tensor& plan) {
#if NV_TENSORRT_MAJOR < 10
  if (profiles_.size() > 1) loaded_ = nullptr;  // its contexts would take the profiles from each other
#endif
  if (!loaded_) loaded_ = engine.load(plan);
  const ErrorLog log;
  context_.reset(loaded_->engine->createExecutionContext());
  if (context_ && context_->getOptimizationProfile() < 0) {
    // The profile of this plan serves one context, so this one gets an engine of its own.
    context_.reset();
    loaded_ = engine.load(plan);
    context_.reset(loaded_->engine->createExecutionContext());
  }
  if (!context_) {
    fail("TensorRT " + tensorrt_version() + " could not load the engine of " + description_.name + ": " + log.text());
  }
}

void Execution::add_outputs() {
  for (const OutputDescription& described : description_.outputs) {
    const char* name = described.name.c_str();
    Output output;
    output.name = described.name;
    output.dtype = scalar_type(loaded_->engine->getTensorDataType(name), description_.name);
    output.wanted = scalar_type(described.dtype, description_.name);
    if (description_.requires_output_allocator) {
      output.allocator = std::make_unique<OutputAllocator>(device_);
      context_->setOutputAllocator(name, output.allocator.get());
    }
#if TORCHTRT_HAS(10, 15)
    const char* cache = loaded_->engine->getAliasedInputTensor(name);
    for (std::size_t index = 0; cache != nullptr && index < inputs_.size(); ++index) {
      if (inputs_[index].name == cache) output.cache = index;
    }
#endif
    outputs_.push_back(std::move(output));
  }
}

std::vector<at::Tensor> Execution::run(at::TensorList inputs, void* stream) {
  for (const at::Tensor& tensor : inputs) {
    if (tensor.device() != device_) {
      fail("The inputs of " + description_.name + " are on " + device_.str() + " and " + tensor.device().str() +
           "; move them to one device.");
    }
  }
  if (!has_shapes(inputs)) set_shapes(inputs, stream);
  const std::vector<at::Tensor> prepared = prepare(inputs);  // alive until the engine has been enqueued
  bind_inputs(prepared);
  std::vector<at::Tensor> outputs = bind_outputs(prepared);
  const ErrorLog log;
  if (!context_->enqueueV3(static_cast<cudaStream_t>(stream))) {
    fail("The engine of " + description_.name + " failed: " + log.text());
  }
  for (std::size_t index = 0; index < outputs_.size(); ++index) {
    const Output& output = outputs_[index];
    if (output.allocator) outputs[index] = output.allocator->take(output.dtype);
    if (output.dtype != output.wanted) outputs[index] = outputs[index].to(output.wanted);
  }
  return outputs;
}

/// Returns inputs as the engine takes them: 64 bits become 32 where TensorRT has no more.
std::vector<at::Tensor> Execution::prepare(at::TensorList inputs) const {
  std::vector<at::Tensor> prepared;
  prepared.reserve(inputs.size());
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    const Input& bound = inputs_[index];
    const at::Tensor& tensor = inputs[index];
    if (tensor.is_floating_point() && !c10::isFloatingType(bound.dtype)) {  // fractions would be cut off
      const std::string dtype = dtype_text(tensor.scalar_type());
      fail("PyTorch computed " + dtype + " for the input '" + bound.name + "' of " + description_.name +
           ", and had traced it as an integer. Convert it in the model, with .to(" + dtype + "), before it is used.");
    }
    // Zeros of PyTorch's forward mode have no memory.
    const at::Tensor stored = tensor._is_zerotensor() ? tensor.clone() : tensor;
    prepared.push_back(stored.to(bound.dtype).resolve_neg().contiguous());
  }
  return prepared;
}

bool Execution::has_shapes(at::TensorList inputs) const {
  return has_set_shapes_ && std::equal(inputs.begin(), inputs.end(), shapes_.begin(),
                                       [](const at::Tensor& tensor, const std::vector<std::int64_t>& shape) {
                                         return tensor.sizes().equals(shape);
                                       });
}

/// Sets the shapes of the inputs in the context, and reads those of its outputs.
void Execution::set_shapes(at::TensorList inputs, void* stream) {
  has_set_shapes_ = false;
  const std::string what = "The engine of " + description_.name;
  shapes_.clear();
  for (const at::Tensor& tensor : inputs) shapes_.push_back(tensor.sizes().vec());
  if (profiles_.size() > 1) select_profile(stream);
  for (std::size_t index = 0; index < inputs_.size(); ++index) {
    const ErrorLog log;
    const auto& shape = shapes_[index];
    nvinfer1::Dims dims{};
    const bool has_room = shape.size() <= static_cast<std::size_t>(nvinfer1::Dims::MAX_DIMS);
    dims.nbDims = static_cast<std::int32_t>(shape.size());
    if (has_room) std::copy(shape.begin(), shape.end(), dims.d);
    if (!has_room || !context_->setInputShape(inputs_[index].name.c_str(), dims)) refuse_shape(index, log);
  }
  const ErrorLog log;
  std::vector<const char*> missing(inputs_.size());
  const int count = context_->inferShapes(static_cast<std::int32_t>(missing.size()), missing.data());
  if (count < 0) fail(what + " has no result for these shapes: " + log.text());
  if (count > 0) {
    std::string names;
    for (int index = 0; index < count; ++index) names += (index == 0 ? "" : ", ") + std::string(missing[index]);
    fail(what + " lacks the shapes of " + names + ".");
  }
  for (Output& output : outputs_) {
    if (!output.allocator) output.sizes = sizes_of(context_->getTensorShape(output.name.c_str()));
  }
  has_set_shapes_ = true;
}

void Execution::refuse_shape(std::size_t index, const ErrorLog& log) const {
  std::vector<std::string> ranges;
  for (const Ranges& sizes : description_.inputs[index].ranges) {
    const std::string text = ranges_text(sizes);
    if (std::find(ranges.begin(), ranges.end(), text) == ranges.end()) ranges.push_back(text);
  }
  std::string built;
  for (const std::string& text : ranges) built += (built.empty() ? "" : " or ") + text;
  fail("The engine of " + description_.name + " refused the shape " + shape_text(shapes_[index]) + " of its input '" +
       inputs_[index].name + "'; it was built for " + built + ": " + log.text() + ".");
}

/// Switches to the first profile that takes the shapes, if one does.
void Execution::select_profile(void* stream) {
  const auto takes = [](const Ranges& ranges, const std::vector<std::int64_t>& shape) {
    return std::equal(ranges.begin(), ranges.end(), shape.begin(), shape.end(),
                      [](const SizeRange& range, std::int64_t size) { return range.min <= size && size <= range.max; });
  };
  const auto chosen = std::find_if(profiles_.begin(), profiles_.end(), [&](const std::vector<Ranges>& profile) {
    return std::equal(profile.begin(), profile.end(), shapes_.begin(), takes);
  });
  const auto index = static_cast<int>(chosen - profiles_.begin());
  if (chosen == profiles_.end() || context_->getOptimizationProfile() == index) return;
  context_->setOptimizationProfileAsync(index, static_cast<cudaStream_t>(stream));
  for (Input& input : inputs_) input.address = kUnset;
}

void Execution::bind_inputs(const std::vector<at::Tensor>& inputs) {
  for (std::size_t index = 0; index < inputs.size(); ++index) {
    Input& bound = inputs_[index];
    void* address = address_of(inputs[index]);
    if (address != bound.address) {
      context_->setTensorAddress(bound.name.c_str(), address);
      bound.address = address;
    }
  }
}

/// Returns memory for the outputs whose sizes are known, and gives the engine its addresses.
std::vector<at::Tensor> Execution::bind_outputs(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs(outputs_.size());
  for (std::size_t index = 0; index < outputs_.size(); ++index) {
    const Output& output = outputs_[index];
    if (output.allocator) continue;
    outputs[index] = at::empty(output.sizes, at::TensorOptions().dtype(output.dtype).device(device_));
    context_->setTensorAddress(output.name.c_str(), address_of(outputs[index]));
    if (output.cache) {
      // The engine writes into the cache: it gets a copy, in the memory of the output.
      outputs[index].copy_(inputs[*output.cache]);
      Input& bound = inputs_[*output.cache];
      context_->setTensorAddress(bound.name.c_str(), address_of(outputs[index]));
      bound.address = kUnset;
    }
  }
  return outputs;
}

void* Execution::address_of(const at::Tensor& tensor) const {
  return tensor.numel() == 0 ? no_elements_.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
}

}  // namespace torchtrt
