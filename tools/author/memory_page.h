// SPDX-License-Identifier: Apache-2.0
// The page of `pagefuse inspect --html`: what a model's weights and its cache take, layer by layer.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// Of a model after the passes, with an absent byte count for none:
//   "layers": for each layer its number, "weight_bytes", and "row_bytes" by cache group;
//   "other_weight_bytes": of what is in no layer, embeddings as a rule;
//   "groups": name, "rows_kept" (0: all), "tokens_per_row", "row_bytes" of all its layers;
//   "contexts": for some numbers of tokens the bytes of each group.
// A weight that several layers read counts in the first. Without a paged cache there are no groups.
nlohmann::ordered_json MemoryData(const Model& model);

// `summary` is the JSON of `pagefuse inspect`, which becomes part of the page.
std::string MemoryPage(const std::string& title, const nlohmann::ordered_json& summary,
                       const nlohmann::ordered_json& memory);

}  // namespace pagefuse::tools
