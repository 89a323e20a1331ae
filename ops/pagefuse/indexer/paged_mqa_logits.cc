// SPDX-License-Identifier: Apache-2.0
// PagedMqaLogits: the index score of every key for every query, keys in a paged cache. Equals
// vLLM's fp8_paged_mqa_logits_triton (DeepSeek-V3.2 and V4).
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/indexer/mqa_logits.h"
#include "pagefuse/ops/pagefuse/indexer/paged_scores.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr Ports kOut({{"logits", "float", "[rows, width]"}});

absl::Status Validate(const KernelArgs& args) {
  return CheckPagedScores(args, args.output(0).dim(1));
}

absl::StatusOr<MqaLogitsProblem> MakeProblem(const KernelArgs& args) {
  PF_ASSIGN_OR_RETURN(const int64_t clean, args.node->IntAttribute("clean_logits", 1));
  PF_ASSIGN_OR_RETURN(const int64_t ratio, args.node->IntAttribute("ratio", 1));
  PF_ASSIGN_OR_RETURN(MqaLogitsProblem problem, PagedScores(args));
  problem.width = args.output(0).dim(1);
  problem.logits = args.output(0).as<float>();
  for (const int32_t b : problem.sequences) {
    const int64_t length = args.input(kPagedLengths).as<const int32_t>()[b];
    problem.filled.push_back(clean != 0 ? problem.width : length / ratio);
  }
  return problem;
}

// With clean_logits 0 the masked logits are one of the allowed results.
absl::StatusOr<std::string> Decompose(const Node& node) {
  PF_ASSIGN_OR_RETURN(const PagedMqaLogitsBody body, PagedScoresBody(node));
  return body.Text();
}

}  // namespace

OpDef PagedMqaLogitsDef() {
  OpDef op =
      OpDef("pagefuse", "PagedMqaLogits", 1)
          .Doc(
              "MqaLogits over a paged cache. format fp8: e4m3fn keys, a block is the codes of its "
              "BS keys, then their float scales, queries are codes too or numbers; uint8 stands for "
              "float8e4m3fn. bf16: bfloat16, float or float16 numbers without scales. mxfp4: e2m1 keys, two elements a byte, then a "
              "power of two for 32 of them, for queries that are numbers. The n queries of a sequence are its last "
              "tokens: those of sequence b are rows b * n to b * n + n - 1, or with "
              "query_start_loc rows query_start_loc[b] to query_start_loc[b + 1] - 1. A query at "
              "position p sees the first (p + 1) / ratio keys.")
          .Inputs(kPagedScorePorts)
          .Outputs(kOut)
          .FlagAttr(
              "clean_logits", int64_t{1},
              "1: -inf in all columns that a row does not see; 0: anything at or past the context "
              "length");
  DeclarePagedScores(op).Validate(Validate).Decomposition(Decompose);
  AddMqaLogitsKernels(op, MakeProblem);
  return op;
}

}  // namespace pagefuse::pagefuse_ops
