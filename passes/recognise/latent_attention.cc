// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/recognise/latent_attention.h"

#include <optional>
#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/attention/last_axis_part.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/edit/readers_text.h"
#include "pagefuse/passes/edit/weight_origin.h"
#include "pagefuse/passes/recognise/coded_matrix.h"

namespace pagefuse {
namespace {

using ports::Attention;

std::optional<int64_t> ConstantDim(const Value* value, int axis) {
  if (!value->shape() || axis >= value->shape()->rank()) return std::nullopt;
  return (*value->shape())[axis].constant();
}

bool HasRank4(const Value* value) { return value->shape() && value->shape()->rank() == 4; }

// latent [B, 1, T, L] or [B, T, L] times weight, as [B, H, T, width].
struct Expansion {
  const Node* product = nullptr;
  Value* latent = nullptr;
};

// Of a product with codes, or with rows [N, K] of bfloat16.
std::pair<int64_t, int64_t> SizesOfCodes(const Node& product) {
  if (product.Is("MatMulNBits", "com.microsoft")) {
    return {IntOr(product, "K", 0), IntOr(product, "N", 0)};
  }
  const std::vector<int64_t>& rows = ConstantOf(product.input(1))->dims();
  return {rows[1], rows[0]};
}

// The sizes [L, H (P + V)] of the constant matrix that a product multiplies by.
std::optional<std::pair<int64_t, int64_t>> MatrixSizes(const Node& product) {
  if (IsProductWithCodes(product)) return SizesOfCodes(product);
  const Value* matrix = product.Is("MatMul") ? product.input(1) : nullptr;
  if (matrix == nullptr || !matrix->shape() || matrix->shape()->rank() != 2 ||
      (ConstantOf(matrix) == nullptr && !IsDequantisedConstant(*matrix))) {
    return std::nullopt;
  }
  const auto sizes = matrix->shape()->constant();
  if (!sizes) return std::nullopt;
  return std::pair((*sizes)[0], (*sizes)[1]);
}

// Rows [B, T, L] whose one head was left out are [B, 1, T, L].
Value* WithHead(Value* rows) {
  const Node* squeeze = rows->producer();
  if (squeeze == nullptr || !squeeze->Is("Squeeze")) return rows;
  Value* whole = squeeze->input(0);
  if (!HasRank4(whole) || ConstantDim(whole, 1) != 1 || !rows->shape() ||
      rows->shape()->rank() != 3) {
    return rows;
  }
  const Shape& from = *whole->shape();
  const bool drops_head =
      ProvablyEqual(from[2], (*rows->shape())[1]) && ProvablyEqual(from[0], (*rows->shape())[0]);
  return drops_head && HasOneReader(*rows) ? whole : rows;
}

std::optional<Expansion> FindExpansion(const Value* whole) {
  const Node* transpose = whole->producer();
  if (transpose == nullptr || !transpose->Is("Transpose") || !HasRank4(whole)) return std::nullopt;
  const auto perm = transpose->IntsAttribute("perm", {});
  if (!perm.ok() || *perm != std::vector<int64_t>{0, 2, 1, 3}) return std::nullopt;
  const Node* reshape = transpose->input(0)->producer();
  if (reshape == nullptr || !reshape->Is("Reshape")) return std::nullopt;
  const Node* product = reshape->input(0)->producer();
  const auto sizes = product == nullptr ? std::nullopt : MatrixSizes(*product);
  if (!sizes) return std::nullopt;
  Value* latent = WithHead(product->input(0));
  const auto& rows = latent->shape();
  const auto& heads = reshape->output(0)->shape();
  if (!rows || !heads) return std::nullopt;
  if (rows->rank() != 3 && !(rows->rank() == 4 && (*rows)[1].constant() == 1)) return std::nullopt;
  // [B, T, H (P + V)] as [B, T, H, P + V].
  if (!ProvablyEqual((*rows)[0], (*heads)[0])) return std::nullopt;
  if (!ProvablyEqual((*rows)[rows->rank() - 2], (*heads)[1])) return std::nullopt;
  const std::optional<int64_t> count = ConstantDim(whole, 1), width = ConstantDim(whole, 3);
  if (!count || !width || *count * *width != sizes->second) return std::nullopt;
  return Expansion{product, latent};
}

// Two values joined along the last of four axes.
const Node* LastAxisPair(const Value* value) {
  const Node* concat = value->producer();
  if (concat == nullptr || !concat->Is("Concat") || concat->num_inputs() != 2) return nullptr;
  return HasRank4(value) && NormalAxis(IntOr(*concat, "axis", 0), 4) == 3 ? concat : nullptr;
}

struct Parts {
  Value* first = nullptr;
  Value* second = nullptr;
};

Parts SplitInTwo(GraphBuilder& builder, Value* x, std::vector<int64_t> sizes, int64_t axis) {
  Node* split = builder.AddNode("", "Split", {x, builder.Ints(std::move(sizes))}, 2);
  split->SetAttribute("axis", MakeAttribute(axis));
  return {split->output(0), split->output(1)};
}

// The parts that the query was joined of, if they are the right ones.
Parts QueryParts(GraphBuilder& builder, const Node& attention, const LatentAttention& match) {
  Value* q = attention.input(Attention::kQuery);
  const Node* joined = LastAxisPair(q);
  if (joined != nullptr && ConstantDim(joined->input(0), 3) == match.nope) {
    return {joined->input(0), joined->input(1)};
  }
  return SplitInTwo(builder, q, {match.nope, match.rope}, 3);
}

}  // namespace

absl::StatusOr<LatentAttention> FindLatentAttention(const Node& attention) {
  const Value* k = attention.input(Attention::kKey);
  const Value* v = attention.input(Attention::kValue);
  const Node* joined = LastAxisPair(k);
  if (joined == nullptr) return absl::NotFoundError("keys are not joined of two parts");
  // Keys of which a part is rotated are joined of two as well.
  const std::optional<LastAxisHalves> parts = FindHalves(joined->input(0), v);
  if (!parts) return absl::NotFoundError("keys and values are not the two parts of one tensor");
  for (const Value* expanded : {k, v}) {
    if (HasOneReader(*expanded)) continue;
    return MatchFailure("expanded ", expanded == k ? "keys" : "values", " ", *expanded,
                        ": expected no reader but ", attention, ", got ",
                        ReadersAndCallerText(*expanded));
  }
  if (attention.input(Attention::kKeyLengths) != nullptr)
    return MatchFailure("attention has its own key lengths");
  const Node* expand = joined->input(1)->producer();
  if (expand == nullptr || !expand->Is("Expand") || ConstantDim(expand->input(0), 1) != 1 ||
      !HasRank4(expand->input(0))) {
    return MatchFailure("the second part of the keys is no expanded head");
  }
  const std::optional<Expansion> expansion = FindExpansion(parts->whole);
  if (!expansion) return MatchFailure("keys and values are no product with a constant matrix");
  const std::optional<int64_t> rope = ConstantDim(expand->input(0), 3);
  const std::optional<int64_t> query_heads = ConstantDim(attention.input(Attention::kQuery), 1);
  const std::optional<int64_t> heads = ConstantDim(parts->whole, 1);
  if (!rope || query_heads != heads || !HasRank4(attention.input(Attention::kQuery))) {
    return MatchFailure("query and keys have other numbers of heads");
  }
  // Concat does not broadcast, as the Expand that goes away may have done along other axes too.
  const Shape& shared = *expand->input(0)->shape();
  const Shape& rows = *parts->whole->shape();
  if (!ProvablyEqual(shared[0], rows[0]) || !ProvablyEqual(shared[2], rows[2]) ||
      ConstantDim(k, 3) != parts->first + *rope) {
    return MatchFailure(
        "the expanded head is not as long as the latent rows, or not of their batch");
  }
  // Another row size would be another default.
  if (attention.attribute("scale") == nullptr) return MatchFailure("attention has no scale");
  return LatentAttention{.latent = expansion->latent,
                         .expansion = expansion->product,
                         .k_pe = expand->input(0),
                         .heads = *heads,
                         .nope = parts->first,
                         .rope = *rope,
                         .value = parts->second,
                         .latent_size = MatrixSizes(*expansion->product)->first};
}

namespace {

// The matrix of the expansion by heads, [H, P + V, L].
absl::StatusOr<Value*> MatricesOfHeads(Graph& graph, GraphBuilder& builder,
                                       const LatentAttention& match) {
  const int64_t width = match.nope + match.value;
  if (!IsProductWithCodes(*match.expansion)) {
    Value* matrix = match.expansion->input(1);
    if (IsDequantisedConstant(*matrix)) {
      PF_ASSIGN_OR_RETURN(Tensor floats, DequantisedConstant(*matrix));
      const Value* codes = matrix->producer()->input(0);
      matrix = graph.AddInitializer(graph.UniqueName(matrix->name()), std::move(floats));
      NoteOrigin(*codes, *matrix);
    }
    Value* matrices =
        builder.Add("Reshape", {matrix, builder.Ints({match.latent_size, match.heads, width})});
    return builder.Add("Transpose", {matrices}, {{"perm", std::vector<int64_t>{1, 2, 0}}});
  }
  PF_ASSIGN_OR_RETURN(const Tensor decoded, DecodedMatrix(*match.expansion));
  PF_ASSIGN_OR_RETURN(Tensor matrices, decoded.Reshaped({match.heads, width, match.latent_size}));
  const Value* codes = match.expansion->input(1);
  Value* made =
      graph.AddInitializer(graph.UniqueName(codes->name() + ".float"), std::move(matrices));
  NoteOrigin(*codes, *made);
  return made;
}

}  // namespace

Value* RowsAsExpanded(GraphBuilder& builder, const LatentAttention& match, Value* rows) {
  const bool rounds = match.expansion->Is("Linear", "pagefuse") &&
                      match.expansion->input(1)->dtype() == DataType::kBfloat16 &&
                      rows->dtype() == DataType::kFloat;
  if (!rounds) return rows;
  Value* rounded = builder.Cast(builder.Cast(rows, DataType::kBfloat16), DataType::kFloat);
  rounded->set_dtype(DataType::kFloat);
  rounded->set_shape(rows->shape());
  return rounded;
}

absl::StatusOr<AbsorbedOperands> AbsorbExpansion(Graph& graph, GraphBuilder& builder,
                                                 const Node& attention,
                                                 const LatentAttention& match) {
  // [H, P + V, L] -> [H, P, L] and [H, V, L]
  PF_ASSIGN_OR_RETURN(Value * heads, MatricesOfHeads(graph, builder, match));
  const Parts weights = SplitInTwo(builder, heads, {match.nope, match.value}, 1);
  const Parts query = QueryParts(builder, attention, match);
  Value* latent_query = builder.Add("MatMul", {query.first, weights.first});
  return AbsorbedOperands{
      .query = builder.Add("Concat", {latent_query, query.second}, {{"axis", -1}}),
      .w_uv =
          builder.Add("Transpose", {weights.second}, {{"perm", std::vector<int64_t>{0, 2, 1}}})};
}

}  // namespace pagefuse
