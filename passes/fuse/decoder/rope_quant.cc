// SPDX-License-Identifier: Apache-2.0
// fuse-rope-quant: fuses norms and rotation of query and key, quantisation, and the insert into the
// paged cache into one op, so that each new row is read once and written once.
//
//   query -- RMSNormalization -- RotaryEmbedding -- query_out
//   key   -- RMSNormalization -- RotaryEmbedding --+
//   value -----------------------------------------+-- PagedCacheInsert -- caches
//
//     =>  query_out, caches = RopeCacheInsert (query, key, value, ..)
//
// The op wants a slot and a row of the tables for each token, and norm weights of each channel.
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/analysis/indexing/broadcast_proof.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/rewrite/rule.h"

namespace pagefuse {
namespace {

// Rows [T, H, D] of query or key to `<name>_out`. The rotation is the 3-D form [1, T, H*D].
std::string Rotated(const std::string& name, const std::string& out, bool normed) {
  const std::string source = normed ? name + "_normed" : name;
  return StrCat(
      normed ? StrCat(name, "_normed = RMSNormalization <axis = -1, epsilon: float = @epsilon> (",
                      name, ", ", name == "query" ? "q" : "k", "_norm_weight)  ")
             : "",
      name, "_shape = Shape (", name, ")  ", name, "_flat = Flatten <axis = 1> (", source, ")  ",
      name, "_batched = Unsqueeze (", name, "_flat, batch)  ", name,
      "_rotated = RotaryEmbedding <interleaved: int = @interleaved, rotary_embedding_dim: int = "
      "@rotary_embedding_dim, num_heads: int = @",
      name, "_heads> (", name, "_batched, cos, sin)  ", out, " = Reshape (", name, "_rotated, ",
      name, "_shape)  ");
}

// The op has the heads of query and key [T, H, D]; the rotation of [1, T, H * D] had its own.
Condition RotatesHeadsOf(const std::string& side) {
  return {side + " is rotated by its heads", [side](const Match& match) -> absl::Status {
            const AxisOf heads = {match.value(side), 1};
            const auto rotated = match.attributes.find(side + "_heads");
            const int64_t* number = rotated == match.attributes.end()
                                        ? nullptr
                                        : std::get_if<int64_t>(&rotated->second.value);
            if (number && heads.dim().constant() == *number) return absl::OkStatus();
            return MatchFailure(*heads.value, " has ", heads.dim().ToString(),
                                " heads and is rotated as ", number ? StrCat(*number) : "unknown");
          }};
}

Rule RopeInsertRule(bool normed, bool row_scales) {
  const std::string norms = normed ? ", q_norm_weight, k_norm_weight" : "";
  const std::string inputs =
      StrCat("(query, key, value, key_cache, value_cache, slot_mapping, cos, sin", norms,
             row_scales ? ", k_scale_cache, v_scale_cache" : ", k_scale?, v_scale?", ")");
  const std::string outputs = StrCat("query_out, key_cache_out, value_cache_out",
                                     row_scales ? ", k_scale_cache_out, v_scale_cache_out" : "");
  const std::string caches = StrCat("key_cache_out, value_cache_out",
                                    row_scales ? ", k_scale_cache_out, v_scale_cache_out" : "");
  const std::string scales =
      row_scales ? ", , , k_scale_cache, v_scale_cache" : ", k_scale, v_scale";
  const std::string pattern =
      StrCat(inputs, " => (", outputs, ") { batch = Constant <value_ints: ints = [0]> ()  ",
             Rotated("query", "query_out", normed), Rotated("key", "key_out", normed), caches,
             " = pagefuse.PagedCacheInsert <kv_quant_mode: string = @kv_quant_mode, int8_rounding: "
             "string = "
             "@int8_rounding> (key_out, value, key_cache, value_cache, slot_mapping",
             scales, ") }");
  const std::string replacement = StrCat(
      inputs, " => (", outputs,
      ") { batch = Constant <value_ints: ints = [0]> ()  "
      "cos_rows = Squeeze (cos, batch)  sin_rows = Squeeze (sin, batch)  query_out, ",
      caches,
      " = pagefuse.RopeCacheInsert <interleaved: int = @interleaved, rotary_embedding_dim: int = "
      "@rotary_embedding_dim, ",
      normed ? "epsilon: float = @epsilon, " : "",
      "kv_quant_mode: string = @kv_quant_mode, int8_rounding: string = @int8_rounding> (query, "
      "key, value, "
      "key_cache, value_cache, slot_mapping, , cos_rows, sin_rows",
      normed ? ", q_norm_weight, k_norm_weight" : ", , ", scales, ") }");
  return Rule(StrCat("fuse-rope-quant", normed ? "" : "-no-norm", row_scales ? "-row-scales" : ""),
              "norm, rotation, quantisation and insert in one op")
      .MatchText(pattern)
      .Metadata({"cos", "sin", "slot_mapping"})
      .Where(RotatesHeadsOf("query"))
      .Where(RotatesHeadsOf("key"))
      .Where(SameLengths({{"slot_mapping", 0, "query", 0},
                          {"q_norm_weight", 0, "query", 2},
                          {"k_norm_weight", 0, "key", 2}}))
      .ReplaceWith(replacement);
}

}  // namespace

std::unique_ptr<Pass> FuseRopeQuant() {
  std::vector<Rule> rules;
  for (bool normed : {true, false}) {
    for (bool row_scales : {true, false}) rules.push_back(RopeInsertRule(normed, row_scales));
  }
  return MakeRulePass(
      "fuse-rope-quant",
      "Fuses the norm, rotation and quantisation of queries and keys with the cache insert into "
      "RopeCacheInsert.",
      std::move(rules));
}

}  // namespace pagefuse
