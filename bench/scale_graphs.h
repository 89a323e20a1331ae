// SPDX-License-Identifier: Apache-2.0
// Graphs of any size, each of one shape that makes some step quadratic where it is written
// carelessly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

struct ScaleGraph {
  std::string_view name;
  std::string_view what;
  // A valid model of about that many nodes, subgraphs and inlined functions included. It runs on
  // feeds of ones.
  std::function<Model(int64_t nodes)> make;
};

const std::vector<ScaleGraph>& ScaleGraphs();

// Ones for each input; a symbol is 1.
std::map<std::string, Tensor> FeedsOfOnes(const Graph& graph);

}  // namespace pagefuse
