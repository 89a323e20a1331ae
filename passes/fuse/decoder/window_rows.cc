// SPDX-License-Identifier: Apache-2.0
// fuse-window-rows: the norm and rotation of the query, and the rotation and insert of the row that
// is key and value of a window (DeepSeek-V4), become one op.
//
//   q [1, H, T, D] -- RMSNormalization without weight -- last R channels rotated -- heads [T, H, D]
//   kv [1, 1, T, D] -- last R channels rotated by the same angles -- rows [T, D] -- MlaCacheInsert
//     =>  q', kv_cache_out = QNormRopeKvInsert <format = none> (q, kv, kv_cache, slots, Range (T),
//                                                               Concat (cos, sin))
//
// The attention over both tells which query goes with which row. Nothing else may be computed from
// the rotated rows: what a token sees of its own row is what the cache keeps of it.
#include <algorithm>
#include <string>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/attention/last_axis_part.h"
#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/fuse/decoder/rotary_rows.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {
namespace {

constexpr char kPattern[] = R"(
    (q_nope, q_tail, kv_nope, kv_tail, cos, sin, kv_cache, slots, indices, topk_lens?, attn_sink?,
     extra_kv_cache?, extra_indices?, extra_topk_lens?) => (out, kv_cache_out) {
  batch = Constant <value_ints: ints = [0]> ()
  batch_and_head = Constant <value_ints: ints = [0, 1]> ()
  q_rotated = RotaryEmbedding <interleaved: int = 1> (q_tail, cos, sin)
  q_joined = Concat <axis: int = -1> (q_nope, q_rotated)
  q_tokens = Transpose <perm: ints = [0, 2, 1, 3]> (q_joined)
  q = Squeeze (q_tokens, batch)
  kv_rotated = RotaryEmbedding <interleaved: int = 1> (kv_tail, cos, sin)
  kv_joined = Concat <axis: int = -1> (kv_nope, kv_rotated)
  row = Squeeze (kv_joined, batch_and_head)
  kv_cache_out = pagefuse.MlaCacheInsert (row, , slots, kv_cache)
  out = pagefuse.SparseMlaAttention <scale: float = @scale, head_dim_v: int = @head_dim_v> (
      q, kv_cache_out, indices, topk_lens, attn_sink, extra_kv_cache, extra_indices,
      extra_topk_lens)
})";

absl::Status Unlike(std::string_view what) { return absl::FailedPreconditionError(AbslView(what)); }

LastAxisHalves HalvesOf(const Match& match, const std::string& side) {
  return *FindHalves(match.value(side + "_nope"), match.value(side + "_tail"));
}

Condition IsRotatedAtItsEnd(const std::string& side) {
  return {side + " is rotated at its end", [side](const Match& match) {
            if (FindHalves(match.value(side + "_nope"), match.value(side + "_tail"))) {
              return absl::OkStatus();
            }
            return Unlike(StrCat("\"", match.value(side + "_nope")->name(), "\" and \"",
                                 match.value(side + "_tail")->name(),
                                 "\" are not the two parts of one tensor"));
          }};
}

// The norm whose result the query is.
const Node* NormOf(const Match& match) { return HalvesOf(match, "q").whole->producer(); }

absl::Status CheckNorm(const Match& match) {
  const Node* norm = NormOf(match);
  if (!norm || !norm->Is("RMSNormalization") || NormalAxis(IntOr(*norm, "axis", -1), 4) != 3) {
    return Unlike("the query is no RMSNormalization of its channels");
  }
  const Tensor* weight = ConstantOf(norm->input(1));
  const auto is_one = [](float channel) { return channel == 1.0f; };
  const bool is_unit =
      weight && weight->dtype() == DataType::kFloat &&
      std::all_of(weight->values<float>().begin(), weight->values<float>().end(), is_one);
  if (is_unit) return absl::OkStatus();
  return Unlike(StrCat("the norm of the query: expected weights of 1 in float, got \"",
                       norm->input(1)->name(), "\""));
}

