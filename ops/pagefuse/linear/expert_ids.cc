#include "pagefuse/ops/pagefuse/linear/expert_ids.h"

#include "absl/strings/str_cat.h"

#include "pagefuse/ops/pagefuse/cache/cache_insert.h"

namespace pagefuse::pagefuse_ops {

absl::Status CheckExpertIds(const KernelArgs& args, int port, int64_t experts) {
  for (int64_t i = 0; i < args.input(port).size(); ++i) {
    const int64_t expert = IndexAt(args.input(port), i);
    if (expert >= -experts && expert < experts) continue;
    return InputRangeError(args, port,
                           absl::StrCat("row ", i, " asks for expert ", expert, " of ", experts));
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

}  // namespace pagefuse::pagefuse_ops
