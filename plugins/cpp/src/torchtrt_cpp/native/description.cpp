#include "description.h"

#include <algorithm>
#include <array>
#include <set>

#include "errors.h"
#include "json.h"

namespace torchtrt {

namespace {

constexpr char kAgain[] = " Save the model again.";

const std::set<std::string> kKnown{
    "name", "tensorrt", "gpu", "inputs", "outputs", "requires_output_allocator", "converted_by", "weights",
    "compatible", "compute_capabilities", "collectives", "plugins", "stripped", "plan_bytes", "plan_crc32"};

/// Refuses what the engine needs of Python.
void check_fields(const Json& data, const std::string& what) {
  const std::pair<const char*, const char*> refused[] = {
      {"stripped",
       " has no weights: the model was compiled with strip_engine_weights, and only torchtrt.load in Python "
       "supplies them. Compile the model without this setting."},
      {"collectives",
       " exchanges tensors with other processes, which torchtrt.load in Python does. Compile the model for one "
       "process."},
  };
  for (const auto& [name, reason] : refused) {
    const Json* value = data.find(name);
    if (value != nullptr && !value->empty()) fail(what + reason);
  }
  const Json* plugins = data.find("plugins");
  if (plugins != nullptr && !plugins->empty()) {
    for (const Json& plugin : plugins->list()) {
      const Json* kernel = plugin.kind() == Json::Kind::kObject ? plugin.find("kernel") : nullptr;
      if (kernel == nullptr || kernel->empty()) {
        fail(what + " runs kernels of a pack, which Python registers with TensorRT. Let the pack compile them ahead of "
                    "time (aot=), or compile the model without kernels in engines, so that PyTorch runs these ops.");
      }
    }
  }
  for (const auto& [name, value] : data.object()) {
    if (kKnown.count(name) == 0 && !value.empty()) {
      fail(what + " is described by the field '" + name +
           "', which this library does not know. Build the library of the torchtrt that saved the model.");
    }
  }
}

Ranges read_ranges(const Json& min, const Json& opt, const Json& max) {
  Ranges ranges;
  for (std::size_t dim = 0; dim < min.list().size(); ++dim) {
    ranges.push_back({min.list()[dim].integer(), opt.list().at(dim).integer(), max.list().at(dim).integer()});
  }
  return ranges;
}

InputDescription read_input(const Json& data) {
  InputDescription input{data.at("name").text(), data.at("dtype").text(), {}};
  const Json* all = data.find("ranges");
  if (all != nullptr && !all->empty()) {
    for (const Json& entry : all->list()) {
      const auto& bounds = entry.list();
      input.ranges.push_back(read_ranges(bounds.at(0), bounds.at(1), bounds.at(2)));
    }
    return input;
  }
  // Files that were written when engines had one range each have it as three entries.
  input.ranges.push_back(read_ranges(data.at("min"), data.at("opt"), data.at("max")));
  return input;
}

bool lists(const Json& data, const char* field, const char* word) {
  const Json* words = data.find(field);
  if (words == nullptr || words->empty()) return false;
  return std::any_of(words->list().begin(), words->list().end(),
                     [&](const Json& entry) { return entry.text() == word; });
}

std::uint32_t crc32(const void* data, std::size_t size) {
  using Table = std::array<std::uint32_t, 256>;
  static const std::array<Table, 8> tables = [] {  // for eight bytes at a time: plans are large
    std::array<Table, 8> made{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      std::uint32_t value = byte;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? 0xEDB88320U ^ (value >> 1) : value >> 1;
      made[0][byte] = value;
    }
    for (std::size_t index = 1; index < 8; ++index) {
      for (std::size_t byte = 0; byte < 256; ++byte) {
        const std::uint32_t before = made[index - 1][byte];
        made[index][byte] = made[0][before & 0xFF] ^ (before >> 8);
      }
    }
    return made;
  }();
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t value = 0xFFFFFFFFU;
  for (; size >= 8; size -= 8, bytes += 8) {
    std::uint32_t next = 0;
    for (int index = 0; index < 4; ++index) {
      next ^= tables[static_cast<std::size_t>(7 - index)][((value >> (8 * index)) & 0xFF) ^ bytes[index]];
      next ^= tables[static_cast<std::size_t>(3 - index)][bytes[4 + index]];
    }
    value = next;
  }
  for (; size > 0; --size, ++bytes) value = tables[0][(value ^ *bytes) & 0xFF] ^ (value >> 8);
  return ~value;
}

bool operator==(const SizeRange& left, const SizeRange& right) {
  return left.min == right.min && left.opt == right.opt && left.max == right.max;
}

}  // namespace

EngineDescription EngineDescription::parse(const std::string& text) {
  EngineDescription engine;
  Json data;
  try {
    data = Json::parse(text);
    engine.name = data.at("name").text();
    engine.tensorrt = data.at("tensorrt").text();
    engine.gpu = data.at("gpu").text();
    data.at("inputs").list();
    data.at("outputs").list();
    data.at("converted_by").object();
    engine.requires_output_allocator = data.at("requires_output_allocator").boolean();
    engine.plan_bytes = data.at("plan_bytes").integer();
    engine.plan_crc32 = data.at("plan_crc32").integer();
  } catch (const JsonError&) {
    fail(std::string("An engine's description is unreadable.") + kAgain);
  }
  check_fields(data, "The engine of " + engine.name);
  try {
    for (const Json& input : data.at("inputs").list()) engine.inputs.push_back(read_input(input));
    for (const Json& output : data.at("outputs").list()) {
      engine.outputs.push_back({output.at("name").text(), output.at("dtype").text()});
    }
    engine.is_version_compatible = lists(data, "compatible", "version");
    engine.is_hardware_compatible = lists(data, "compatible", "hardware");
    for (const InputDescription& input : engine.inputs) {
      if (input.ranges.size() != engine.inputs[0].ranges.size()) throw JsonError("Inputs differ in ranges.");
    }
  } catch (const EngineError&) {
    throw;
  } catch (const std::exception&) {
    fail("The description of the engine of " + engine.name + " is unreadable." + kAgain);
  }
  return engine;
}

void EngineDescription::check_plan(const void* plan, std::size_t size) const {
  const std::string what = "The engine of " + name;
  if (static_cast<std::int64_t>(size) != plan_bytes) {
    fail(what + " has " + std::to_string(size) + " bytes instead of " + std::to_string(plan_bytes) +
         ": it is truncated." + kAgain);
  }
  if (static_cast<std::int64_t>(crc32(plan, size)) != plan_crc32) {
    fail(what + " is damaged: its checksum does not match." + kAgain);
  }
}

std::vector<std::vector<Ranges>> EngineDescription::profiles() const {
  std::vector<std::vector<Ranges>> distinct;
  const std::size_t count = inputs.empty() ? 0 : inputs[0].ranges.size();
  for (std::size_t index = 0; index < count; ++index) {
    std::vector<Ranges> profile;
    for (const InputDescription& input : inputs) profile.push_back(input.ranges[index]);
    const auto equals = [&](const std::vector<Ranges>& other) {
      return std::equal(other.begin(), other.end(), profile.begin(), [](const Ranges& a, const Ranges& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), operator==);
      });
    };
    if (std::none_of(distinct.begin(), distinct.end(), equals)) distinct.push_back(profile);
  }
  return distinct;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(shape[dim]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string ranges_text(const Ranges& ranges) {
  std::string text = "(";
  for (std::size_t dim = 0; dim < ranges.size(); ++dim) {
    text += (dim == 0 ? "" : ", ") + std::to_string(ranges[dim].min);
    if (ranges[dim].min < ranges[dim].max) text += " to " + std::to_string(ranges[dim].max);
  }
  return text + ")";
}

}  // namespace torchtrt
