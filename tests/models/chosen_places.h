// SPDX-License-Identifier: Apache-2.0
// What the indexers of a graph choose, token by token: in the export and in the paged graph.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/models/model_data.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// [layer, token]: the chosen places that the token sees.
using Places = std::vector<std::vector<std::set<int64_t>>>;

// `ratio`: tokens that one place stands for.
Places PlacesOfTheExport(Model model, const DataSet& data, int64_t ratio = 1);
// `options`: of the pipeline.
Places PlacesOfThePagedGraph(Model model, const std::vector<int64_t>& tokens, int64_t ratio = 1,
                             const std::map<std::string, std::string>& options = {});

}  // namespace pagefuse
