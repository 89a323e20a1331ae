// SPDX-License-Identifier: Apache-2.0
// sorted-experts: merges the products of rows that are in the order of their experts, cut into the
// rows of each expert, multiplied by its matrix and joined again:
//
//   order = TopK <largest = 0> (ids), ends = CumSum (counts of ids)
//   y = Concat (f (Slice (rows, 0, ends[0]), w_0), f (Slice (rows, ends[0], ends[1]), w_1), ..)
// or, with the same result, cut by a Split of as many rows as the counts of ids say:
//     =>  y = f (rows) with pagefuse.GroupedMatMul (.., sorted ids, [w_0, w_1, ..]) for its products
//
// f is products with constant matrices, and ops that look at a row alone.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/slice_cuts.h"
#include "pagefuse/passes/function_pass.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/recognise/sorted_rows.h"
#include "pagefuse/passes/rewrite/match_state.h"
#include "pagefuse/passes/simplify/products/product_rules.h"

namespace pagefuse {
namespace {

constexpr std::string_view kName = "sorted-experts";

using Parts = std::vector<Value*>;

// Values that all parts are computed from by the same op.
bool AreAlike(const Parts& parts) {
  const Node* first = parts[0]->producer();
  if (first == nullptr) return false;
  for (const Value* part : parts) {
    const Node* node = part->producer();
    if (node == nullptr || !node->Is(first->op_type(), first->domain()) ||
        node->num_inputs() != first->num_inputs() || !HaveSameAttributes(*node, *first)) {
      return false;
    }
  }
  return true;
}

// Input i of each part's node.
Parts Inputs(const Parts& parts, int i) {
  Parts inputs;
  for (const Value* part : parts) inputs.push_back(part->producer()->input(i));
  return inputs;
}

bool AreOne(const Parts& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const Value* v) { return v == parts[0]; });
}

// The matrices one behind the other, [E, ..]: where they lie if they lie so, or a copy. nullopt if they
// are no constants of one size.
absl::StatusOr<std::optional<Tensor>> Stacked(const Parts& matrices) {
  const Tensor* first = ConstantOf(matrices[0]);
  bool follow = true;
  for (size_t e = 0; e < matrices.size(); ++e) {
    const Tensor* matrix = ConstantOf(matrices[e]);
    if (matrix == nullptr || matrix->rank() != 2 || matrix->dims() != first->dims() ||
        matrix->dtype() != first->dtype() || matrix->dtype() != DataType::kFloat) {
      return std::optional<Tensor>();
    }
    const size_t place = first->buffer_offset() + e * static_cast<size_t>(first->byte_size());
    follow = follow && matrix->buffer() == first->buffer() && matrix->buffer_offset() == place;
  }
  std::vector<int64_t> dims = first->dims();
  dims.insert(dims.begin(), static_cast<int64_t>(matrices.size()));
  if (follow) return Tensor::View(first->dtype(), dims, first->buffer(), first->buffer_offset());
  PF_ASSIGN_OR_RETURN(Tensor stack, Tensor::Allocate(first->dtype(), dims));
  auto* to = static_cast<std::byte*>(stack.mutable_data());
  for (const Value* matrix : matrices) {
    std::memcpy(to, ConstantOf(matrix)->data(), static_cast<size_t>(first->byte_size()));
    to += first->byte_size();
  }
  return std::optional(std::move(stack));
}

// Finds what the parts are together; makes nodes where `writes`, else only looks.
class ExpertJoiner {
 public:
  ExpertJoiner(Graph& graph, Node& join, const SymbolicContents& contents, bool writes)
      : graph_(graph),
        builder_(graph, &join, join.output(0)->name()),
        contents_(contents),
        writes_(writes) {}

  // Null if that is not known; without `writes`, any value that is not null.
  absl::StatusOr<Value*> Joined(const Parts& parts) {
    const auto known = joined_.find(parts);
    if (known != joined_.end()) return known->second;
    PF_ASSIGN_OR_RETURN(Value * whole, Find(parts));
    joined_[parts] = whole;
    return whole;
  }

  bool has_products() const { return has_products_; }

