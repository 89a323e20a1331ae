// absorb-mla: attention over keys and values that are expanded from latent rows becomes attention
// over the latent rows themselves (DeepSeek-V2, section 2.1.2): the expansion of keys moves to the
// query, that of values behind the attention. Keys are then one head, and a cache need hold nothing
// but the latent rows.
//
//   latent [B, 1, T, L] -- MatMul W [L, H (P + V)] -- Reshape -- Transpose -- Split -- k_nope, v
//   y = Attention (Concat (q_nope, q_pe), Concat (k_nope, Expand (k_pe)), v, mask)
//     =>  o = Attention (Concat (q_nope W_UK, q_pe), Concat (latent, k_pe), latent, mask)
//         y = o W_UV
//
// Products move, so that numbers differ by rounding.
#include <optional>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/graph_builder.h"
#include "pagefuse/passes/graph_edit.h"
#include "pagefuse/passes/ports.h"
#include "pagefuse/passes/recognise/recognise.h"

namespace pagefuse {
namespace {

using ports::Attention;
using ports::Slice;

constexpr std::string_view kName = "absorb-mla";

std::optional<int64_t> ConstantDim(const Value* value, int axis) {
  if (!value->shape() || axis >= value->shape()->rank()) return std::nullopt;
  return (*value->shape())[axis].constant();
}

bool HasRank4(const Value* value) { return value->shape() && value->shape()->rank() == 4; }

// Elements [begin, end) of the last axis of `whole`.
struct LastAxisPart {
  Value* whole = nullptr;
  int64_t begin = 0, end = 0;
};

std::optional<LastAxisPart> PartOfSplit(const Value* part) {
  const Node* split = part->producer();
  if (NormalAxis(IntOr(*split, "axis", 0), 4) != 3) return std::nullopt;
  LastAxisPart result{.whole = split->input(0)};
  for (const Value* output : split->outputs()) {
    const std::optional<int64_t> size = output ? ConstantDim(output, 3) : std::nullopt;
    if (!size) return std::nullopt;
    result.end = result.begin + *size;
    if (output == part) return result;
    result.begin = result.end;
  }
  return std::nullopt;
}

std::optional<LastAxisPart> PartOfSlice(const Value* part) {
  const Node* slice = part->producer();
  const auto only = [&](int input) -> std::optional<int64_t> {
    const Tensor* tensor = slice->input(input) ? ConstantOf(slice->input(input)) : nullptr;
    if (tensor == nullptr || tensor->size() != 1) return std::nullopt;
    const absl::StatusOr<std::vector<int64_t>> values = IntegerValues(*tensor);
    return values.ok() ? std::optional<int64_t>(values->front()) : std::nullopt;
  };
  const std::optional<int64_t> begin = only(Slice::kStarts), axis = only(Slice::kAxes);
  const std::optional<int64_t> size = ConstantDim(part, 3);
  if (!begin || *begin < 0 || !axis || NormalAxis(*axis, 4) != 3 || !size) return std::nullopt;
  if (slice->input(Slice::kSteps) != nullptr && only(Slice::kSteps) != 1) return std::nullopt;
  return LastAxisPart{slice->input(Slice::kData), *begin, *begin + *size};
}

std::optional<LastAxisPart> FindPart(const Value* part) {
  const Node* node = part->producer();
  if (node == nullptr || !HasRank4(part)) return std::nullopt;
  if (node->Is("Split")) return PartOfSplit(part);
  if (node->Is("Slice")) return PartOfSlice(part);
  return std::nullopt;
}

// latent [B, 1, T, L] or [B, T, L] times weight, as [B, H, T, width].
struct Expansion {
  Value* latent = nullptr;
  Value* weight = nullptr;
};

std::optional<Expansion> FindExpansion(const Value* whole) {
  const Node* transpose = whole->producer();
  if (transpose == nullptr || !transpose->Is("Transpose") || !HasRank4(whole)) return std::nullopt;
  const auto perm = transpose->IntsAttribute("perm", {});
  if (!perm.ok() || *perm != std::vector<int64_t>{0, 2, 1, 3}) return std::nullopt;
  const Node* reshape = transpose->input(0)->producer();
  if (reshape == nullptr || !reshape->Is("Reshape")) return std::nullopt;
  const Node* product = reshape->input(0)->producer();
  if (product == nullptr || !product->Is("MatMul")) return std::nullopt;
  Value* latent = product->input(0);
  Value* weight = product->input(1);
  const Tensor* matrix = ConstantOf(weight);
  const auto& rows = latent->shape();
  const auto& heads = reshape->output(0)->shape();
  if (matrix == nullptr || matrix->rank() != 2 || !rows || !heads) return std::nullopt;
  if (rows->rank() != 3 && !(rows->rank() == 4 && (*rows)[1].constant() == 1)) return std::nullopt;
  // [B, T, H (P + V)] as [B, T, H, P + V].
  if (!ProvablyEqual((*rows)[0], (*heads)[0])) return std::nullopt;
  if (!ProvablyEqual((*rows)[rows->rank() - 2], (*heads)[1])) return std::nullopt;
  const std::optional<int64_t> count = ConstantDim(whole, 1), width = ConstantDim(whole, 3);
  if (!count || !width || *count * *width != matrix->dims()[1]) return std::nullopt;
  return Expansion{latent, weight};
}

// The pieces of one attention over expanded rows.
struct Mla {
  Expansion expansion;
  Value* k_pe = nullptr;  // [B, 1, T, R]
  int64_t heads = 0, nope = 0, rope = 0, value = 0, latent = 0;
};

// Two values joined along the last of four axes.
const Node* LastAxisPair(const Value* value) {
  const Node* concat = value->producer();
  if (concat == nullptr || !concat->Is("Concat") || concat->num_inputs() != 2) return nullptr;
  return HasRank4(value) && NormalAxis(IntOr(*concat, "axis", 0), 4) == 3 ? concat : nullptr;
}

absl::Status Missing(std::string_view what) {
  return absl::FailedPreconditionError({what.data(), what.size()});
}

absl::StatusOr<Mla> FindMla(const Node& attention) {
  const Value* k = attention.input(Attention::kKey);
  const Value* v = attention.input(Attention::kValue);
  const Node* joined = LastAxisPair(k);
  if (joined == nullptr || attention.input(Attention::kPastKey) != nullptr ||
      attention.num_outputs() != 1) {
    return Missing("keys are not joined of two parts");
  }
  if (k->uses().size() != 1 || v->uses().size() != 1 || k->is_output() || v->is_output()) {
    return Missing("expanded keys or values are read elsewhere");
  }
  if (attention.input(Attention::kKeyLengths) != nullptr)
    return Missing("attention has its own key lengths");
  const Node* expand = joined->input(1)->producer();
  if (expand == nullptr || !expand->Is("Expand") || ConstantDim(expand->input(0), 1) != 1 ||
      !HasRank4(expand->input(0))) {
    return Missing("the second part of the keys is no expanded head");
  }
  const std::optional<LastAxisPart> key = FindPart(joined->input(0));
  const std::optional<LastAxisPart> value = FindPart(v);
  if (!key || !value || key->whole != value->whole || key->begin != 0 || value->begin != key->end ||
      ConstantDim(key->whole, 3) != value->end) {
    return Missing("keys and values are not the two parts of one tensor");
  }
  const std::optional<Expansion> expansion = FindExpansion(key->whole);
  if (!expansion) return Missing("keys and values are no product with a constant matrix");
  const std::optional<int64_t> rope = ConstantDim(expand->input(0), 3);
  const std::optional<int64_t> query_heads = ConstantDim(attention.input(Attention::kQuery), 1);
  const std::optional<int64_t> heads = ConstantDim(key->whole, 1);
  if (!rope || query_heads != heads || !HasRank4(attention.input(Attention::kQuery))) {
    return Missing("query and keys have other numbers of heads");
  }
  // Concat does not broadcast, as the Expand that goes away may have done along other axes too.
  const Shape& shared = *expand->input(0)->shape();
  const Shape& rows = *key->whole->shape();
  if (!ProvablyEqual(shared[0], rows[0]) || !ProvablyEqual(shared[2], rows[2]) ||
      ConstantDim(k, 3) != key->end + *rope) {
    return Missing("the expanded head is not as long as the latent rows, or not of their batch");
  }
  // Another row size would be another default.
  if (attention.attribute("scale") == nullptr) return Missing("attention has no scale");
  return Mla{.expansion = *expansion,
             .k_pe = expand->input(0),
             .heads = *heads,
             .nope = key->end,
             .rope = *rope,
             .value = value->end - value->begin,
             .latent = ConstantOf(expansion->weight)->dims()[0]};
}

// Builds the absorbed form before an Attention.
class Absorber {
 public:
  Absorber(Graph& graph, Node* attention, const Mla& mla)
      : attention_(attention),
        mla_(mla),
        builder_(graph, attention, attention->output(0)->name()) {}

