// The stand-in's engines. A plan is a text of these lines; names and texts have no spaces in them but the last:
//
//   stand-in plan
//   refuse TEXT                       no engine is loaded, and another thread logs TEXT
//   fail TEXT                         no call succeeds, and TEXT is logged
//   exclusive                         a profile serves one context
//   input NAME DTYPE                  float32, int32 or int64
//   profile NAME MIN MAX              the sizes of an input in its next profile: 1,4 8,4
//   output NAME DTYPE INPUT SCALE SHIFT           input * SCALE + SHIFT
//   positives NAME DTYPE INPUT SCALE SHIFT        the same of the elements above 0: their number depends on data
//   update NAME DTYPE INPUT SCALE SHIFT           the same, in the memory of the input
//
// stand_in_live counts what is alive: runtimes, engines and contexts.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "NvInfer.h"

using namespace nvinfer1;

namespace {

std::atomic<int> live_runtimes{0};
std::atomic<int> live_engines{0};
std::atomic<int> live_contexts{0};
std::atomic<int> loads{0};

template <std::atomic<int>& count>
struct Counted {
  Counted() { ++count; }
  Counted(const Counted&) = delete;
  ~Counted() { --count; }
};

using Sizes = std::vector<int64_t>;

struct Input {
  std::string dtype;
  std::vector<std::pair<Sizes, Sizes>> profiles;
};

struct Output {
  std::string kind, name, dtype, input;
  double scale = 1, shift = 0;
};

Sizes read_sizes(const std::string& text) {
  Sizes sizes;
  std::istringstream numbers(text);
  for (std::string number; std::getline(numbers, number, ',');) sizes.push_back(std::stoll(number));
  return sizes;
}

DataType type_of(const std::string& dtype) {
  return dtype == "float32" ? DataType::kFLOAT : dtype == "int32" ? DataType::kINT32 : DataType::kINT64;
}

std::size_t size_of(const std::string& dtype) { return dtype == "int64" ? 8 : 4; }

double element(const void* memory, const std::string& dtype, int64_t index) {
  if (dtype == "float32") return static_cast<const float*>(memory)[index];
  if (dtype == "int32") return static_cast<const int32_t*>(memory)[index];
  return static_cast<double>(static_cast<const int64_t*>(memory)[index]);
}

void set_element(void* memory, const std::string& dtype, int64_t index, double value) {
  if (dtype == "float32") static_cast<float*>(memory)[index] = static_cast<float>(value);
  else if (dtype == "int32") static_cast<int32_t*>(memory)[index] = static_cast<int32_t>(value);
  else static_cast<int64_t*>(memory)[index] = static_cast<int64_t>(value);
}

Dims dims_of(const Sizes& sizes) {
  Dims dims{};
  dims.nbDims = static_cast<int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), dims.d);
  return dims;
}

/// What a plan says.
struct Plan {
  bool is_plan = false, is_exclusive = false;
  std::string refusal, failure;
  std::map<std::string, Input> inputs;
  std::vector<Output> outputs;

  explicit Plan(const std::string& text) {
    std::istringstream lines(text);
    std::string line;
    is_plan = std::getline(lines, line) && line == "stand-in plan";
    while (std::getline(lines, line)) read_line(line);
  }

  void read_line(const std::string& line) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind;
    if (kind == "refuse") refusal = line.substr(7);
    if (kind == "fail") failure = line.substr(5);
    is_exclusive |= kind == "exclusive";
    words >> name;
    if (kind == "input") words >> inputs[name].dtype;
    if (kind == "profile") {
      std::string least, greatest;
      words >> least >> greatest;
      inputs[name].profiles.emplace_back(read_sizes(least), read_sizes(greatest));
    }
    if (kind == "output" || kind == "positives" || kind == "update") {
      Output output{kind, name, {}, {}};
      words >> output.dtype >> output.input >> output.scale >> output.shift;
      outputs.push_back(output);
    }
  }

  const Output* output(const std::string& name) const {
    for (const Output& output : outputs) {
      if (output.name == name) return &output;
    }
    return nullptr;
  }
};

class Engine;

class Context : public IExecutionContext, Counted<live_contexts> {
 public:
  Context(const Plan& plan, ILogger& logger, int32_t profile, std::atomic<int>& users)
      : plan_(plan), logger_(logger), profile_(profile), users_(users) { ++users_; }
  ~Context() override { --users_; }

  int32_t getOptimizationProfile() const noexcept override { return profile_; }

  bool setOptimizationProfileAsync(int32_t index, cudaStream_t) noexcept override {
    profile_ = index;
    shapes_.clear();
    return true;
  }

  bool setInputShape(char const* name, Dims const& dims) noexcept override {
    const auto input = plan_.inputs.find(name);
    if (input == plan_.inputs.end()) return error("there is no input " + std::string(name));
    const Sizes sizes(dims.d, dims.d + dims.nbDims);
    const auto& [least, greatest] = input->second.profiles.at(static_cast<std::size_t>(profile_));
    bool fits = sizes.size() == least.size();
    for (std::size_t dim = 0; fits && dim < sizes.size(); ++dim) {
      fits = least[dim] <= sizes[dim] && sizes[dim] <= greatest[dim];
    }
    if (!fits) return error("the shape is not in profile " + std::to_string(profile_));
    shapes_[name] = sizes;
    return true;
  }

  int32_t inferShapes(int32_t count, char const** names) noexcept override {
    int32_t missing = 0;
    for (const auto& [name, input] : plan_.inputs) {
      if (shapes_.count(name) != 0) continue;
      if (missing < count) names[missing] = name.c_str();
      ++missing;
    }
    return missing;
  }

