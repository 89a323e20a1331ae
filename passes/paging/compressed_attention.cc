// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/paging/compressed_attention.h"

#include <numeric>
#include <utility>
#include <vector>

#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/paging/packed_heads.h"

namespace pagefuse {
namespace {

using ports::Attention;

class CompressedBuilder {
 public:
  CompressedBuilder(GraphBuilder& builder, const CompressedStep& step)
      : builder_(builder), step_(step) {}

  Value* InsertRow(const Value* row, int64_t size, Value* cache) {
    Value* rows = builder_.Reshape(const_cast<Value*>(row), {-1, size});
    return builder_.AddOurs("MlaCacheInsert", {rows, nullptr, step_.window.slot_mapping, cache});
  }

  // The slots of the tokens that a window of `window` shows.
  Value* WindowSlots(int64_t window) {
    std::vector<int64_t> back(static_cast<size_t>(window));
    std::iota(back.begin(), back.end(), 0);
    Value* column = builder_.Add("Unsqueeze", {step_.positions, builder_.Ints({1})});
    Value* tokens = builder_.Add("Sub", {column, builder_.Ints(back)});
    return SlotsOf(step_.window, Narrow(tokens));
  }

  // The cache of windows with those that the step closes; `state` becomes that with its tokens.
  Value* Compress(const CompressedRows& rows, const GroupInputs& kept, Value*& state,
                  Value* cache) {
    Value* kv = builder_.Reshape(AsFloat(rows.kv), {-1, rows.width()});
    Value* gate = builder_.Reshape(AsFloat(rows.gate), {-1, rows.width()});
    state =
        builder_.AddOurs("CompressorStateInsert",
                         {kv, gate, AsFloat(rows.bias), step_.positions, kept.slot_mapping, state},
                         {{"compress_ratio", rows.ratio}});
    Value* begin = Times(Quotient(step_.positions, rows.ratio), rows.ratio);
    return builder_.AddOurs(
        "CompressCacheInsert",
        {state, step_.owners->sequence, step_.positions, kept.slot_mapping, kept.block_table,
         AsFloat(rows.norm_weight), CosSinRows(builder_, rows.angles, begin),
         step_.compressed.slot_mapping, cache},
        {{"format", "none"},
         {"compress_ratio", rows.ratio},
         {"overlap", rows.overlap},
         {"eps", rows.epsilon},
         {"cos_sin_rows", 1}});
  }

  // The slots of all windows that are closed.
  Value* ClosedSlots(int64_t ratio) {
    Value* columns = builder_.Size(step_.compressed.block_table, 1);
    Value* count = Times(builder_.Add("Squeeze", {columns}), step_.compressed.block_size);
    Value* windows = Narrow(builder_.Add("Range", {builder_.Int(0), count, builder_.Int(1)}));
    Value* closed = builder_.Add("Unsqueeze", {Closed(ratio), builder_.Ints({1})});
    Value* seen = builder_.Add("Less", {windows, closed});
    Value* none = Narrow(builder_.Int(-1));
    return SlotsOf(step_.compressed, builder_.Add("Where", {seen, windows, none}));
  }

  // The slots of the windows that an indexer chooses.
  Value* ChosenSlots(const WindowChoice& choice, Value* index_cache) {
    const int64_t ratio = choice.keys.ratio;
    Value* query = builder_.Reshape(choice.query, {-1, choice.heads, choice.keys.size});
    Value* weights = builder_.Reshape(AsFloat(choice.weights), {-1, choice.heads});
    Value* scores = builder_.AddOurs("PagedMqaLogits",
                                     {query, index_cache, weights, step_.seq_lens,
                                      step_.compressed.block_table, nullptr, step_.query_start_loc},
                                     {{"format", "bf16"}, {"ratio", ratio}});
    Value* chosen = builder_.AddOurs("IndexerTopK", {scores, step_.owners->none, Closed(ratio)},
                                     {{"topk", choice.most}});
    return SlotsOf(step_.compressed, chosen);
  }

 private:
  Value* AsFloat(Value* value) {
    return value->dtype() == DataType::kFloat ? value : builder_.Cast(value, DataType::kFloat);
  }
  Value* Narrow(Value* value) { return builder_.Cast(value, DataType::kInt32); }
  Value* Times(Value* value, int64_t factor) {
    return builder_.Add("Mul", {value, builder_.Int(factor)});
  }
  Value* Quotient(Value* value, int64_t divisor) {
    return builder_.Add("Div", {value, builder_.Int(divisor)});
  }
  // How many windows are closed at a token's position, int32 [T].
  Value* Closed(int64_t ratio) {
    Value* tokens = builder_.Add("Add", {step_.positions, builder_.Int(1)});
    return Narrow(Quotient(tokens, ratio));
  }
  Value* SlotsOf(const GroupInputs& group, Value* rows) {
    Node* slots = builder_.AddNode("pagefuse", "ReqIndexToSlot",
                                   {step_.owners->sequence, group.block_table, rows}, 2,
                                   {{"block_size", group.block_size}});
    return slots->output(0);
  }

  GraphBuilder& builder_;
  const CompressedStep& step_;
};

}  // namespace

Node* AttendCompressed(GraphBuilder& builder, const Node& attention, const CompressedMatch& match,
                       const CompressedStep& step, CompressedCaches& caches) {
  CompressedBuilder parts(builder, step);
  caches.row = parts.InsertRow(attention.input(Attention::kKey), match.size, caches.row);
  std::vector<Value*> ports(kSparseMlaIn["extra_indices"] + 1);
  ports[kSparseMlaIn["q"]] =
      PackedHeads(builder, attention.input(Attention::kQuery), match.heads, match.size);
  ports[kSparseMlaIn["kv_cache"]] = caches.row;
  ports[kSparseMlaIn["indices"]] = parts.WindowSlots(IntOr(attention, "left_window_size", 0) + 1);
  ports[kSparseMlaIn["attn_sink"]] = match.sinks;
  if (match.rows) {
    caches.compressed = parts.Compress(*match.rows, step.state, caches.state, caches.compressed);
    ports[kSparseMlaIn["extra_kv_cache"]] = caches.compressed;
    if (match.choice) {
      caches.compressed_index = parts.Compress(match.choice->keys, step.index_state,
                                               caches.index_state, caches.compressed_index);
      ports[kSparseMlaIn["extra_indices"]] =
          parts.ChosenSlots(*match.choice, caches.compressed_index);
    } else {
      ports[kSparseMlaIn["extra_indices"]] = parts.ClosedSlots(match.rows->ratio);
    }
  }
  while (!ports.back()) ports.pop_back();
  return builder.AddNode("pagefuse", "SparseMlaAttention", std::move(ports), 1,
                         {{"scale", *attention.attribute("scale")}, {"head_dim_v", match.size}});
}

}  // namespace pagefuse
