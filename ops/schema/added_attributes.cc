// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/added_attributes.h"

#include <array>
#include <string_view>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/schema/shape_checks.h"

namespace pagefuse {
namespace {

struct Added {
  std::string_view op_type;
  std::string_view attribute;
  int64_t since;
};

constexpr std::array kAdded = {Added{"ArgMax", "select_last_index", 12},
                               Added{"ArgMin", "select_last_index", 12},
                               Added{"AveragePool", "ceil_mode", 10},
                               Added{"AveragePool", "dilations", 19},
                               Added{"BatchNormalization", "training_mode", 14},
                               Added{"Cast", "round_mode", 24},
                               Added{"Cast", "saturate", 19},
                               Added{"CastLike", "round_mode", 24},
                               Added{"CastLike", "saturate", 19},
                               Added{"DepthToSpace", "mode", 11},
                               Added{"DequantizeLinear", "axis", 13},
                               Added{"DequantizeLinear", "block_size", 21},
                               Added{"DequantizeLinear", "output_dtype", 23},
                               Added{"Dropout", "seed", 12},
                               Added{"GatherND", "batch_dims", 12},
                               Added{"GroupNormalization", "stash_type", 21},
                               Added{"LpPool", "ceil_mode", 18},
                               Added{"LpPool", "dilations", 18},
                               Added{"MaxPool", "ceil_mode", 10},
                               Added{"MaxPool", "dilations", 10},
                               Added{"QuantizeLinear", "axis", 13},
                               Added{"QuantizeLinear", "block_size", 21},
                               Added{"QuantizeLinear", "output_dtype", 21},
                               Added{"QuantizeLinear", "precision", 23},
                               Added{"QuantizeLinear", "saturate", 19},
                               Added{"ReduceL1", "noop_with_empty_axes", 18},
                               Added{"ReduceL2", "noop_with_empty_axes", 18},
                               Added{"ReduceLogSum", "noop_with_empty_axes", 18},
                               Added{"ReduceLogSumExp", "noop_with_empty_axes", 18},
                               Added{"ReduceMax", "noop_with_empty_axes", 18},
                               Added{"ReduceMean", "noop_with_empty_axes", 18},
                               Added{"ReduceMin", "noop_with_empty_axes", 18},
                               Added{"ReduceProd", "noop_with_empty_axes", 18},
                               Added{"ReduceSum", "noop_with_empty_axes", 13},
                               Added{"ReduceSumSquare", "noop_with_empty_axes", 18},
                               Added{"Reshape", "allowzero", 14},
                               Added{"ScatterElements", "reduction", 16},
                               Added{"ScatterND", "reduction", 16},
                               Added{"Shape", "end", 15},
                               Added{"Shape", "start", 15},
                               Added{"Split", "num_outputs", 18},
                               Added{"TopK", "largest", 11},
                               Added{"TopK", "sorted", 11}};

}  // namespace

absl::Status CheckAddedAttributes(const Node& node, int64_t opset) {
  if (node.attributes().empty()) return absl::OkStatus();
  for (const Added& added : kAdded) {
    if (opset >= added.since || !node.Is(added.op_type)) continue;
    if (node.attribute(added.attribute) == nullptr) continue;
    return AttributeError(node, added.attribute,
                          StrCat("expected opset ", added.since, " or later, got opset ", opset));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
