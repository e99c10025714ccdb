// A reader of JSON: as much as the descriptions of engines need.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace torchtrt {

/// A text is no JSON, or a value is of another kind than its reader expects.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A value of JSON. Its accessors throw a JsonError where it is of another kind.
class Json {
 public:
  enum class Kind { kNull, kBool, kInteger, kReal, kText, kList, kObject };

  /// Returns the value that a text describes.
  static Json parse(const std::string& text);

  Kind kind() const { return kind_; }
  bool boolean() const;
  std::int64_t integer() const;
  const std::string& text() const;
  const std::vector<Json>& list() const;
  const std::map<std::string, Json>& object() const;

  /// Returns the value of a name; a JsonError where the object has none.
  const Json& at(const std::string& name) const;

  /// Returns the value of a name; null where the object has none.
  const Json* find(const std::string& name) const;

  /// Returns whether it says nothing: null, false, or an empty text, list or object.
  bool empty() const;

 private:
  friend class JsonReader;

  void expect(Kind kind) const;

  Kind kind_ = Kind::kNull;
  bool boolean_ = false;
  std::int64_t integer_ = 0;
  std::string text_;
  std::vector<Json> list_;
  std::map<std::string, Json> object_;
};

}  // namespace torchtrt
