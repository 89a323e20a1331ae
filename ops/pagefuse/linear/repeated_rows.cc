#include "pagefuse/ops/pagefuse/linear/repeated_rows.h"

#include "pagefuse/ir/str_cat.h"

namespace pagefuse::pagefuse_ops {

absl::StatusOr<int64_t> RepeatOf(const Node& node) { return node.IntAttribute(kRepeat, 1); }

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
