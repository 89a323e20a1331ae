// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/moved_attributes.h"

#include <array>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

using Moved = MovedAttribute;

constexpr std::array kMoved = {Moved{"Slice", "starts", 1, 10},
                               Moved{"Slice", "ends", 2, 10},
                               Moved{"Slice", "axes", 3, 10},
                               Moved{"TopK", "k", 1, 10},
                               Moved{"Clip", "min", 1, 11},
                               Moved{"Clip", "max", 2, 11},
                               Moved{"Pad", "pads", 1, 11},
                               Moved{"Pad", "value", 2, 11},
                               Moved{"Dropout", "ratio", 1, 12},
                               Moved{"ReduceSum", "axes", 1, 13},
                               Moved{"Split", "split", 1, 13},
                               Moved{"Squeeze", "axes", 1, 13},
                               Moved{"Unsqueeze", "axes", 1, 13},
                               Moved{"ReduceL1", "axes", 1, 18},
                               Moved{"ReduceL2", "axes", 1, 18},
                               Moved{"ReduceLogSum", "axes", 1, 18},
                               Moved{"ReduceLogSumExp", "axes", 1, 18},
                               Moved{"ReduceMax", "axes", 1, 18},
                               Moved{"ReduceMean", "axes", 1, 18},
                               Moved{"ReduceMin", "axes", 1, 18},
                               Moved{"ReduceProd", "axes", 1, 18},
                               Moved{"ReduceSumSquare", "axes", 1, 18}};

}  // namespace

std::span<const MovedAttribute> MovedAttributes() { return kMoved; }

absl::Status CheckMovedAttributes(const ShapeContext& c) {
  if (c.node().attributes().empty()) return absl::OkStatus();
  for (const Moved& moved : kMoved) {
    if (c.opset() < moved.since || !c.node().Is(moved.op_type)) continue;
    if (c.node().attribute(moved.attribute) == nullptr) continue;
    return c.AttributeError(moved.attribute, StrCat("expected an input from opset ", moved.since,
                                                    " on, got an attribute in opset ", c.opset()));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