  Dims getTensorShape(char const* name) const noexcept override {
    const Output* output = plan_.output(name);
    const auto shape = shapes_.find(output == nullptr ? name : output->input);
    return shape == shapes_.end() ? Dims{-1, {}} : dims_of(shape->second);
  }

  bool setTensorAddress(char const* name, void* address) noexcept override {
    addresses_[name] = address;
    return address != nullptr;
  }

  bool setOutputAllocator(char const* name, IOutputAllocator* allocator) noexcept override {
    allocators_[name] = allocator;
    return true;
  }

  bool enqueueV3(cudaStream_t stream) noexcept override {
    if (is_running_.exchange(true)) return error("two threads run one context");
    std::this_thread::yield();
    bool succeeds = plan_.failure.empty() || error(plan_.failure);
    for (const Output& output : plan_.outputs) succeeds = succeeds && compute(output, stream);
    is_running_ = false;
    return succeeds;
  }

 private:
  bool error(const std::string& text) const {
    logger_.log(ILogger::Severity::kERROR, text.c_str());
    return false;
  }

  bool compute(const Output& output, cudaStream_t stream) {
    const std::string& dtype = plan_.inputs.at(output.input).dtype;
    const void* source = addresses_[output.input];
    int64_t count = 1;
    for (const int64_t size : shapes_[output.input]) count *= size;
    if (source == nullptr) return error("the input " + output.input + " has no address");
    std::vector<double> values;
    for (int64_t index = 0; index < count; ++index) {
      const double value = element(source, dtype, index);
      if (output.kind != "positives" || value > 0) values.push_back(value * output.scale + output.shift);
    }
    void* memory = addresses_[output.name];
    if (IOutputAllocator* allocator = allocators_[output.name]) {
      memory = allocator->reallocateOutputAsync(
          output.name.c_str(), nullptr, values.size() * size_of(output.dtype), 256, stream);
      const bool is_known = output.kind != "positives";
      allocator->notifyShape(output.name.c_str(), dims_of(is_known ? shapes_[output.input] : Sizes{static_cast<int64_t>(values.size())}));
    }
    if (memory == nullptr) return error("the output " + output.name + " has no address");
    if (output.kind == "update" && memory != source) return error(output.name + " is not where its input is");
    for (std::size_t index = 0; index < values.size(); ++index) {
      set_element(memory, output.dtype, static_cast<int64_t>(index), values[index]);
    }
    return true;
  }

  const Plan& plan_;
  ILogger& logger_;
  int32_t profile_;
  std::atomic<int>& users_;
  std::atomic<bool> is_running_{false};
  std::map<std::string, Sizes> shapes_;
  std::map<std::string, void*> addresses_;
  std::map<std::string, IOutputAllocator*> allocators_;
};

class Engine : public ICudaEngine, Counted<live_engines> {
 public:
  Engine(Plan plan, ILogger& logger) : plan_(std::move(plan)), logger_(logger) {}

  DataType getTensorDataType(char const* name) const noexcept override {
    const Output* output = plan_.output(name);
    return type_of(output == nullptr ? plan_.inputs.at(name).dtype : output->dtype);
  }

  IExecutionContext* createExecutionContext() noexcept override {
    const bool is_taken = plan_.is_exclusive && contexts_ > 0;
    return new Context(plan_, logger_, is_taken ? -1 : 0, contexts_);
  }

  int64_t getStreamableWeightsSize() const noexcept override { return 0; }
  int64_t getWeightStreamingAutomaticBudget() const noexcept override { return 0; }
  bool setWeightStreamingBudgetV2(int64_t) noexcept override { return false; }

  char const* getAliasedInputTensor(char const* name) const noexcept override {
    const Output* output = plan_.output(name);
    return output != nullptr && output->kind == "update" ? output->input.c_str() : nullptr;
  }

 private:
  Plan plan_;
  ILogger& logger_;
  std::atomic<int> contexts_{0};
};

class Runtime : public IRuntime, Counted<live_runtimes> {
 public:
  explicit Runtime(ILogger& logger) : logger_(logger) {}

  void setEngineHostCodeAllowed(bool) noexcept override {}

  ICudaEngine* deserializeCudaEngine(void const* data, std::size_t size) noexcept override {
    ++loads;
    Plan plan(std::string(static_cast<const char*>(data), size));
    if (!plan.is_plan) plan.refusal = "this is no plan of the stand-in";
    if (!plan.refusal.empty()) {
      std::thread([&] { logger_.log(ILogger::Severity::kERROR, plan.refusal.c_str()); }).join();
      return nullptr;
    }
    return new Engine(std::move(plan), logger_);
  }

 private:
  ILogger& logger_;
};

}  // namespace

IRuntime* nvinfer1::createInferRuntime(ILogger& logger) noexcept { return new Runtime(logger); }

extern "C" {

int32_t getInferLibMajorVersion() noexcept { return NV_TENSORRT_MAJOR; }
int32_t getInferLibMinorVersion() noexcept { return NV_TENSORRT_MINOR; }
int32_t getInferLibPatchVersion() noexcept { return NV_TENSORRT_PATCH; }
int32_t getInferLibBuildVersion() noexcept { return 11; }

/// Returns how many runtimes, engines and contexts are alive, and how many plans were loaded.
void stand_in_live(int* counts) {
  counts[0] = live_runtimes;
  counts[1] = live_engines;
  counts[2] = live_contexts;
  counts[3] = loads;
}
}
