// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/plain_inputs.h"

#include <algorithm>

#include "absl/strings/match.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/paging/cache_branch.h"
#include "pagefuse/passes/paging/paged_inputs.h"
#include "pagefuse/passes/pipeline/pipeline.h"
#include "pagefuse/runtime/plain_pasts.h"

namespace pagefuse {
namespace {

bool IsNamed(const Value* value, std::string_view part) {
  return absl::StrContains(value->name(), AbslView(part));
}

absl::StatusOr<PlainInputs::Past> PastOf(const Graph& graph, const Value* input) {
  const Value* output = PresentOf(graph, input);
  if (!output) {
    return absl::FailedPreconditionError(
        StrCat("input \"", input->name(), "\" is a past, and no output is its present"));
  }
  if (output->dtype() != input->dtype()) {
    return absl::FailedPreconditionError(
        StrCat("input \"", input->name(), "\" is ", DataTypeName(input->dtype()),
               ", but its present \"", output->name(), "\" is ", DataTypeName(output->dtype())));
  }
  return PlainInputs::Past{input, output};
}

// Numbers that stand for a past, its length or its positions, are none.
bool IsPast(const Value* input) {
  return IsNamed(input, "past") && input->shape() && input->shape()->rank() >= 3;
}

bool IsMask(const Value* input) {
  return IsNamed(input, "mask") && input->shape() && input->shape()->rank() == 2;
}

// A number for each token that is called its position, in one row (of all sequences) or in several.
bool IsCalledPosition(const Value* input, int rank) {
  return IsInteger(input->dtype()) && IsNamed(input, "position") && input->shape() &&
         input->shape()->rank() == rank;
}

// As FindDecoderInputs. What the graph does with positions may tell nothing of them: then the one
// input that is called so has them.
absl::StatusOr<DecoderInputs> FindByUseOrName(const Graph& graph, std::vector<Value*> told,
                                              Value* mask) {
  const auto by_use = FindDecoderInputs(graph, told, mask);
  if (by_use.ok()) return by_use;
  std::vector<Value*> called;
  for (Value* input : graph.inputs()) {
    if (IsCalledPosition(input, 2) && std::ranges::count(told, input) == 0) called.push_back(input);
  }
  if (called.size() != 1) return by_use;
  told.push_back(called[0]);
  auto by_name = FindDecoderInputs(graph, told, mask);
  if (!by_name.ok() || by_name->positions != nullptr) return by_use;
  if (!ProvablyEqual(called[0]->shape()->back(0), by_name->sequence)) return by_use;
  by_name->positions = called[0];
  return by_name;
}

// Inputs [S] are positions if they are as long as the tokens are many.
absl::Status CheckPlaces(const PlainInputs& found) {
  for (const Value* row : found.places) {
    if (ProvablyEqual((*row->shape())[0], found.tokens->shape()->back(0))) continue;
    return absl::FailedPreconditionError(StrCat(
        "input \"", row->name(), "\": expected a position for each of ",
        found.tokens->shape()->back(0).ToString(), " tokens, got ", row->shape()->ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckPasts(const PlainInputs& found) {
  std::vector<const Value*> places = found.places;
  if (found.positions != nullptr) places.push_back(found.positions);
  for (const PlainInputs::Past& past : found.pasts) {
    PF_RETURN_IF_ERROR(CheckStartsEmpty(past, places));
    const auto same = std::ranges::count_if(
        found.pasts, [&past](const auto& other) { return other.output == past.output; });
    if (same == 1) continue;
    return absl::FailedPreconditionError(
        StrCat("output \"", past.output->name(),
               "\" is the present of several pasts, one of them \"", past.input->name(), "\""));
  }
  return absl::OkStatus();
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
    if (IsCacheBranch(*input)) {
      found.branches.push_back(input);
      told.push_back(input);
    } else if (IsPast(input)) {
      PF_ASSIGN_OR_RETURN(found.pasts.emplace_back(), PastOf(graph, input));
      told.push_back(input);
    } else if (IsCalledPosition(input, 1)) {
      found.places.push_back(input);
      told.push_back(input);
    } else if (!mask && IsMask(input)) {
      mask = input;
    }
  }
  PF_ASSIGN_OR_RETURN(const DecoderInputs inputs, FindByUseOrName(graph, told, mask));
  found.tokens = inputs.tokens;
  found.positions = inputs.positions;
  found.mask = inputs.padding;
  found.segments.assign(inputs.segments.begin(), inputs.segments.end());
  found.sized.assign(inputs.unread.begin(), inputs.unread.end());
  PF_RETURN_IF_ERROR(CheckPlaces(found));
  PF_RETURN_IF_ERROR(CheckPasts(found));
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
  for (auto* list : {&found.places, &found.segments, &found.sized, &found.branches}) {
    for (const Value*& value : *list) here(value);
  }
  for (PlainInputs::Past& past : found.pasts) {
    here(past.input);
    here(past.output);
  }
  return found;
}

}  // namespace pagefuse
