#include "pagefuse/runtime/plain_inputs.h"

#include <algorithm>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/paged_inputs.h"
#include "pagefuse/passes/paging/past_ledger.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {
namespace {

bool IsNamed(const Value* value, std::string_view part) {
  return absl::StrContains(value->name(), AbslView(part));
}

// Caches of GroupQueryAttention have a length of their own, and what is in them counts for nothing
// before the first token.
bool IsReadByLength(const Value* past) {
  return !past->uses().empty() && std::ranges::all_of(past->uses(), [](const Use& use) {
    return use.node->Is("GroupQueryAttention", "com.microsoft") &&
           (use.index == ports::GroupQueryAttention::kPastKey ||
            use.index == ports::GroupQueryAttention::kPastValue);
  });
}

// A past of no tokens: one axis at least, the batch aside, is as long as the past is; or it is read
// as far as it was written.
absl::Status CheckStartsEmpty(const Value* past) {
  const auto& shape = past->shape();
  if (!shape || shape->rank() < 2) {
    return absl::FailedPreconditionError(
        StrCat("input \"", past->name(), "\": the axes of a past must be declared"));
  }
  if (IsReadByLength(past)) return absl::OkStatus();
  const auto& dims = shape->dims();
  if (std::any_of(dims.begin() + 1, dims.end(), [](const Dim& dim) { return !dim.constant(); })) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      StrCat("input \"", past->name(), "\" is a state of ", shape->ToString(),
             ", which another graph starts; take the graph that prefills"));
}

absl::StatusOr<PlainInputs::Past> PastOf(const Graph& graph, const Value* input) {
  const Value* output = NamedPresentOf(graph, input->name());
  if (!output) {
    return absl::FailedPreconditionError(
        StrCat("input \"", input->name(), "\" is a past, and no output is its present"));
  }
  if (output->dtype() != input->dtype()) {
    return absl::FailedPreconditionError(
        StrCat("input \"", input->name(), "\" is ", DataTypeName(input->dtype()),
               ", but its present \"", output->name(), "\" is ", DataTypeName(output->dtype())));
  }
  PF_RETURN_IF_ERROR(CheckStartsEmpty(input));
  return PlainInputs::Past{input, output};
}

bool IsBranch(const Value* input) {
  const bool one =
      input->shape() &&
      (input->shape()->rank() == 0 ||
       (input->shape()->rank() == 1 && (*input->shape())[0].constant().value_or(1) == 1));
  return input->dtype() == DataType::kBool && one && IsNamed(input, "use_cache");
}

// Numbers that stand for a past, its length or its positions, are none.
bool IsPast(const Value* input) {
  return IsNamed(input, "past") && input->shape() && input->shape()->rank() >= 3;
}

bool IsMask(const Value* input) {
  return IsNamed(input, "mask") && input->shape() && input->shape()->rank() == 2;
}

bool MayBeLogits(const Value* output) {
  const bool is_float =
      output->dtype() == DataType::kFloat || output->dtype() == DataType::kFloat16 ||
      output->dtype() == DataType::kBfloat16 || output->dtype() == DataType::kDouble;
  return is_float && output->shape() &&
         (output->shape()->rank() == 2 || output->shape()->rank() == 3);
}

absl::StatusOr<const Value*> LogitsOf(const Graph& graph, const PlainInputs& found) {
  std::vector<const Value*> candidates;
  for (const Value* output : graph.outputs()) {
    const bool present =
        std::ranges::any_of(found.pasts, [&](const auto& past) { return past.output == output; });
    if (!present && MayBeLogits(output)) candidates.push_back(output);
  }
  for (const Value* output : candidates) {
    if (output->name() == "logits") return output;
  }
  if (candidates.size() == 1) return candidates[0];
  return absl::FailedPreconditionError(
      StrCat("no output is the logits: expected a float output \"logits\", or one float output of "
             "two or three axes besides the presents, got ",
             candidates.size()));
}

}  // namespace

absl::StatusOr<PlainInputs> FindPlainInputs(const Graph& graph) {
  PlainInputs found;
  std::vector<Value*> told;  // known by name
  Value* mask = nullptr;
  for (Value* input : graph.inputs()) {
    if (input->initializer()) continue;
    if (IsBranch(input)) {
      found.branches.push_back(input);
      told.push_back(input);
    } else if (IsPast(input)) {
      PF_ASSIGN_OR_RETURN(found.pasts.emplace_back(), PastOf(graph, input));
      told.push_back(input);
    } else if (!mask && IsMask(input)) {
      mask = input;
    }
  }
  PF_ASSIGN_OR_RETURN(const DecoderInputs inputs, FindDecoderInputs(graph, told, mask));
  found.tokens = inputs.tokens;
  found.positions = inputs.positions;
  found.mask = inputs.padding;
  found.segments.assign(inputs.segments.begin(), inputs.segments.end());
  found.sized.assign(inputs.unread.begin(), inputs.unread.end());
  PF_ASSIGN_OR_RETURN(found.logits, LogitsOf(graph, found));
  return found;
}

absl::StatusOr<PlainInputs> FindPlainInputsBehindPasses(const Model& model) {
  Model rewritten = model.Clone();
  PF_RETURN_IF_ERROR(RunPipeline(rewritten, {.page = false}).status());
  PF_ASSIGN_OR_RETURN(PlainInputs found, FindPlainInputs(*rewritten.graph));
  // Passes keep the names of inputs and outputs.
  const auto here = [&](const Value*& value) {
    if (value != nullptr) value = model.graph->FindValue(value->name());
  };
  for (const Value** value : {&found.tokens, &found.positions, &found.mask, &found.logits}) {
    here(*value);
  }
  for (auto* list : {&found.segments, &found.sized, &found.branches}) {
    for (const Value*& value : *list) here(value);
  }
  for (PlainInputs::Past& past : found.pasts) {
    here(past.input);
    here(past.output);
  }
  return found;
}

}  // namespace pagefuse