 private:
  absl::StatusOr<Value*> Find(const Parts& parts) {
    if (!AreAlike(parts)) return nullptr;
    const Node& first = *parts[0]->producer();
    if (Value* rows = Whole(parts)) return rows;
    if (first.Is("MatMul") || IsPlainGemm(first)) return Product(parts);
    if (IsElementwiseOp(first)) return Copied(parts, first.num_inputs());
    return LooksAtRows(first) ? Copied(parts, 1) : absl::StatusOr<Value*>(nullptr);
  }

  // Split or Slice of columns.
  bool LooksAtRows(const Node& node) const {
    const auto& shape = node.input(0)->shape();
    if (!shape || shape->rank() != 2) return false;
    if (node.Is("Split")) return NormalAxis(IntOr(node, "axis", 0), 2) == 1;
    const auto cut = OnlyCut(node, contents_);
    return cut && cut->axis == 1;
  }

  static bool IsPlainGemm(const Node& node) {
    return node.Is("Gemm") && (node.num_inputs() == 2 || node.input(2) == nullptr) &&
           node.FloatAttribute("alpha", 1.0f).value_or(0.0f) == 1.0f &&
           IntOr(node, "transA", 0) == 0;
  }

  // Rows of one value, cut by how many there are of each expert.
  Value* Whole(const Parts& parts) {
    const Parts data = Inputs(parts, 0);
    if (parts[0]->producer()->Is("Split")) return WholeOfSplit(parts);
    if (!parts[0]->producer()->Is("Slice") || !AreOne(data)) return nullptr;
    for (size_t e = 0; e < parts.size(); ++e) {
      if (!IsCutOf(*parts[e]->producer(), static_cast<int64_t>(e),
                   static_cast<int64_t>(parts.size()))) {
        return nullptr;
      }
    }
    return data[0];
  }

  Value* WholeOfSplit(const Parts& parts) {
    const Node& split = *parts[0]->producer();
    const auto& shape = split.input(0)->shape();
    const bool all = shape && NormalAxis(IntOr(split, "axis", 0), shape->rank()) == 0 &&
                     split.num_inputs() == 2 && split.input(1) != nullptr &&
                     std::ranges::equal(parts, split.outputs());
    const auto counts = all ? JoinedCountsOf(split.input(1), contents_) : std::nullopt;
    const auto experts = static_cast<int64_t>(parts.size());
    if (!counts || counts->experts != experts) return nullptr;
    return TakeIds(counts->ids, *split.input(0), experts) ? split.input(0) : nullptr;
  }

  bool IsCutOf(const Node& slice, int64_t expert, int64_t experts) {
    if (!CutsRows(slice)) return false;
    const auto end = OffsetOf(slice.input(2), contents_);
    if (!end || end->expert != expert || end->experts != experts) return false;
    if (expert == 0) {
      if (KnownInts(slice.input(1), contents_) != std::vector<int64_t>{0}) return false;
    } else {
      const auto start = OffsetOf(slice.input(1), contents_);
      if (!start || start->expert != expert - 1 || start->ids != end->ids) return false;
    }
    return TakeIds(end->ids, *slice.input(0), experts);
  }

  // Of the first axis alone, by steps of 1; its bounds may be any.
  bool CutsRows(const Node& slice) const {
    const auto holds = [&](int i, int64_t number) {
      return slice.num_inputs() > i && slice.input(i) != nullptr &&
             KnownInts(slice.input(i), contents_) == std::vector<int64_t>{number};
    };
    return holds(3, 0) && (slice.num_inputs() == 4 || holds(4, 1));
  }

  // All cuts are by the same ids, which are as many as there are rows.
  bool TakeIds(Value* ids, const Value& rows, int64_t experts) {
    if (counted_ != nullptr) return counted_ == ids;
    const auto sort = SortOfIds(ids, contents_);
    const bool fits = sort && AreAmong(ids, experts) && rows.shape() && sort->ids->shape() &&
                      ProvablyEqual((*rows.shape())[0], (*sort->ids->shape())[0]);
    if (!fits) return false;
    ids_ = *sort;
    counted_ = ids;
    return true;
  }

