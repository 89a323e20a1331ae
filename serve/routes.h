// SPDX-License-Identifier: Apache-2.0
// What is served where.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"

#include "pagefuse/serve/api.h"

namespace pagefuse::serve {

struct Route {
  const char* method;
  const char* path;
  absl::Status (*serve)(const Call&) = nullptr;  // by a worker; null: the server tells it by itself
  bool needs_model = true;
  bool needs_key = true;

  bool IsAt(std::string_view at) const;
};

inline constexpr std::string_view kModelsPath = "/v1/models";

std::span<const Route> Routes();

using ErrorShape = ErrorReply (*)(const absl::Status&);
// Of the protocol that is spoken there.
ErrorShape ErrorShapeAt(std::string_view path);

}  // namespace pagefuse::serve
