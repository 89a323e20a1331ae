// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/linear/experts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {

absl::Status CheckExpertIds(const KernelArgs& args, int port, int64_t experts) {
  for (int64_t i = 0; i < args.input(port).size(); ++i) {
    const int64_t expert = IndexAt(args.input(port), i);
    if (expert >= -experts && expert < experts) continue;
    return InputRangeError(args, port,
                           StrCat("row ", i, " asks for expert ", expert, " of ", experts));
  }
  return absl::OkStatus();
}

std::vector<int64_t> ExpertsOf(const KernelArgs& args, int port, int64_t experts) {
  std::vector<int64_t> result(static_cast<size_t>(args.input(port).size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t expert = IndexAt(args.input(port), static_cast<int64_t>(i));
    result[i] = expert < 0 ? expert + experts : expert;
  }
  return result;
}

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