  absl::StatusOr<Value*> Product(const Parts& parts) {
    PF_ASSIGN_OR_RETURN(Value * rows, Joined(Inputs(parts, 0)));
    if (rows == nullptr || ids_.ids == nullptr) return nullptr;
    Parts matrices = Inputs(parts, 1);
    bool turned = IntOr(*parts[0]->producer(), "transB", 0) != 0;
    if (!turned && AreAlike(matrices) && matrices[0]->producer()->Is("Transpose")) {
      matrices = Inputs(matrices, 0);
      turned = true;
    }
    PF_ASSIGN_OR_RETURN(std::optional<Tensor> stack, Stacked(matrices));
    if (!stack) return nullptr;
    has_products_ = true;
    if (!writes_) return parts[0];
    Value* weights = graph_.AddInitializer(graph_.UniqueName(matrices[0]->name() + ".experts"),
                                           *std::move(stack));
    Node* made = builder_.AddNode("pagefuse", "GroupedMatMul", {rows, ids_.sorted, weights}, 1);
    if (turned) made->SetAttribute("transB", MakeAttribute(int64_t{1}));
    return made->output(0);
  }

  // The node again over joined inputs: the first `rows`; others are the same of all parts.
  absl::StatusOr<Value*> Copied(const Parts& parts, int rows) {
    const Node& first = *parts[0]->producer();
    std::vector<Value*> inputs;
    for (int i = 0; i < first.num_inputs(); ++i) {
      const Parts own = Inputs(parts, i);
      const bool is_shared = AreOne(own) && (own[0] == nullptr || own[0]->IsConstant());
      if (is_shared) {
        if (own[0] != nullptr && i < rows && own[0]->shape() && own[0]->shape()->rank() > 1)
          return nullptr;
        inputs.push_back(own[0]);
        continue;
      }
      if (i >= rows) return nullptr;
      PF_ASSIGN_OR_RETURN(Value * joined, Joined(own));
      if (joined == nullptr) return nullptr;
      inputs.push_back(joined);
    }
    if (!writes_) return parts[0];
    Node*& copy = copies_[&first];
    if (copy == nullptr) {
      copy = builder_.AddNode(first.domain(), first.op_type(), inputs, first.num_outputs(), first);
    }
    return copy->output(parts[0]->producer_index());
  }

  Graph& graph_;
  GraphBuilder builder_;
  const SymbolicContents& contents_;
  const bool writes_;
  SortedIds ids_;
  const Value* counted_ = nullptr;  // the ids that are sorted, in any shape
  bool has_products_ = false;
  std::map<Parts, Value*> joined_;
  std::map<const Node*, Node*> copies_;
};

absl::StatusOr<bool> Rewrite(Graph& graph, Node* node, const SymbolicContents& contents) {
  const auto& shape = node->Is("Concat") ? node->output(0)->shape() : std::nullopt;
  if (!shape || shape->rank() != 2 || node->num_inputs() < 2 ||
      NormalAxis(IntOr(*node, "axis", 0), 2) != 0) {
    return false;
  }
  const Parts parts(node->inputs().begin(), node->inputs().end());
  ExpertJoiner looker(graph, *node, contents, /*writes=*/false);
  PF_ASSIGN_OR_RETURN(const Value* found, looker.Joined(parts));
  if (found == nullptr || !looker.has_products()) return false;
  ExpertJoiner writer(graph, *node, contents, /*writes=*/true);
  PF_ASSIGN_OR_RETURN(Value * whole, writer.Joined(parts));
  if (!ReplaceValue(graph, node->output(0), whole)) return false;
  graph.EraseIfDead(node);
  return true;
}

absl::StatusOr<bool> Run(Model& model, PassContext& context) {
  bool changed = false;
  for (Node* node : NodesOf(*model.graph)) {
    PF_ASSIGN_OR_RETURN(const bool joined, Rewrite(*model.graph, node, context.contents));
    if (!joined) continue;
    model.opset_imports["pagefuse"] = 1;
    context.contents.clear();
    PF_RETURN_IF_ERROR(InferShapes(model, &context.contents));
    PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    changed = true;
  }
  return changed;
}

}  // namespace

std::unique_ptr<Pass> RecogniseSortedExperts() {
  return MakePass(
      kName,
      "Merges the products of rows that are sorted and cut by expert into one GroupedMatMul.", Run);
}

}  // namespace pagefuse
