// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/paged_logits.h"

#include <algorithm>
#include <vector>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/graph_ports.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "logits";

// The embedding table's number of rows.
std::optional<int64_t> Vocabulary(const DecoderInputs& inputs) {
  for (const Use& use : inputs.tokens->uses()) {
    const Value* table = use.node->input(0);
    if (use.index == 1 && table && table->IsConstant() && table->initializer()->rank() == 2) {
      return table->initializer()->dims()[0];
    }
  }
  return std::nullopt;
}

bool IsFloating(DataType dtype) {
  return dtype == DataType::kFloat || dtype == DataType::kFloat16 || dtype == DataType::kBfloat16;
}

std::optional<int64_t> Columns(const Value* output) {
  if (!IsFloating(output->dtype()) || !output->shape() || output->shape()->rank() < 2) {
    return std::nullopt;
  }
  return output->shape()->back(0).constant();
}

}  // namespace

absl::StatusOr<DecoderLogits> FindLogits(const Graph& graph, const DecoderInputs& inputs,
                                         const TokenTrace& trace) {
  const Value* logits = nullptr;
  for (const Value* output : graph.outputs()) {
    if (output->name() == kName) logits = output;
  }
  if (!logits) {
    std::vector<const Value*> candidates;
    const auto vocabulary = Vocabulary(inputs);
    for (const Value* output : graph.outputs()) {
      const bool known = std::ranges::find(candidates, output) != candidates.end();
      if (vocabulary && Columns(output) == vocabulary && !known) candidates.push_back(output);
    }
    if (candidates.size() != 1) {
      return absl::FailedPreconditionError(
          StrCat("no output is called \"logits\", and ", candidates.size(),
                 " have a column for each row of the embedding table"));
    }
    logits = candidates[0];
  }
  const auto role = trace.values.find(logits);
  if (!Columns(logits) || role == trace.values.end()) {
    return absl::FailedPreconditionError(
        StrCat("output \"", logits->name(), "\": expected rows of logits [..., V] of floats, got ",
               logits->shape() ? logits->shape()->ToString() : "an unknown shape"));
  }
  const TokenAxes axes = role->second.axes;
  const bool rows = role->second.role == TokenRole::kLastRows ||
                    (logits->shape()->rank() == 3 && axes.token == 1);
  if (axes.contains(logits->shape()->rank() - 1) || axes.per_token != 1) {
    return absl::FailedPreconditionError(StrCat("output \"", logits->name(), "\" ",
                                                logits->shape()->ToString(),
                                                " has no row for each token"));
  }
  return DecoderLogits{.name = logits->name(), .row_matrix = rows};
}

void PassOnAllRows(Graph& graph, const TokenTrace& trace) {
  // The axis of the tokens may be one that the rows did not have.
  for (Node* node : trace.along_last_axis) node->SetAttribute("axis", MakeAttribute(int64_t{-1}));
  for (const auto* nodes : {&trace.selections, &trace.last_row_views}) {
    for (Node* node : *nodes) graph.ReplaceAllUses(node->output(0), node->input(0));
  }
}

void FinishLogits(Graph& graph, const DecoderLogits& logits) {
  Value* rows = graph.FindValue(logits.name);
  GraphBuilder builder(graph, nullptr, kName);
  Value* finished = rows;
  if (!logits.row_matrix) {
    const int64_t columns = *rows->shape()->back(0).constant();
    finished = builder.Reshape(finished, {1, -1, columns});
  }
  if (rows->dtype() != DataType::kFloat) finished = builder.Cast(finished, DataType::kFloat);
  if (finished != rows) {
    ReplaceOutput(graph, rows, finished);
    graph.Rename(rows, graph.UniqueName(logits.name + ".rows"));
    finished->set_dtype(DataType::kFloat);
  }
  if (finished->name() == kName) return;
  if (Value* other = graph.FindValue(kName))
    graph.Rename(other, graph.UniqueName("exported.logits"));
  graph.Rename(finished, kName);
}

}  // namespace pagefuse
