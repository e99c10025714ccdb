#include "json.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace torchtrt {

namespace {
constexpr int kDeepest = 512;
}

/// Reads one text from its begin to its end.
class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : at_(text.c_str()), end_(at_ + text.size()) {}

  Json read_all() {
    Json value = read(0);
    skip_spaces();
    if (at_ != end_) fail();
    return value;
  }

 private:
  [[noreturn]] static void fail() { throw JsonError("This text is no JSON."); }

  void skip_spaces() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_) != nullptr && *at_ != '\0') ++at_;
  }

  char next() {
    skip_spaces();
    if (at_ == end_) fail();
    return *at_;
  }

  void take(const char* word) {
    const std::size_t length = std::strlen(word);
    if (static_cast<std::size_t>(end_ - at_) < length || std::strncmp(at_, word, length) != 0) fail();
    at_ += length;
  }

  Json read(int depth) {
    if (depth > kDeepest) fail();
    Json value;
    switch (next()) {
      case '{':
        read_object(value, depth);
        break;
      case '[':
        read_list(value, depth);
        break;
      case '"':
        value.kind_ = Json::Kind::kText;
        value.text_ = read_text();
        break;
      case 't':
        take("true");
        value.kind_ = Json::Kind::kBool;
        value.boolean_ = true;
        break;
      case 'f':
        take("false");
        value.kind_ = Json::Kind::kBool;
        break;
      case 'n':
        take("null");
        break;
      default:
        read_number(value);
    }
    return value;
  }

  void read_object(Json& value, int depth) {
    value.kind_ = Json::Kind::kObject;
    take("{");
    if (next() == '}') {
      ++at_;
      return;
    }
    while (true) {
      if (next() != '"') fail();
      std::string name = read_text();
      next();
      take(":");
      value.object_[name] = read(depth + 1);
      if (next() == '}') break;
      take(",");
    }
    ++at_;
  }

  void read_list(Json& value, int depth) {
    value.kind_ = Json::Kind::kList;
    take("[");
    if (next() == ']') {
      ++at_;
      return;
    }
    while (true) {
      value.list_.push_back(read(depth + 1));
      if (next() == ']') break;
      take(",");
    }
    ++at_;
  }

  void read_number(Json& value) {
    // A text ends with a null character, so that these functions stop there.
    char* integer_end = nullptr;
    char* real_end = nullptr;
    if (std::strchr("-0123456789", *at_) == nullptr) fail();
    errno = 0;
    value.integer_ = std::strtoll(at_, &integer_end, 10);
    const bool overflows = errno == ERANGE;
    std::strtod(at_, &real_end);
    if (real_end == at_ || real_end > end_) fail();
    value.kind_ = real_end == integer_end && !overflows ? Json::Kind::kInteger : Json::Kind::kReal;
    at_ = real_end;
  }

  unsigned read_code_unit() {
    if (end_ - at_ < 4) fail();
    char* end = nullptr;
    const std::string digits(at_, 4);
    const unsigned long code = std::strtoul(digits.c_str(), &end, 16);
    if (end != digits.c_str() + 4) fail();
    at_ += 4;
    return static_cast<unsigned>(code);
  }

  static void append_utf8(std::string& text, unsigned code) {
    if (code < 0x80) {
      text += static_cast<char>(code);
      return;
    }
    const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static constexpr unsigned kFirst[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kFirst[more] | (code >> (6 * more)));
    for (int shift = 6 * (more - 1); shift >= 0; shift -= 6) {
      text += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
    }
  }

  void read_escape(std::string& text) {
    if (at_ == end_) fail();
    const char escape = *at_++;
    static constexpr char kNames[] = "\"\\/bfnrt";
    static constexpr char kValues[] = "\"\\/\b\f\n\r\t";
    if (escape == 'u') {
      unsigned code = read_code_unit();
      if (code >= 0xD800 && code < 0xDC00) {
        take("\\u");
        code = 0x10000 + ((code - 0xD800) << 10) + (read_code_unit() & 0x3FF);
      }
      append_utf8(text, code);
      return;
    }
    const char* name = escape == '\0' ? nullptr : std::strchr(kNames, escape);
    if (name == nullptr) fail();
    text += kValues[name - kNames];
  }

  std::string read_text() {
    take("\"");
    std::string text;
    while (at_ != end_ && *at_ != '"') {
      if (*at_ == '\\') {
        ++at_;
        read_escape(text);
      } else {
        text += *at_++;
      }
    }
    take("\"");
    return text;
  }

  const char* at_;
  const char* end_;
};

Json Json::parse(const std::string& text) { return JsonReader(text).read_all(); }

void Json::expect(Kind kind) const {
  if (kind_ != kind) throw JsonError("A value is of another kind.");
}

bool Json::boolean() const {
  expect(Kind::kBool);
  return boolean_;
}

std::int64_t Json::integer() const {
  expect(Kind::kInteger);
  return integer_;
}

const std::string& Json::text() const {
  expect(Kind::kText);
  return text_;
}

const std::vector<Json>& Json::list() const {
  expect(Kind::kList);
  return list_;
}

const std::map<std::string, Json>& Json::object() const {
  expect(Kind::kObject);
  return object_;
}

const Json& Json::at(const std::string& name) const {
  const Json* value = find(name);
  if (value == nullptr) throw JsonError("The name " + name + " is missing.");
  return *value;
}

const Json* Json::find(const std::string& name) const {
  const auto& entries = object();
  const auto entry = entries.find(name);
  return entry == entries.end() ? nullptr : &entry->second;
}

bool Json::empty() const {
  switch (kind_) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return !boolean_;
    case Kind::kText:
      return text_.empty();
    case Kind::kList:
      return list_.empty();
    case Kind::kObject:
      return object_.empty();
    default:
      return false;
  }
}

}  // namespace torchtrt
