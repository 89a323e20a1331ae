// SPDX-License-Identifier: Apache-2.0
// Graphs in graphs where there were none.
#pragma once

#include <string>
#include <vector>

#include "random.h"
#include <onnx/onnx_pb.h>

namespace pagefuse::fuzz {

// Makes `node` of `graph` the body of an If or a Loop, whose trip count may be anything. `names`
// are values that it may read; `prefix` starts the names of new ones.
void WrapNode(Random& random, onnx::GraphProto& graph, onnx::NodeProto& node,
              const std::vector<std::string>& names, const std::string& prefix);

}  // namespace pagefuse::fuzz
