// SPDX-License-Identifier: Apache-2.0
// Reads members of an object that a client sent, each with its type and range; errors name the parameter.
// What nobody reads is told (Ignored): a member that does nothing should not do so in silence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace pagefuse::serve {

using Json = nlohmann::ordered_json;

// Null counts as a member that is not there.
class Fields {
 public:
  // InvalidArgument unless it is an object, which must live as long as this. `param`: where it stands,
  // "messages[0]"; empty for the body of a request.
  static absl::StatusOr<Fields> Of(const Json& object, std::string param);

  const std::string& param() const { return param_; }
  std::string ParamOf(std::string_view name) const;
  absl::Status Wrong(std::string_view name, std::string_view what) const;

  // Null where there is none; it counts as read.
  const Json* Find(std::string_view name);
  bool Has(std::string_view name) { return Find(name) != nullptr; }

  absl::StatusOr<std::optional<double>> Number(std::string_view name, double least, double most);
  absl::StatusOr<std::optional<int64_t>> Integer(std::string_view name, int64_t least,
                                                 int64_t most);
  absl::StatusOr<std::optional<bool>> Flag(std::string_view name);
  absl::StatusOr<std::optional<std::string>> Text(std::string_view name);
  // One of `values`.
  absl::StatusOr<std::optional<std::string>> OneOf(std::string_view name,
                                                   std::initializer_list<std::string_view> values);
  absl::StatusOr<std::optional<Fields>> Object(std::string_view name);
  absl::StatusOr<std::optional<std::vector<std::string>>> Texts(std::string_view name, size_t most);
  absl::StatusOr<std::optional<std::vector<int64_t>>> Integers(std::string_view name, size_t most);

  // InvalidArgument if it is there with another value than `harmless`: what it asks for is not to be had.
  absl::Status Refuse(std::string_view name, std::string_view why, const Json& harmless = Json());
  // It changes nothing here, and clients send it.
  void Accept(std::initializer_list<std::string_view> names);

  // Names of members that nobody has read, as parameters.
  std::vector<std::string> Ignored() const;

 private:
  Fields(const Json& object, std::string param) : object_(&object), param_(std::move(param)) {}

  const Json* object_;
  std::string param_;
  absl::flat_hash_set<std::string> read_;
};

// "text of 3 bytes", "12", "a list": what stands where something else was expected.
std::string Found(const Json& value);

}  // namespace pagefuse::serve
