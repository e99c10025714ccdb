// A stand-in for the classes of TensorRT's runtime that the library calls, so that tests run without TensorRT.
//
// It is this project's own. Its "plans" are texts, which stand_in.cpp describes, and its engines compute on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#define NV_TENSORRT_MAJOR 10
#define NV_TENSORRT_MINOR 16
#define NV_TENSORRT_PATCH 1

struct CUstream_st;
using cudaStream_t = CUstream_st*;

extern "C" {
int32_t getInferLibMajorVersion() noexcept;
int32_t getInferLibMinorVersion() noexcept;
int32_t getInferLibPatchVersion() noexcept;
int32_t getInferLibBuildVersion() noexcept;
}

namespace nvinfer1 {

enum class DataType : int32_t {
  kFLOAT = 0, kHALF = 1, kINT8 = 2, kINT32 = 3, kBOOL = 4, kUINT8 = 5, kFP8 = 6, kBF16 = 7, kINT64 = 8, kINT4 = 9
};

struct Dims {
  static constexpr int32_t MAX_DIMS{8};
  int32_t nbDims;
  int64_t d[MAX_DIMS];
};

class ILogger {
 public:
  enum class Severity : int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };
  virtual void log(Severity severity, char const* message) noexcept = 0;
  virtual ~ILogger() = default;
};

class IOutputAllocator {
 public:
  virtual void* reallocateOutputAsync(
      char const* name, void* memory, uint64_t size, uint64_t alignment, cudaStream_t stream) = 0;
  virtual void notifyShape(char const* name, Dims const& dims) noexcept = 0;
  virtual ~IOutputAllocator() = default;
};

class IExecutionContext {
 public:
  virtual ~IExecutionContext() = default;
  virtual int32_t getOptimizationProfile() const noexcept = 0;
  virtual bool setOptimizationProfileAsync(int32_t index, cudaStream_t stream) noexcept = 0;
  virtual bool setInputShape(char const* name, Dims const& dims) noexcept = 0;
  virtual int32_t inferShapes(int32_t count, char const** names) noexcept = 0;
  virtual Dims getTensorShape(char const* name) const noexcept = 0;
  virtual bool setTensorAddress(char const* name, void* address) noexcept = 0;
  virtual bool setOutputAllocator(char const* name, IOutputAllocator* allocator) noexcept = 0;
  virtual bool enqueueV3(cudaStream_t stream) noexcept = 0;
};

class ICudaEngine {
 public:
  virtual ~ICudaEngine() = default;
  virtual DataType getTensorDataType(char const* name) const noexcept = 0;
  virtual IExecutionContext* createExecutionContext() noexcept = 0;
  virtual int64_t getStreamableWeightsSize() const noexcept = 0;
  virtual int64_t getWeightStreamingAutomaticBudget() const noexcept = 0;
  virtual bool setWeightStreamingBudgetV2(int64_t bytes) noexcept = 0;
  virtual char const* getAliasedInputTensor(char const* name) const noexcept = 0;
};

class IRuntime {
 public:
  virtual ~IRuntime() = default;
  virtual void setEngineHostCodeAllowed(bool allowed) noexcept = 0;
  virtual ICudaEngine* deserializeCudaEngine(void const* plan, std::size_t size) noexcept = 0;
};

IRuntime* createInferRuntime(ILogger& logger) noexcept;

}  // namespace nvinfer1
