// SPDX-License-Identifier: Apache-2.0
#include "tools/ort/builder_steps.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

constexpr char kCumulative[] = "cumulative_sequence_lengths";
constexpr char kPast[] = "past_sequence_lengths";
constexpr char kHint[] = "attention_metadata";
constexpr char kTables[] = "block_table";
constexpr char kCaches[] = "past_key_values.";
constexpr char kTokens[] = "input_ids";
constexpr int kSequences = std::size(kStepPrompts);
constexpr int64_t kBlockSize = 16;
// Of a sequence. Those that a window leaves behind stay, so that a table has each of them once.
constexpr int32_t kBlocks = 2;

// Room for both sequences in every layer.
absl::StatusOr<std::map<std::string, Tensor>> Fixed(const Graph& graph) {
  std::map<std::string, Tensor> feeds;
  std::vector<int32_t> blocks;
  for (int32_t i = 0; i < kSequences * kBlocks; ++i) blocks.push_back(i);
  for (const Value* input : graph.inputs()) {
    const std::string& name = input->name();
    if (absl::StartsWith(name, kTables)) {
      feeds[name] = Tensor::Of<int32_t>({kSequences, kBlocks}, blocks);
    } else if (name == kHint) {
      feeds[name] = Tensor::Of<int32_t>({3}, {0, 0, 0});
    } else if (absl::StartsWith(name, kCaches)) {
      std::vector<int64_t> dims = {kSequences * kBlocks, kBlockSize};
      for (int axis = 2; axis < input->shape()->rank(); ++axis) {
        const std::optional<int64_t> dim = (*input->shape())[axis].constant();
        if (!dim) return absl::InvalidArgumentError(StrCat("\"", name, "\" has no size of a row"));
        dims.push_back(*dim);
      }
      PF_ASSIGN_OR_RETURN(feeds[name], Tensor::Allocate(input->dtype(), dims));
    }
  }
  return feeds;
}

}  // namespace

bool IsPagedBuilderExport(const Model& model) {
  return model.graph->FindValue(kCumulative) != nullptr &&
         model.graph->FindValue(kPast) != nullptr && model.graph->FindValue(kTokens) != nullptr;
}

absl::StatusOr<std::vector<OrtStep>> BuilderSteps(Model model, const StepOptions& options) {
  PF_ASSIGN_OR_RETURN(auto session, Session::Create(std::move(model), PlainSession(options)));
  PF_ASSIGN_OR_RETURN(auto feeds, Fixed(*session->model().graph));
  std::vector<int32_t> past(kSequences, 0);
  std::vector<OrtStep> steps;
  for (int i = 0; i <= kDecodeSteps; ++i) {
    std::vector<int32_t> first = {0}, fresh;
    for (const int64_t prompt : kStepPrompts) {
      fresh.push_back(i == 0 ? static_cast<int32_t>(prompt) : 1);
      first.push_back(first.back() + fresh.back());
    }
    feeds[kTokens] = Tensor::Of<int64_t>({first.back()}, StepTokens(first.back(), kAnyVocabulary));
    feeds[kCumulative] = Tensor::Of<int32_t>({kSequences + 1}, first);
    feeds[kPast] = Tensor::Of<int32_t>({kSequences}, past);
    PF_ASSIGN_OR_RETURN(OrtStep step, RecordStep(*session, feeds, options.repeats));
    steps.push_back(std::move(step));
    for (int sequence = 0; sequence < kSequences; ++sequence) past[sequence] += fresh[sequence];
  }
  return steps;
}

}  // namespace pagefuse::tools
