// SPDX-License-Identifier: Apache-2.0
// PagedIndexerTopK: the keys of a paged cache that each query chooses by index score. What
// PagedMqaLogits and IndexerTopK do, but for the scores of the whole context, of which no more than
// a few rows exist at a time.
#include <limits>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/indexer/key_choice.h"
#include "pagefuse/ops/pagefuse/body_writer.h"
#include "pagefuse/ops/pagefuse/indexer/column_ranges.h"
#include "pagefuse/ops/pagefuse/indexer/indexer_topk.h"
#include "pagefuse/ops/pagefuse/indexer/mqa_logits.h"
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr auto kIn = WithPagedScorePorts({
    PortSpec("ks", "int32", "[rows]").Metadata(),
    PortSpec("ke", "int32", "[rows]: columns ks <= n < ke of the scores").Metadata(),
});
constexpr Ports kOut({{"indices", "int32", "[rows, topk]"}});

absl::Status Validate(const KernelArgs& args) {
  const int64_t width = PagedWidth(args);
  PF_RETURN_IF_ERROR(CheckPagedScores(args, width));
  return CheckColumnRanges(args, {.begins = kIn["ks"], .ends = kIn["ke"]}, width);
}

absl::StatusOr<KeyChoice> MakeChoice(const KernelArgs& args) {
  KeyChoice choice;
  PF_ASSIGN_OR_RETURN(choice.scores, PagedScores(args));
  const auto* begins = args.input(kIn["ks"]).as<const int32_t>();
  const auto* ends = args.input(kIn["ke"]).as<const int32_t>();
  for (int64_t m = 0; m < choice.scores.rows; ++m) choice.columns.push_back({begins[m], ends[m]});
  choice.topk = args.output(0).dim(1);
  choice.indices = args.output(0).as<int32_t>();
  return choice;
}

absl::Status Run(KernelArgs& args, MqaLogitsFn score) {
  PF_ASSIGN_OR_RETURN(const KeyChoice choice, MakeChoice(args));
  if (score) {
    ChooseKeys(choice, score, args.scratch);
  } else {
    ChooseKeysPlain(choice, args.scratch);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const PagedMqaLogitsBody body, PagedScoresBody(node));
  return StrCat("PagedIndexerTopK (", body.Inputs(), ", ks, ke) => (indices) {\n", body.Lines(),
                WithPrefix(IndexerTopKLines(/*padded=*/true), "top_", {"indices"}), "}\n");
}

}  // namespace

OpDef PagedIndexerTopKDef() {
  OpDef op =
      OpDef("pagefuse", "PagedIndexerTopK", 1)
          .Doc(
              "IndexerTopK of the scores of PagedMqaLogits, which are kept for as many rows at a "
              "time as 8 MiB hold. Columns that a query does not see score -inf.")
          .Inputs(kIn)
          .Outputs(kOut)
          .RequiredAttr("topk", "indices a row")
          .Within(0, std::numeric_limits<int32_t>::max());
  DeclarePagedScores(op).Validate(Validate).Decomposition(Decompose);
  AddMqaKernels(op, Run);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