  Value* Build() {
    // [L, H (P + V)] -> [H, P + V, L] -> [H, P, L] and [H, V, L]
    Value* matrices = builder_.Add(
        "Reshape",
        {mla_.expansion.weight, builder_.Ints({mla_.latent, mla_.heads, mla_.nope + mla_.value})});
    Value* heads = builder_.Add("Transpose", {matrices}, "perm", std::vector<int64_t>{1, 2, 0});
    const Parts weights = Split(heads, {mla_.nope, mla_.value}, 1);
    Value* w_uv =
        builder_.Add("Transpose", {weights.second}, "perm", std::vector<int64_t>{0, 2, 1});

    const Parts query = SplitQuery();
    Value* latent_query = builder_.Add("MatMul", {query.first, weights.first});
    Value* q = builder_.Add("Concat", {latent_query, query.second}, "axis", int64_t{-1});
    Value* latent = mla_.expansion.latent;
    if (latent->shape()->rank() == 3) {
      latent = builder_.Add("Unsqueeze", {latent, builder_.Ints({1})});
    }
    Value* k = builder_.Add("Concat", {latent, mla_.k_pe}, "axis", int64_t{-1});
    Node* absorbed =
        builder_.AddNode("", "Attention", {q, k, latent, attention_->input(Attention::kMask)}, 1);
    absorbed->name = attention_->name;
    absorbed->metadata = attention_->metadata;
    for (const auto& [name, value] : attention_->attributes()) absorbed->SetAttribute(name, value);
    return builder_.Add("MatMul", {absorbed->output(0), w_uv});
  }

