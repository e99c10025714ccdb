#include "device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#ifdef TORCHTRT_CUDA
#include <cuda_runtime_api.h>
#endif

namespace torchtrt {

void* current_stream(c10::Device device) {
  if (!device.is_cuda()) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

#ifdef TORCHTRT_CUDA

Gpu current_gpu() {
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    cudaGetLastError();  // which PyTorch would report in its next call
    return {};
  }
  return {properties.name, properties.major, properties.minor};
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status);
  return error == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

#else

Gpu current_gpu() { return {}; }

bool is_capturing(void*) { return false; }

#endif

}  // namespace torchtrt
