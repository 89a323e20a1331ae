// SPDX-License-Identifier: Apache-2.0
// Reads the JSON files of a model's folder: values by name, and errors with file, field, expected
// and found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse {

// A file, and the object in it or in one of its members; empty if there is no file.
class ConfigJson {
 public:
  static absl::StatusOr<ConfigJson> Read(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  bool Has(const char* name) const { return !Value(name).is_null(); }
  // A member's object; empty if there is none.
  ConfigJson Member(const char* name) const;

  // Nothing where the member is missing or null.
  absl::StatusOr<std::optional<int64_t>> Positive(const char* name) const;
  absl::StatusOr<std::optional<double>> Number(const char* name) const;
  absl::StatusOr<std::optional<bool>> Flag(const char* name) const;
  absl::StatusOr<std::optional<std::string>> Text(const char* name) const;
  // An id or a list of ids; none where the member is missing.
  absl::StatusOr<std::vector<int64_t>> Tokens(const char* name) const;

 private:
  const nlohmann::json& Value(const char* name) const;
  absl::Status Wrong(const char* name, const char* expected) const;

  std::filesystem::path path_;
  nlohmann::json object_ = nlohmann::json::object();
};

}  // namespace pagefuse
