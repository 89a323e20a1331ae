// SPDX-License-Identifier: Apache-2.0
// IndexerTopK: the top-k keys of each query by index score. Equals vLLM's top_k_per_row_prefill and
// top_k_per_row_decode with a fixed order and tie rule.
#include "pagefuse/ops/pagefuse/indexer/indexer_topk.h"

#include <limits>
#include <vector>

#include "pagefuse/base/parallel.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/indexer/indexer_topk.h"
#include "pagefuse/ops/pagefuse/indexer/column_ranges.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kIn({
    {"logits", "float", "[M, N], N <= 2147483647"},
    PortSpec("ks", "int32", "[M]").Metadata(),
    PortSpec("ke", "int32", "[M]").Metadata(),
});
constexpr Ports kOut({{"indices", "int32", "[M, topk]"}});

absl::Status Validate(const KernelArgs& args) {
  return CheckColumnRanges(args, {.begins = kIn["ks"], .ends = kIn["ke"]},
                           args.input(kIn["logits"]).dim(1));
}

TopKRow RowOf(const KernelArgs& args, int64_t m) {
  const TensorArg& logits = args.input(kIn["logits"]);
  const int64_t begin = args.input(kIn["ks"]).as<const int32_t>()[m];
  TopKRow row;
  row.logits = logits.as<const float>() + m * logits.dim(1) + begin;
  row.count = args.input(kIn["ke"]).as<const int32_t>()[m] - begin;
  row.topk = args.output(0).dim(1);
  row.indices = args.output(0).as<int32_t>() + m * row.topk;
  return row;
}

absl::Status Reference(KernelArgs& args) {
  for (int64_t m = 0; m < args.input(kIn["logits"]).dim(0); ++m) SelectTopK(RowOf(args, m));
  return absl::OkStatus();
}

absl::Status Hwy(KernelArgs& args) {
  const TensorArg& logits = args.input(kIn["logits"]);
  const int64_t topk = args.output(0).dim(1);
  const size_t words = TopKScratchBytes(topk, logits.dim(1)) / sizeof(uint32_t);
  ParallelFor(logits.dim(0), (logits.dim(1) + 16 * topk) * 4, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> scratch(words);
    for (int64_t m = begin; m < end; ++m) SelectTopKHwy(RowOf(args, m), scratch.data());
  });
  return absl::OkStatus();
}

// With fewer columns than topk, TopK takes all of them and the rest is filled up.
constexpr char kWideNodes[] = R"(
  i_0 = Constant <value_int: int = 0> ()
  i_1 = Constant <value_int: int = 1> ()
  l_1 = Constant <value_ints: ints = [1]> ()
  column_count = Shape <start = 1, end = 2> (logits)
  column_limit = Squeeze (column_count)
  column = Range (i_0, column_limit, i_1)
  begin = Cast <to = 7> (ks)
  begin_column = Unsqueeze (begin, l_1)
  end = Cast <to = 7> (ke)
  end_column = Unsqueeze (end, l_1)
  after_begin = GreaterOrEqual (column, begin_column)
  before_end = Less (column, end_column)
  inside = And (after_begin, before_end)
  lowest = Constant <value_float: float = -3.40282347e+38> ()
  finite = Max (logits, lowest)
  f_0 = Constant <value_float: float = 0.0> ()
  neg_inf = Log (f_0)
  masked = Where (inside, finite, neg_inf)
  topk = Constant <value_int = @topk> ()
)";
constexpr char kTopKNodes[] = R"(  l_0 = Constant <value_ints: ints = [0]> ()
  topk_list = Unsqueeze (topk, l_0)
  values, place = TopK <axis = 1, largest = 1, sorted = 1> (masked, topk_list)
)";
constexpr char kPaddedTopKNodes[] = R"(  topk_list = Min (topk, column_count)
  values, few = TopK <axis = 1, largest = 1, sorted = 1> (masked, topk_list)
  missing = Sub (topk, topk_list)
  no_pad = Constant <value_ints: ints = [0, 0, 0]> ()
  pads = Concat <axis = 0> (no_pad, missing)
  place = Pad (few, pads)
)";
constexpr char kLastNodes[] = R"(  rank = Range (i_0, topk, i_1)
  size = Sub (end_column, begin_column)
  given = Less (rank, size)
  relative = Sub (place, begin_column)
  i_m1 = Constant <value_int: int = -1> ()
  relative_or_none = Where (given, relative, i_m1)
  indices = Cast <to = 6> (relative_or_none)
)";

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const int64_t topk, node.IntAttribute("topk", 0));
  const std::optional<Shape>& shape = node.input(kIn["logits"])->shape();
  const bool known = shape && shape->rank() == 2 && (*shape)[1].is_constant();
  const bool padded = !known || *(*shape)[1].constant() < topk;
  return StrCat("IndexerTopK (logits, ks, ke) => (indices) {", IndexerTopKLines(padded), "}\n");
}

}  // namespace

std::string IndexerTopKLines(bool padded) {
  return StrCat(kWideNodes, padded ? kPaddedTopKNodes : kTopKNodes, kLastNodes);
}

OpDef IndexerTopKDef() {
  return OpDef("pagefuse", "IndexerTopK", 1)
      .Doc(
          "Indices, relative to ks, of the topk largest logits of the columns ks <= n < ke of each "
          "row, in falling order of the logit; of equal logits (-0 equals 0) the lower index comes "
          "first. -1 behind the last column of a range with fewer columns.")
      .Inputs(kIn)
      .Outputs(kOut)
      .RequiredAttr("topk", "indices a row")
      .Within(0, std::numeric_limits<int32_t>::max())
      .Validate(Validate)
      .Decomposition(Decompose)
      .AddKernel({.name = "reference", .run = Reference})
      .AddKernel({.name = "hwy", .priority = 10, .run = Hwy});
}

}  // namespace pagefuse::pagefuse_ops
