// Runs the library where AddressSanitizer watches: each file is compiled into this program.
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "description.cpp"
#include "device.cpp"
#include "engine.cpp"
#include "errors.cpp"
#include "execution.cpp"
#include "json.cpp"
#include "operator.cpp"
#include "tensorrt.cpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

extern "C" void stand_in_live(int* counts);

namespace {

using Run = std::vector<at::Tensor>(at::TensorList, const at::Tensor&, c10::string_view);

int failures = 0;

void expect(bool is_true, const std::string& what) {
  if (!is_true) ++failures, std::cerr << "wrong: " << what << std::endl;
}

const c10::TypedOperatorHandle<Run>& op() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("torchtrt::execute_engine", "").typed<Run>();
  return handle;
}

at::Tensor plan_of(const std::string& text) {
  at::Tensor plan = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), plan.mutable_data_ptr<std::uint8_t>());
  return plan;
}

std::string describe(const std::string& plan, bool allocates) {
  return R"({"name": "block_0", "tensorrt": "TensorRT 10.16.1.11", "gpu": "", "inputs": [{"name": "x", "dtype":
    "float32", "ranges": [[[0], [4], [8]], [[16], [16], [32]]]}], "outputs": [{"name": "y", "dtype": "float32"}],
    "requires_output_allocator": )" + std::string(allocates ? "true" : "false") + R"(, "converted_by": {},
    "plan_bytes": )" + std::to_string(plan.size()) + R"(, "plan_crc32": )" +
         std::to_string(torchtrt::crc32(plan.data(), plan.size())) + "}";
}

void run(const at::Tensor& plan, const std::string& description, std::int64_t count) {
  const at::Tensor x = at::full({count}, static_cast<float>(count));
  const at::Tensor y = op().call({x}, plan, description).at(0);
  expect(at::equal(y, at::full({count}, 2.0F * static_cast<float>(count) + 1)), "the values of " + std::to_string(count));
}

void refuse(const at::Tensor& plan, const std::string& description, std::int64_t count) {
  try {
    run(plan, description, count);
    expect(false, "no error for " + std::to_string(count));
  } catch (const torchtrt::EngineError& error) {
    expect(torchtrt::last_error() == error.what(), "the last error");
  }
}

void run_all(const std::string& kind, bool allocates) {
  const std::string text =
      "stand-in plan\ninput x float32\nprofile x 0 8\nprofile x 16 32\n" + kind + " y float32 x 2 1\n";
  const at::Tensor plan = plan_of(text);
  const std::string description = describe(text, allocates);
  std::vector<std::thread> threads;
  for (int number = 0; number < 8; ++number) {
    threads.emplace_back([&, number] {
      for (int call = 0; call < 50; ++call) run(plan, description, (number + call) % 9 + (call % 2) * 16);
    });
  }
  for (std::thread& thread : threads) thread.join();
  refuse(plan, description, 12);
  run(plan, description, 3);
  expect(torchtrt::loaded_engines() == 1, "one engine for one plan");
  refuse(plan_of("stand-in plan\nrefuse this\n"), describe("stand-in plan\nrefuse this\n", false), 3);
  const std::string failing = text + "fail this\n";
  refuse(plan_of(failing), describe(failing, allocates), 3);
  refuse(plan_of(text + " "), description, 3);
  refuse(plan, "{", 3);
}

}  // namespace

int main() {
  run_all("output", false);
  run_all("exclusive\noutput", false);
  run_all("positives", true);
  run_all("update", false);
  expect(torchtrt::loaded_engines() == 0, "no engine without a plan");
  int counts[4] = {};
  stand_in_live(counts);
  expect(counts[0] == 0 && counts[1] == 0 && counts[2] == 0, "what is left");
  std::cout << (failures == 0 ? "passed" : "failed") << std::endl;
  return failures == 0 ? 0 : 1;
}
