#include "pagefuse/ops/pagefuse/linear/repeated_rows.h"

#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<int64_t> RepeatOf(const Node& node) { return node.IntAttribute(kRepeat, 1); }

absl::Status SetRepeatedRowsOutput(ShapeContext& c, int x, int64_t n) {
  PF_ASSIGN_OR_RETURN(const int64_t repeat, RepeatOf(c.node()));
  std::optional<Shape> y;
  if (const Shape* rows = c.input_shape(x)) y = Shape({(*rows)[0] * Dim(repeat), Dim(n)});
  c.SetOutput(0, c.input_type(x), y);
  return absl::OkStatus();
}

std::string RepeatedRowsText(int64_t repeat) {
  if (repeat == 1) return "  repeated = Identity (x)\n";
  return StrCat("  beside = Constant <value_ints: ints = [1]> ()\n",
                "  any = Constant <value_ints: ints = [-1]> ()\n",
                "  times = Constant <value_ints: ints = [1, ", repeat, ", 1]> ()\n",
                "  width = Shape <start = 1, end = 2> (x)\n",
                "  row_shape = Concat <axis = 0> (any, width)\n",
                "  once = Unsqueeze (x, beside)\n", "  each = Expand (once, times)\n",
                "  repeated = Reshape (each, row_shape)\n");
}

}  // namespace pagefuse::pagefuse_ops
