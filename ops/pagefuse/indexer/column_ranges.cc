// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/pagefuse/indexer/column_ranges.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/checks.h"

namespace pagefuse::pagefuse_ops {

absl::Status CheckColumnRanges(const KernelArgs& args, const ColumnRangePorts& ports,
                               int64_t columns) {
  const TensorArg& begins = args.input(ports.begins);
  const TensorArg& ends = args.input(ports.ends);
  for (int64_t m = 0; m < begins.size(); ++m) {
    const int64_t begin = begins.as<const int32_t>()[m];
    const int64_t end = ends.as<const int32_t>()[m];
    if (begin < 0) {
      return InputValueError(args, ports.begins,
                             StrCat("expected 0 or more, got ", begin, " at ", m));
    }
    if (end >= begin && end <= columns) continue;
    return InputValueError(args, ports.ends,
                           StrCat("expected ", begin, ", the range's begin, to ", columns,
                                  ", the number of columns, got ", end, " at ", m));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse::pagefuse_ops
