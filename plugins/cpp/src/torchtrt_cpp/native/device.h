// What differs between the CPU and GPUs: the only part of the library that calls CUDA.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace torchtrt {

/// The kind of device that runs engines.
#ifdef TORCHTRT_CUDA
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::CUDA;
#else
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::CPU;  // of a stand-in for TensorRT, in tests
#endif

/// A GPU: its name, empty where there is none, and its compute capability.
struct Gpu {
  std::string name;
  int major = 0;
  int minor = 0;
};

/// Returns the GPU in use.
Gpu current_gpu();

/// Returns the current stream of a device; null on the CPU.
void* current_stream(c10::Device device);

/// Returns whether a CUDA graph records a stream.
bool is_capturing(void* stream);

}  // namespace torchtrt
