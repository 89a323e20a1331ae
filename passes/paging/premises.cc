// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/premises.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/axes.h"
#include "pagefuse/passes/edit/constants.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/number_types.h"
#include "pagefuse/passes/normalise/normalise.h"
#include "pagefuse/passes/paging/length_bound.h"
#include "pagefuse/passes/paging/static_caches.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

using Role = Premises::Role;

bool IsIndexMatrix(const Value& value) {
  const bool counts = IsInteger(value.dtype()) || value.dtype() == DataType::kBool;
  return counts && value.is_input() && !value.initializer() && value.shape() &&
         value.shape()->rank() == 2;
}

// Whether the size is one of the input's alone.
bool IsOwnSize(const Graph& graph, const Value& input, const std::string& name) {
  int64_t found = 0;
  for (const Value* other : graph.inputs()) {
    if (!other->shape()) continue;
    found += std::ranges::count_if(other->shape()->dims(), [&](const Dim& dim) {
      return std::ranges::any_of(dim.terms(), [&](const auto& term) { return term.first == name; });
    });
  }
  return found == 1 && (*input.shape())[0].symbol() == name;
}

// mask [R, T] viewed as [B, -1], or [B, 1, 1, -1]: the same rows where R is B, as it is of a mask that
// has a row for each sequence.
void SettleMaskRows(Graph& graph, const SymbolicContents& contents, Premises& premises) {
  std::map<std::string, Dim> same;
  for (const auto& node : graph.nodes()) {
    const Value* mask = node->Is("Reshape") ? node->input(0) : nullptr;
    if (!mask || !IsIndexMatrix(*mask)) continue;
    const auto rows = (*mask->shape())[0].symbol();
    const auto dims = KnownDims(node->input(1), contents);
    const auto batch = dims && dims->size() > 1 ? (*dims)[0].symbol() : std::nullopt;
    if (!rows || !batch || batch == rows || !IsOwnSize(graph, *mask, *rows)) continue;
    same.emplace(*rows, Dim::Symbol(*batch));
    premises.assumed.push_back({mask->name(), Role::kMaskRows, node->Description()});
  }
  RenameSizes(graph, same);
}

bool ChoosesRows(const Value& value) {
  return std::ranges::any_of(value.uses(), [](const Use& use) {
    if (use.node->Is("Cast")) return ChoosesRows(*use.node->output(0));
    return use.node->Is("Gather") && use.index == 1;
  });
}

// What the value is in another type, all of whose numbers its own holds.
Value* BeforeCasts(Value* value) {
  for (const Node* cast = value->producer(); cast && cast->Is("Cast"); cast = value->producer()) {
    if (!KeepsAllNumbers(cast->input(0)->dtype(), value->dtype())) break;
    value = cast->input(0);
  }
  return value;
}

// ids == number, where no token is that number.
void SettleTokens(Graph& graph, Premises& premises) {
  for (Node* node : NodesOf(graph)) {
    if (!node->Is("Equal") || node->output(0)->is_output()) continue;
    for (const int side : {0, 1}) {
      Value* tokens = BeforeCasts(node->input(side));
      const Tensor* constant = ConstantOf(node->input(1 - side));
      // What is no id, no token is.
      constexpr double kNoId = 0.5, kMostIds = 1 << 30;
      const double number = constant ? ScalarNumber(*constant).value_or(kNoId) : kNoId;
      const Shape* shape = ShapeOf(node->output(0));
      if (!(std::abs(number) <= kMostIds) || number != std::floor(number)) continue;
      if (!IsIndexMatrix(*tokens) || !ChoosesRows(*tokens)) continue;
      if (!shape || shape->rank() != 2) continue;
      GraphBuilder builder(graph, node, node->output(0)->name());
      Value* none = graph.AddInitializer(graph.UniqueName(node->output(0)->name()),
                                         Tensor::Of<bool>({1, 1}, {false}));
      Value* settled = builder.Add("Expand", {none, builder.Add("Shape", {tokens})});
      premises.barred.push_back(static_cast<int64_t>(number));
      premises.assumed.push_back({tokens->name(), Role::kTokens, node->Description()});
      graph.ReplaceAllUses(node->output(0), settled);
      break;
    }
  }
}

// Branches that are not taken go, what is chosen by a constant is that, and masks are read anew.
absl::Status TakeBranches(Model& model) {
  PassContext context;
  for (const auto& pass : {InlineFunctions, ConstantFolding, RecogniseAttentionMask}) {
    context.contents.clear();
    context.indices.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
    PF_RETURN_IF_ERROR(pass()->Run(model, context).status());
  }
  EraseDeadNodes(*model.graph, context.contents);
  return absl::OkStatus();
}

bool Is(const Premises::Assumed& assumed, const DecoderInputs& inputs,
        const std::vector<PagedAttentionSite>& uses) {
  const auto named = [&](const Value* value) { return value && value->name() == assumed.input; };
  if (assumed.role == Role::kPositions) return named(inputs.positions);
  if (assumed.role == Role::kTokens) return named(inputs.tokens);
  if (assumed.role == Role::kMaskRows) {
    return named(inputs.padding) && ProvablyEqual((*inputs.padding->shape())[0], inputs.batch);
  }
  const bool counts =
      std::ranges::any_of(uses, [&](const PagedAttentionSite& use) { return named(use.lengths); });
  if (named(inputs.padding) || counts) return true;
  return assumed.role == Role::kSized && (named(inputs.tokens) || named(inputs.positions));
}

}  // namespace

absl::StatusOr<std::optional<Premises>> TakePremises(Model& model, bool bars) {
  Graph& graph = *model.graph;
  SymbolicContents contents;
  PF_RETURN_IF_ERROR(InferShapes(model, &contents));
  PF_ASSIGN_OR_RETURN(const bool fixed, LowerStaticCaches(model, contents));
  if (fixed) {
    contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &contents));
  }
  Premises premises;
  SettleLengths(graph, contents, fixed, premises);
  if (bars) SettleTokens(graph, premises);
  SettleMaskRows(graph, contents, premises);
  if (premises.assumed.empty() || (bars && premises.barred.empty())) {
    return std::optional<Premises>();
  }
  PF_RETURN_IF_ERROR(TakeBranches(model));
  return std::optional(std::move(premises));
}

absl::Status CheckPremises(const Premises& premises, const DecoderInputs& inputs,
                           const std::vector<PagedAttentionSite>& uses) {
  constexpr std::string_view kWhat[] = {"positions", "the mask of the padding",
                                        "tokens, positions or their mask", "tokens",
                                        "the mask of the padding, a row for each sequence"};
  for (const Premises::Assumed& assumed : premises.assumed) {
    if (Is(assumed, inputs, uses)) continue;
    return absl::FailedPreconditionError(
        StrCat(assumed.node, " computes with \"", assumed.input, "\": expected ",
               kWhat[static_cast<int>(assumed.role)], ", got an input that is not read as such"));
  }
  return absl::OkStatus();
}

void WritePremises(Model& model, const Premises& premises) {
  if (premises.max_tokens > 0) {
    SetMetadata(model.metadata, std::string(kMaxTokensKey), StrCat(premises.max_tokens));
  }
  if (!premises.barred.empty()) {
    SetMetadata(model.metadata, std::string(kBarredTokensKey),
                nlohmann::json(premises.barred).dump());
  }
}

}  // namespace pagefuse
