// What a saved model says of an engine beside its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace torchtrt {

/// The sizes that an engine takes along one dimension, and the one that it was tuned for.
struct SizeRange {
  std::int64_t min;
  std::int64_t opt;
  std::int64_t max;
};

/// The sizes of each dimension of a tensor.
using Ranges = std::vector<SizeRange>;

/// An input of an engine: its name, PyTorch's name of its dtype ("float32"), and its sizes in each range of the model.
struct InputDescription {
  std::string name;
  std::string dtype;
  std::vector<Ranges> ranges;
};

/// An output of an engine: its name, and PyTorch's name of the dtype that the model has for it.
struct OutputDescription {
  std::string name;
  std::string dtype;
};

/// An engine as `torchtrt.save` describes it.
struct EngineDescription {
  std::string name;
  std::string tensorrt;
  std::string gpu;
  std::vector<InputDescription> inputs;
  std::vector<OutputDescription> outputs;
  bool requires_output_allocator = false;
  bool is_version_compatible = false;
  bool is_hardware_compatible = false;
  std::int64_t plan_bytes = 0;
  std::int64_t plan_crc32 = 0;

  /// Returns the description in a text; an EngineError where it is none, or asks for what only Python has.
  static EngineDescription parse(const std::string& text);

  /// Checks the size and the checksum of a plan; an EngineError where it is damaged.
  void check_plan(const void* plan, std::size_t size) const;

  /// Returns the engine's optimization profiles: for each, the sizes of all inputs. Equal ones are one.
  std::vector<std::vector<Ranges>> profiles() const;
};

/// Returns a shape as Python writes it: "(3,)".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// Returns sizes as the messages have them: "(1 to 4, 8)".
std::string ranges_text(const Ranges& ranges);

}  // namespace torchtrt
