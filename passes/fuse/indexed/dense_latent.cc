// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/fuse/indexed/dense_latent.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/edit/match_failure.h"

namespace pagefuse {
namespace {

absl::Status SetAttributes(const AttentionMatch& match, const LatentCall& call, Node& node) {
  const auto size = match.d->extent.constant();
  if (!size) return MatchFailure("the size of values is not known");
  node.SetAttribute("format", MakeAttribute(call.format));
  node.SetAttribute("scale", MakeAttribute(static_cast<float>(match.scale)));
  node.SetAttribute("head_dim_v", MakeAttribute(*size));
  if (!call.causal) node.SetAttribute("is_causal", MakeAttribute(int64_t{0}));
  if (call.block_size > 0) node.SetAttribute("block_size", MakeAttribute(call.block_size));
  if (call.extra_block_size > 0) {
    node.SetAttribute("extra_block_size", MakeAttribute(call.extra_block_size));
  }
  return absl::OkStatus();
}

// Rows of a block stand one behind the other: row number = tokens of a block * block + place.
absl::Status CheckBlocks(const LatentRows& rows, const PagedAxes& axes) {
  const Shape& shape = *rows.cache->shape();
  Dim tokens(1);
  for (int axis = 1; axis + 1 < shape.rank(); ++axis) tokens = tokens * shape[axis];
  if (rows.block_size > 0) tokens = Dim(rows.block_size);
  const IndexSymbolPtr place = axes.row.size() == 1 ? axes.row[0] : nullptr;
  const IndexExpr expected =
      IndexExpr::Of(axes.block).Times(tokens) + (place ? IndexExpr::Of(place) : IndexExpr());
  if (rows.row.Key() == expected.Key()) return absl::OkStatus();
  return MatchFailure("row ", rows.row.Key(), " is taken, expected ", expected.Key());
}

absl::Status CheckRules(const AttentionMaskPorts& visible) {
  const bool whole = visible.window == 0 && visible.chunk == 0;
  if (whole && !visible.causal_flags && !visible.ranges) return absl::OkStatus();
  return MatchFailure(
      "rows see a window, chunks or ranges of keys, or are causal in some sequences");
}

}  // namespace

absl::StatusOr<std::vector<Value*>> BuildLatentCall(GraphBuilder& builder, Layout& layout,
                                                    const AttentionMatch& match,
                                                    const LatentCall& call,
                                                    const std::optional<LogSums>& sums) {
  if (match.softcap != 0) return MatchFailure("the op has no soft cap");
  std::vector<Value*> inputs = call.inputs;
  if (match.sink) {
    PF_ASSIGN_OR_RETURN(inputs[kSparseMlaIn["attn_sink"]],
                        layout.Gathered(*match.sink, {call.heads}));
  }
  while (!inputs.back()) inputs.pop_back();
  Node* node = builder.AddNode("pagefuse", "SparseMlaAttention", inputs, sums ? 2 : 1);
  PF_RETURN_IF_ERROR(SetAttributes(match, call, *node));
  PF_ASSIGN_OR_RETURN(
      Value * result,
      layout.Spread(node->output(0), {call.tokens, call.heads, {match.d}}, match.output));
  const DataType wanted = match.output.value->dtype();
  if (inputs[kSparseMlaIn["q"]]->dtype() != wanted) {
    result = builder.Cast(result, wanted);
  }
  if (!sums) return std::vector<Value*>{result};
  PF_ASSIGN_OR_RETURN(Value * spread,
                      layout.Spread(node->output(1), {call.tokens, call.heads}, sums->element));
  return std::vector<Value*>{result, spread};
}

absl::StatusOr<DenseLatentRows> ReadDenseLatentRows(IndexingAnalysis& reader,
                                                    const OpsetImports& opsets,
                                                    const AttentionMatch& match) {
  DenseLatentRows dense;
  PF_ASSIGN_OR_RETURN(dense.rows, ReadLatentRows(reader, opsets,
                                                 {match.n, match.e, match.d, match.key, match.value,
                                                  match.visible}));
  ReadRows keys;
  keys.codes = dense.rows.codes;
  PF_ASSIGN_OR_RETURN(dense.axes, PagedAxesOf(match, keys));
  // A table of one column, or none, is that of a contiguous cache.
  if (!dense.axes.block || dense.axes.row.size() > 1) {
    return absl::NotFoundError("rows are read through no block table");
  }
  if (!dense.axes.heads.empty()) return absl::NotFoundError("heads have rows of their own");
  const Element query = NarrowQuery(reader, match);
  const bool numbers = dense.rows.format == "bf16";
  if (numbers && (dense.rows.cache->dtype() != DataType::kBfloat16 ||
                  query.value->dtype() != DataType::kBfloat16)) {
    return absl::NotFoundError("rows are numbers that are no bfloat16");
  }
  PF_ASSIGN_OR_RETURN(dense.visible, AttentionMaskPortsOf(match, dense.axes));
  PF_RETURN_IF_ERROR(CheckRules(dense.visible));
  PF_RETURN_IF_ERROR(CheckBlocks(dense.rows, dense.axes));
  return dense;
}

absl::StatusOr<std::vector<Value*>> BuildDenseLatent(GraphBuilder& builder,
                                                     IndexingAnalysis& reader,
                                                     const AttentionMatch& match,
                                                     const DenseLatentRows& dense,
                                                     const std::optional<LogSums>& sums) {
  PagedAttentionPorts ports(builder, match, dense.axes, dense.visible);
  LatentCall call{.inputs = std::vector<Value*>(kSparseMlaIn.size(), nullptr),
                  .tokens = ports.Tokens(),
                  .heads = ports.Heads(),
                  .format = dense.rows.format,
                  .block_size = dense.rows.block_size,
                  .causal = dense.visible.causal};
  Layout& layout = ports.layout();
  std::vector<Value*>& inputs = call.inputs;
  PF_ASSIGN_OR_RETURN(
      inputs[kSparseMlaIn["q"]],
      layout.Gathered(NarrowQuery(reader, match), {call.tokens, call.heads, {match.e}}));
  inputs[kSparseMlaIn["kv_cache"]] = dense.rows.cache;
  PF_ASSIGN_OR_RETURN(inputs[kSparseMlaIn["block_table"]], ports.BlockTable());
  PF_ASSIGN_OR_RETURN(inputs[kSparseMlaIn["seq_lens"]], ports.Lengths());
  PF_ASSIGN_OR_RETURN(inputs[kSparseMlaIn["query_start_loc"]], ports.FirstTokens());
  return BuildLatentCall(builder, layout, match, call, sums);
}

}  // namespace pagefuse
