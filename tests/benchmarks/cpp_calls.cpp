// Times a model that torchtrt.save wrote as TorchScript, and compares its results.
//
//   cpp_calls model.ts values.pt cuda
//
// values.pt is torch.save([inputs, outputs]), each a list of tensors on the CPU. It prints the microseconds of a call,
// and the largest difference from the outputs.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include <torch/script.h>
#include <torchtrt/torchtrt.h>

namespace {

constexpr int kCalls = 500;

std::vector<at::Tensor> tensors_of(const c10::IValue& values, const at::Device& device) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values.toListRef()) tensors.push_back(value.toTensor().to(device));
  return tensors;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    const c10::InferenceMode inference;
    const at::Device device(argv[3]);
    std::ifstream file(argv[2], std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto values = torch::jit::pickle_load(bytes).toListRef().vec();
    const std::vector<at::Tensor> inputs = tensors_of(values[0], device), expected = tensors_of(values[1], device);
    torch::jit::Module model = torch::jit::load(argv[1]);
    const auto call = [&] { return model.forward({inputs.begin(), inputs.end()}).toTuple(); };
    auto results = call();
    double difference = 0;
    for (std::size_t index = 0; index < expected.size(); ++index) {
      const at::Tensor result = results->elements()[index].toTensor();
      difference = std::max(difference, (result - expected[index]).abs().max().item<double>());
    }
    for (int number = 0; number < 50; ++number) results = call();
    results->elements()[0].toTensor().cpu();  // waits for the GPU
    const auto start = std::chrono::steady_clock::now();
    for (int number = 0; number < kCalls; ++number) results = call();
    results->elements()[0].toTensor().cpu();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    std::cout << time.count() / kCalls << " " << difference << std::endl;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n" << torchtrt::last_error() << std::endl;
    return 1;
  }
}
