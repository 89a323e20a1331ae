// SPDX-License-Identifier: Apache-2.0
// Reads members of a JSON object with their types; errors say where, what was expected and what is
// there.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"

namespace pagefuse {

class JsonFields {
 public:
  using Json = nlohmann::json;

  // The object must live as long as this. `place` stands in front of names in errors.
  static absl::StatusOr<JsonFields> Of(const Json& object, std::string place);

  const std::string& place() const { return place_; }
  bool Has(const char* name) const;

  absl::StatusOr<std::string> Text(const char* name) const;
  absl::StatusOr<bool> Flag(const char* name, bool otherwise) const;
  absl::StatusOr<int64_t> Number(const char* name, int64_t otherwise) const;
  absl::StatusOr<std::vector<int64_t>> Numbers(const char* name) const;
  absl::StatusOr<JsonFields> Object(const char* name) const;
  absl::StatusOr<std::vector<JsonFields>> Objects(const char* name) const;

  // InvalidArgument: the member is not what it should be.
  absl::Status Wrong(const char* name, std::string_view expected) const;
  // Unimplemented naming the "type" and what is known.
  absl::Status UnknownType(std::string_view known) const;

 private:
  JsonFields(const Json& object, std::string place) : object_(&object), place_(std::move(place)) {}
  const Json& Member(const char* name) const;

  const Json* object_;
  std::string place_;
};

// The parts of one that may be a sequence of them: {"type": "Sequence", <list>: [...]}, nested or
// not; in order. None for null.
absl::StatusOr<std::vector<JsonFields>> SequenceOf(const nlohmann::json& object, std::string place,
                                                   const char* list);

}  // namespace pagefuse
