// SPDX-License-Identifier: Apache-2.0
// Tells how the caches of a paged graph share pages of one size.
#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// "page_bytes", "unit": tokens by which texts share what they begin with, "waste": what is lost at
// 4096 tokens, as a share of what rows need, "parts": those of the cache groups, "sequences": what some
// lengths take. The graph was paged with the option cache_pages=on; FailedPrecondition if it has no
// paged cache.
absl::StatusOr<nlohmann::ordered_json> PageReport(const Model& model);

void PrintPageReport(const nlohmann::ordered_json& json);

}  // namespace pagefuse::tools
