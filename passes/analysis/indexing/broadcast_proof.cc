// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/symbolic_arithmetic.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/passes/analysis/indexing/indexing_analysis.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

std::string Described(const Value& value) {
  return StrCat("\"", value.name(), "\" ",
                value.shape() ? value.shape()->ToString() : "of unknown shape");
}

class ReachProof {
 public:
  ReachProof(const Dim& length, const SymbolicContents& contents)
      : length_(length), contents_(contents) {}

  bool Holds(const Value* value, int from_last) {
    if (!value || !value->shape() || from_last >= value->shape()->rank()) return false;
    if (ProvablyEqual(value->shape()->back(from_last), length_)) return true;
    const Node* node = value->producer();
    constexpr size_t kMostValues = 4096;
    if (!node || seen_.size() > kMostValues) return false;
    if (!seen_.emplace(value, from_last).second) return false;
    if (node->Is("Expand")) {
      return Holds(node->input(0), from_last) || Asks(node->input(1), from_last);
    }
    if (node->Is("Unsqueeze") || node->Is("Squeeze") || node->Is("Reshape")) {
      return HoldsBeforeView(*node, from_last);
    }
    if (!IsElementwise(*node)) return false;
    return std::ranges::any_of(node->inputs(),
                               [&](const Value* input) { return Holds(input, from_last); });
  }

 private:
  bool HoldsBeforeView(const Node& node, int from_last) {
    IndexingAnalysis reader(contents_);
    const auto whole = reader.Whole(node.output(0));
    if (!whole.ok()) return false;
    const IndexSymbolPtr axis = whole->at[whole->at.size() - 1 - from_last].symbol();
    const Element source = reader.OneStep(*whole);
    if (!axis || source.value != node.input(0)) return false;
    for (size_t i = 0; i < source.at.size(); ++i) {
      const bool same = source.at[source.at.size() - 1 - i].Key() == axis->key;
      if (same) return Holds(source.value, static_cast<int>(i));
    }
    return false;
  }

  // True if the target of an Expand has the length there.
  bool Asks(const Value* target, int from_last) const {
    const std::optional<std::vector<Dim>> dims = KnownDims(target, contents_);
    const auto place = static_cast<size_t>(from_last);
    return dims && place < dims->size() &&
           ProvablyEqual((*dims)[dims->size() - 1 - place], length_);
  }

  const Dim& length_;
  const SymbolicContents& contents_;
  std::set<std::pair<const Value*, int>> seen_;
};

}  // namespace

Dim AxisOf::dim() const {
  const auto& shape = value->shape();
  return shape && axis < shape->rank() ? (*shape)[axis] : Dim::Unknown();
}

absl::Status CheckSameLength(const AxisOf& axis, const AxisOf& as) {
  if (ProvablyEqual(axis.dim(), as.dim())) return absl::OkStatus();
  return MatchFailure(Described(*axis.value), ": expected ", as.dim().ToString(), " along axis ",
                      axis.axis, ", as ", Described(*as.value), " has it, got ",
                      axis.dim().ToString());
}

Condition SameLengths(std::vector<SameLength> pairs) {
  return {"ports agree", [pairs = std::move(pairs)](const Match& match) -> absl::Status {
            for (const SameLength& pair : pairs) {
              const Value* value = match.value(pair.value);
              const Value* as = match.value(pair.as);
              if (!value || !as) continue;
              PF_RETURN_IF_ERROR(CheckSameLength({value, pair.axis}, {as, pair.as_axis}));
            }
            return absl::OkStatus();
          }};
}

absl::Status CheckRepeats(const AxisOf& axis, const AxisOf& as) {
  if (axis.dim().constant() == 1) return absl::OkStatus();
  const auto cut = NumberInMin(axis.dim(), as.dim());
  if (cut && *cut > 1) return absl::OkStatus();
  return CheckSameLength(axis, as);
}

bool Reaches(const Value* value, int from_last, const Dim& length,
             const SymbolicContents& contents) {
  return ReachProof(length, contents).Holds(value, from_last);
}

}  // namespace pagefuse