absl::Status CheckShapes(const Match& match) {
  const auto& q = NormOf(match)->input(0)->shape();
  const Value* kv = HalvesOf(match, "kv").whole;
  const Value* slots = match.value("slots");
  const bool has_sizes = q && q->rank() == 4 && (*q)[0] == Dim(1) && (*q)[1].is_constant() &&
                         kv->shape() && (*kv->shape())[0] == Dim(1) &&
                         (*kv->shape())[1] == Dim(1) && slots->shape();
  if (!has_sizes || !ProvablyEqual((*q)[2], (*kv->shape())[2]) ||
      !ProvablyEqual((*q)[2], (*slots->shape())[0]) ||
      q->back(0).constant() != kv->shape()->back(0).constant()) {
    return Unlike(StrCat("expected a query [1, H, T, D], a row [1, 1, T, D] and T slots, got ",
                         q ? q->ToString() : "no shape", ", ",
                         kv->shape() ? kv->shape()->ToString() : "no shape", " and ",
                         slots->shape() ? slots->shape()->ToString() : "no shape"));
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const Match& match) {
  const DataType q = NormOf(match)->input(0)->dtype();
  const DataType cache = match.value("kv_cache")->dtype();
  if (q == cache) return absl::OkStatus();
  return Unlike(StrCat("expected a query of the type of the cache, ", DataTypeName(cache), ", got ",
                       DataTypeName(q)));
}

// The row of a table [1, T, R/2].
Value* TableRows(GraphBuilder& builder, Value* table) {
  return builder.Add("Squeeze", {table, builder.Ints({0})});
}

absl::StatusOr<std::vector<Value*>> Fused(const Match& match, Graph& graph, Node* anchor) {
  GraphBuilder builder(graph, anchor, match.value("kv_cache_out")->name());
  const Node& norm = *NormOf(match);
  const int64_t heads = *(*norm.input(0)->shape())[1].constant();
  const int64_t size = *norm.input(0)->shape()->back(0).constant();
  Value* tokens = builder.SwapHeadsAndTokens(norm.input(0));
  Value* query = builder.Reshape(tokens, {-1, heads, size});
  Value* row = builder.Reshape(HalvesOf(match, "kv").whole, {-1, size});
  Value* slots = match.value("slots");
  Value* cos_sin = CosSinRows(builder, TableRows(builder, match.value("cos")),
                              TableRows(builder, match.value("sin")));
  PF_ASSIGN_OR_RETURN(const float epsilon, norm.FloatAttribute("epsilon", 1e-5f));
  Node* insert = builder.AddNode(
      "pagefuse", "QNormRopeKvInsert",
      {query, row, match.value("kv_cache"), slots, RowNumbers(builder, slots), cos_sin}, 2,
      {{"format", "none"}, {"eps", epsilon}});
  std::vector<Value*> inputs = {insert->output(0), insert->output(1)};
  for (const char* name : {"indices", "topk_lens", "attn_sink", "extra_kv_cache", "extra_indices",
                           "extra_topk_lens"}) {
    inputs.push_back(match.value(name));
  }
  while (!inputs.back()) inputs.pop_back();
  Value* attention = builder.AddOurs("SparseMlaAttention", inputs,
                                     {{"scale", match.attributes.find("scale")->second},
                                      {"head_dim_v", match.attributes.find("head_dim_v")->second}});
  return std::vector<Value*>{attention, insert->output(1)};
}

Rule WindowRowsRule() {
  return Rule("fuse-window-rows",
              "a query that is normed and rotated, and a row that is rotated and inserted into the "
              "cache")
      .MatchText(kPattern)
      .Needs("SparseMlaAttention")
      .Metadata({"cos", "sin", "slots"})
      .Where(IsRotatedAtItsEnd("q"))
      .Where(IsRotatedAtItsEnd("kv"))
      .Where("the query is normed without weight", CheckNorm)
      .Where("query and row belong to the same tokens", CheckShapes)
      .Where("query and cache have one type", CheckTypes)
      .ReplaceWith(Fused);
}

}  // namespace

std::unique_ptr<Pass> FuseWindowRows() {
  return MakeRulePass(
      "fuse-window-rows",
      "Fuses the norm and rotation of queries with the rotation and cache insert of the rows of "
      "a sliding window into QNormRopeKvInsert.",
      {WindowRowsRule()});
}

}  // namespace pagefuse