 private:
  struct Parts {
    Value* first;
    Value* second;
  };

  Parts Split(Value* x, std::vector<int64_t> sizes, int64_t axis) {
    Node* split = builder_.AddNode("", "Split", {x, builder_.Ints(std::move(sizes))}, 2);
    split->SetAttribute("axis", MakeAttribute(axis));
    return {split->output(0), split->output(1)};
  }

  // The parts that the query was joined of, if they are the right ones.
  Parts SplitQuery() {
    Value* q = attention_->input(Attention::kQuery);
    const Node* joined = LastAxisPair(q);
    if (joined != nullptr && ConstantDim(joined->input(0), 3) == mla_.nope) {
      return {joined->input(0), joined->input(1)};
    }
    return Split(q, {mla_.nope, mla_.rope}, 3);
  }

  Node* attention_;
  const Mla& mla_;
  GraphBuilder builder_;
};

class AbsorbMlaPass : public Pass {
 public:
  std::string_view name() const override { return kName; }
  std::string_view description() const override {
    return "Moves the expansion of latent keys and values out of attention (option "
           "absorb_mla=on).";
  }
  std::vector<PassOption> options() const override { return {AbsorbMlaOption()}; }

  absl::StatusOr<bool> Run(Model& model, PassContext& context) const override {
    const bool on = context.Option("absorb_mla", "off") == "on";
    PF_RETURN_IF_ERROR(InferShapes(model));
    Graph& graph = *model.graph;
    bool changed = false;
    for (Node* node : NodesOf(graph)) {
      if (!node->Is("Attention")) continue;
      const absl::StatusOr<Mla> mla = on ? FindMla(*node) : Missing("option absorb_mla is not on");
      if (!mla.ok()) {
        context.AddMiss(kName, NodeLabel(*node), std::string(mla.status().message()));
        continue;
      }
      changed = true;
      Value* y = Absorber(graph, node, *mla).Build();
      graph.ReplaceAllUses(node->output(0), y);
      graph.EraseIfDead(node);
      PF_RETURN_IF_ERROR(context.Rewrote(model, kName));
    }
    return changed;
  }
};

}  // namespace

std::unique_ptr<Pass> AbsorbMla() { return std::make_unique<AbsorbMlaPass>(); }

}  // namespace pagefuse
