// Runs a model on a tensor of ones. In Python, the model was saved by
// torchtrt.save(compiled, "model.pt2", format="aot_inductor").
//
//   run_model model.pt2 4 8      with the sizes of its input
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torchtrt/torchtrt.h>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " model.pt2 [size ...]" << std::endl;
    return 2;
  }
  std::vector<std::int64_t> sizes;
  for (int index = 2; index < argc; ++index) sizes.push_back(std::stoll(argv[index]));
  try {
    const c10::InferenceMode inference;
    torch::inductor::AOTIModelPackageLoader model(argv[1]);
    const at::Device device(at::hasCUDA() ? at::kCUDA : at::kCPU);
    for (const at::Tensor& output : model.run({at::ones(sizes, device)})) {
      std::cout << output << std::endl;
    }
    std::cout << "TensorRT " << torchtrt::tensorrt_version()
              << ", engines in memory: " << torchtrt::loaded_engines() << std::endl;
  } catch (const std::exception& error) {
    const std::string reason = torchtrt::last_error();
    std::cerr << (reason.empty() ? error.what() : reason) << std::endl;
    return 1;
  }
}
