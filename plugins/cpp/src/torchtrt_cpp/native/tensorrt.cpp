#include "tensorrt.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <regex>
#include <set>
#include <utility>

#include "device.h"
#include "errors.h"

namespace torchtrt {

namespace {

constexpr char kReal[] = "TensorRT ";

thread_local ErrorLog* open_log = nullptr;

std::mutex unowned_mutex;
std::string unowned_error;  // the last one of a thread of TensorRT's own

const std::pair<const char*, const char*> kRemedies[] = {
    {"out ?of ?memory|memory .*could not be allocated",
     "The GPU has no memory left for it: free what others hold (nvidia-smi shows who), or compile for smaller sizes."},
    {"illegal (memory|address)|launch failure|uncorrectable|no CUDA-capable|device.* lost",
     "This process can use the GPU no more: look at nvidia-smi, and start another process."},
    {"load library: libnvinfer_(lean|dispatch|builder_resource)",
     "Install that library, of TensorRT's own version (engines for later versions need it)."},
};

std::string take_unowned_error() {
  const std::lock_guard<std::mutex> lock(unowned_mutex);
  return std::exchange(unowned_error, {});
}

/// Gives errors to the log that is open in their thread.
class ForwardingLogger : public nvinfer1::ILogger {
 public:
  void log(Severity severity, const char* message) noexcept override {
    if (severity > Severity::kERROR) return;
    if (open_log != nullptr) {
      open_log->add(message);
      return;
    }
    const std::lock_guard<std::mutex> lock(unowned_mutex);
    unowned_error = message;
  }
};

/// Returns the version of the library that is loaded, as numbers.
std::vector<int> version_here() {
#if NV_TENSORRT_MAJOR >= 10
  return {getInferLibMajorVersion(), getInferLibMinorVersion(), getInferLibPatchVersion(), getInferLibBuildVersion()};
#else
  const int version = getInferLibVersion();
  return {version / 1000, version / 100 % 10, version % 100};
#endif
}

/// Returns the numbers at the begin of a version: of "8.6.1.post1", 8, 6 and 1.
std::vector<int> numbers_of(const std::string& version) {
  std::vector<int> numbers;
  std::size_t at = 0;
  while (at < version.size() && std::isdigit(static_cast<unsigned char>(version[at])) != 0) {
    std::size_t end = at;
    while (end < version.size() && std::isdigit(static_cast<unsigned char>(version[end])) != 0) ++end;
    numbers.push_back(std::atoi(version.substr(at, end - at).c_str()));
    at = end + 1;
  }
  return numbers;
}

void check_version(const EngineDescription& engine, const std::string& what) {
  std::vector<int> built = numbers_of(engine.tensorrt.substr(sizeof(kReal) - 1));
  std::vector<int> here = version_here();
  const std::size_t count = std::min(built.size(), here.size());  // TensorRT 8.6 does not name its build
  built.resize(count);
  here.resize(count);
  if (here == built || (here > built && engine.is_version_compatible)) return;
  const std::string rule =
      engine.is_version_compatible
          ? "engines that are version compatible load in the version that built them and in later ones"
          : "engines load in the version that built them, unless they are compiled with version_compatible";
  fail(what + " was built by " + engine.tensorrt + ", and this is TensorRT " + tensorrt_version() + ": " + rule +
       ". Install that version, or compile and save the model again.");
}

void check_gpu(const EngineDescription& engine, const std::string& what) {
  if (kDeviceType != c10::DeviceType::CUDA) return;
  constexpr int kAmpere = 8;
  const Gpu gpu = current_gpu();
  if (gpu.name.empty()) fail(what + " was built for an " + engine.gpu + ", and PyTorch finds no GPU here.");
  const std::string capability = "(" + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ")";
  const std::string& built_on = engine.gpu;
  const bool is_equal = built_on.size() >= capability.size() &&
                        built_on.compare(built_on.size() - capability.size(), capability.size(), capability) == 0;
  if (engine.is_hardware_compatible ? gpu.major >= kAmpere : is_equal) return;
  const std::string rule =
      engine.is_hardware_compatible
          ? "Engines that are hardware compatible run on GPUs of compute capability 8.0 and later"
          : "Engines run on GPUs of the compute capability that they were built for, unless they are compiled with "
            "hardware_compatible";
  fail(what + " was built for an " + built_on + ", and this is an " + gpu.name + " " + capability + ". " + rule +
       ": compile and save the model here.");
}

const std::pair<const char*, c10::ScalarType> kDtypes[] = {
    {"float32", c10::ScalarType::Float},
    {"float16", c10::ScalarType::Half},
    {"bfloat16", c10::ScalarType::BFloat16},
    {"float64", c10::ScalarType::Double},
    {"int64", c10::ScalarType::Long},
    {"int32", c10::ScalarType::Int},
    {"int16", c10::ScalarType::Short},
    {"int8", c10::ScalarType::Char},
    {"uint8", c10::ScalarType::Byte},
    {"bool", c10::ScalarType::Bool},
    {"complex64", c10::ScalarType::ComplexFloat},
    {"complex128", c10::ScalarType::ComplexDouble},
    {"float8_e4m3fn", c10::ScalarType::Float8_e4m3fn},
    {"float8_e5m2", c10::ScalarType::Float8_e5m2},
};

}  // namespace

ErrorLog::ErrorLog() : outer_(std::exchange(open_log, this)) {}

ErrorLog::~ErrorLog() { open_log = outer_; }

void ErrorLog::add(const std::string& message) {
  if (std::find(errors_.begin(), errors_.end(), message) == errors_.end()) errors_.push_back(message);
}

std::string ErrorLog::text() const {
  std::string text;
  for (const std::string& error : errors_) text += (text.empty() ? "" : "; ") + error;
  if (text.empty()) text = take_unowned_error();
  if (text.empty()) text = "it logged no reason";
  const std::string reason = text;
  for (const auto& [cause, remedy] : kRemedies) {
    if (std::regex_search(reason, std::regex(cause, std::regex::icase))) text += std::string(" ") + remedy;
  }
  return text;
}

nvinfer1::ILogger& logger() {
  static ForwardingLogger& shared = *new ForwardingLogger;  // engines may outlive it
  return shared;
}

std::string tensorrt_version() {
  std::string text;
  for (const int number : version_here()) text += (text.empty() ? "" : ".") + std::to_string(number);
  return text;
}

void check_tensorrt(const EngineDescription& engine) {
  const std::string what = "The engine of " + engine.name;
  if (engine.tensorrt.rfind(kReal, 0) != 0) {
    fail(what + " was built by " + engine.tensorrt + ", which is not here. This library runs engines of TensorRT " +
         tensorrt_version() + ": compile the model with it, and save the model again.");
  }
  check_version(engine, what);
  check_gpu(engine, what);
}

c10::ScalarType scalar_type(nvinfer1::DataType dtype, const std::string& engine) {
  switch (dtype) {
    case nvinfer1::DataType::kFLOAT:
      return c10::ScalarType::Float;
    case nvinfer1::DataType::kHALF:
      return c10::ScalarType::Half;
    case nvinfer1::DataType::kINT8:
      return c10::ScalarType::Char;
    case nvinfer1::DataType::kINT32:
      return c10::ScalarType::Int;
    case nvinfer1::DataType::kBOOL:
      return c10::ScalarType::Bool;
    case nvinfer1::DataType::kUINT8:
      return c10::ScalarType::Byte;
    case nvinfer1::DataType::kFP8:
      return c10::ScalarType::Float8_e4m3fn;
#if NV_TENSORRT_MAJOR >= 10
    case nvinfer1::DataType::kBF16:
      return c10::ScalarType::BFloat16;
    case nvinfer1::DataType::kINT64:
      return c10::ScalarType::Long;
#endif
    default:
      fail("The engine of " + engine + " has an input or an output of a dtype that this library does not know. "
           "Build the library with the headers of the TensorRT that built the engine.");
  }
}

c10::ScalarType scalar_type(const std::string& name, const std::string& engine) {
  for (const auto& [known, dtype] : kDtypes) {
    if (name == known) return dtype;
  }
  fail("The description of the engine of " + engine + " is unreadable. Save the model again.");
}

std::string dtype_text(c10::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (dtype == known) return std::string("torch.") + name;
  }
  return c10::toString(dtype);
}

LoadedEngine::LoadedEngine(const EngineDescription& description, const void* plan, std::size_t size)
    : runtime(nvinfer1::createInferRuntime(logger())) {
  if (!runtime) return;
  if (description.is_version_compatible) runtime->setEngineHostCodeAllowed(true);  // the plan brings what runs it
  engine.reset(runtime->deserializeCudaEngine(plan, size));
#if TORCHTRT_HAS(10, 1)
  if (engine && engine->getStreamableWeightsSize() > 0) {
    engine->setWeightStreamingBudgetV2(engine->getWeightStreamingAutomaticBudget());
  }
#endif
}

}  // namespace torchtrt
