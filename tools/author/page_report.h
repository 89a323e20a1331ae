// SPDX-License-Identifier: Apache-2.0
// Tells how the caches of a paged graph share pages of one size.
#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// "page_bytes", "unit": tokens by which texts share what they begin with, "waste": what is lost at
// 4096 tokens, as a share of what rows need, "parts": those of the cache groups, "sequences": what some
// lengths take, "beside_pages": caches that an op reads as dense tensors, and the first such
// op, "bytes_beside_a_page": what they take for each page. "beside_pages_error": why these are not known,
// of a graph that cannot run. The graph was paged with the option cache_pages=on; its types and shapes are
// inferred. FailedPrecondition if it has no paged cache.
absl::StatusOr<nlohmann::ordered_json> PageReport(Model& model);

void PrintPageReport(const nlohmann::ordered_json& json);

}  // namespace pagefuse::tools
