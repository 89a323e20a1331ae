// SPDX-License-Identifier: Apache-2.0
// Lists what a paged graph keeps, and the ops by which each of its layers reads and writes it.
#pragma once

#include "nlohmann/json.hpp"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// "caches": the groups, "layers": those with the same ops together, "bytes_per_token",
// "bytes_per_sequence", and "bytes_per_token_of_all_rows": if no window forgot a row and none were
// compressed. Empty for a graph without a paged cache.
nlohmann::ordered_json PagedLayers(const Model& model);

void PrintPagedLayers(const nlohmann::ordered_json& json);

}  // namespace pagefuse::tools
