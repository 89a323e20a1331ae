// SPDX-License-Identifier: Apache-2.0
// fuse-contiguous-insert: new keys and values scattered into contiguous caches by position become
// one PagedCacheInsert, where a block is the rows of one sequence and head.
//
//   TensorScatter <axis = 2> (cache [B, H, N, D], new [B, H, S, D], first [B])
//     =>  PagedCacheInsert (new [B H S, 1, D], .., cache [B H, N, 1, D], .., slots)
//         slots[b, h, s] = (b H + h) N + first[b] + s

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/layout.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/ports.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"

namespace pagefuse {
namespace {

using ports::TensorScatter;

constexpr const char* kName = "fuse-contiguous-insert";

// The keys or values of a PagedAttention, as the scatter that wrote them.
Node* ScatterBehind(Value* cache) {
  Node* node = cache ? cache->producer() : nullptr;
  while (node && (node->Is("Reshape") || node->Is("Identity"))) node = node->input(0)->producer();
  return node && node->Is("TensorScatter") ? node : nullptr;
}

struct Insert {
  Node* key = nullptr;
  Node* value = nullptr;
  Dim batch, heads, rows, fresh;
};

absl::StatusOr<Insert> InsertOf(const Node& attention) {
  Insert insert;
  insert.key = ScatterBehind(attention.input(ports::Attention::kKey));
  insert.value = ScatterBehind(attention.input(ports::Attention::kValue));
  if (!insert.key || !insert.value) return absl::NotFoundError("the caches are not scattered");
  if (insert.key == insert.value) return MatchFailure("keys and values are one cache");
  for (const Node* node : {insert.key, insert.value}) {
    const auto& shape = node->input(0)->shape();
    if (!shape || shape->rank() != 4 || NormalAxis(IntOr(*node, "axis", -2), 4) != 2) {
      return MatchFailure("a cache is no [B, H, N, D] that is written along N");
    }
    if (StringOr(*node, "mode", "linear") != "linear") return MatchFailure("a cache is a ring");
  }
  if (insert.key->input(TensorScatter::kPlaces) != insert.value->input(TensorScatter::kPlaces)) {
    return MatchFailure("keys and values are written at other positions");
  }
  const Shape& cache = *insert.key->input(TensorScatter::kCache)->shape();
  const auto& fresh = insert.key->input(TensorScatter::kUpdate)->shape();
  if (!fresh || fresh->rank() != 4) return MatchFailure("the shape of new keys is not known");
  insert.batch = cache[0];
  insert.heads = cache[1];
  insert.rows = cache[2];
  insert.fresh = (*fresh)[2];
  return insert;
}

class InsertBuilder {
 public:
  InsertBuilder(GraphBuilder& builder, const Insert& insert)
      : builder_(builder),
        insert_(insert),
        layout_(builder, {insert.key->input(TensorScatter::kUpdate),
                          insert.key->input(TensorScatter::kCache)}) {}

  // The caches as they were shaped, written.
  absl::StatusOr<std::vector<Value*>> Build() {
    PF_ASSIGN_OR_RETURN(Value * key, Rows(insert_.key->input(TensorScatter::kUpdate), Dim(1)));
    PF_ASSIGN_OR_RETURN(Value * value, Rows(insert_.value->input(TensorScatter::kUpdate), Dim(1)));
    PF_ASSIGN_OR_RETURN(Value * key_cache,
                        Rows(insert_.key->input(TensorScatter::kCache), insert_.rows));
    PF_ASSIGN_OR_RETURN(Value * value_cache,
                        Rows(insert_.value->input(TensorScatter::kCache), insert_.rows));
    PF_ASSIGN_OR_RETURN(Value * slots, Slots());
    Node* node = builder_.AddNode("pagefuse", "PagedCacheInsert",
                                  {key, value, key_cache, value_cache, slots}, 2);
    node->SetAttribute("kv_quant_mode", MakeAttribute(std::string("none")));
    const auto shaped = [&](int output, const Node* scatter) {
      return layout_.Reshaped(node->output(output), scatter->input(0)->shape()->dims());
    };
    PF_ASSIGN_OR_RETURN(Value * new_keys, shaped(0, insert_.key));
    PF_ASSIGN_OR_RETURN(Value * new_values, shaped(1, insert_.value));
    return std::vector<Value*>{new_keys, new_values};
  }

 private:
  // [B, H, N, D] as [B H, N, 1, D], and new rows [B, H, S, D] as [B H S, 1, D].
  absl::StatusOr<Value*> Rows(Value* value, const Dim& rows) {
    const Shape& shape = *value->shape();
    const Dim blocks = shape[0] * shape[1];
    if (ProvablyEqual(rows, Dim(1))) {
      return layout_.Reshaped(value, {blocks * shape[2], Dim(1), shape[3]});
    }
    return layout_.Reshaped(value, {blocks, shape[2], Dim(1), shape[3]});
  }

  absl::StatusOr<Value*> Slots() {
    const Dim blocks = insert_.batch * insert_.heads;
    PF_ASSIGN_OR_RETURN(Value * first_rows, FirstRows(blocks));
    PF_ASSIGN_OR_RETURN(Value * first, First());
    Value* begin = builder_.Add("Add", {first_rows, first});
    PF_ASSIGN_OR_RETURN(Value * count, layout_.Size(insert_.fresh));
    Value* steps = builder_.Add("Range", {builder_.Int(0), count, builder_.Int(1)});
    Value* slots = builder_.Add("Add", {begin, steps});
    return layout_.Reshaped(slots, {blocks * insert_.fresh});
  }

  // The first slot of each sequence and head, [B, H, 1].
  absl::StatusOr<Value*> FirstRows(const Dim& blocks) {
    PF_ASSIGN_OR_RETURN(Value * count, layout_.Size(blocks));
    PF_ASSIGN_OR_RETURN(Value * rows, layout_.Size(insert_.rows));
    Value* numbers = builder_.Add("Range", {builder_.Int(0), count, builder_.Int(1)});
    Value* starts = builder_.Add("Mul", {numbers, rows});
    return layout_.Reshaped(starts, {insert_.batch, insert_.heads, Dim(1)});
  }

  // Where each sequence writes, [B, 1, 1]; 0 where the graph does not say.
  absl::StatusOr<Value*> First() {
    Value* first = insert_.key->input(TensorScatter::kPlaces);
    if (!first) return builder_.Int(0);
    Value* wide = builder_.Cast(first, DataType::kInt64);
    return builder_.Add("Unsqueeze", {wide, builder_.Ints({1, 2})});
  }

  GraphBuilder& builder_;
  const Insert& insert_;
  Layout layout_;
};

std::vector<Node*> Places(const Graph& graph) {
  return NodesOf(graph, "PagedAttention", "pagefuse");
}

absl::Status Fuse(Node& attention, const GraphScope& scope, PassContext& context) {
  PF_ASSIGN_OR_RETURN(const Insert insert, InsertOf(attention));
  // After the later of the two, whose inputs are there then.
  Value* last = insert.value->output(0);
  for (const auto& node : scope.graph->nodes()) {
    if (node.get() == insert.key) last = insert.key->output(0);
    if (node.get() == insert.value) last = insert.value->output(0);
  }
  Replacement replacement(*scope.graph, *last, kName);
  return replacement.Finish(InsertBuilder(replacement.builder(), insert).Build(),
                            {insert.key->output(0), insert.value->output(0)}, *scope.opsets,
                            context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseContiguousInsert() {
  return MakeMatchPass(
      kName,
      "Fuses the scatters of new keys and values into the contiguous caches of a PagedAttention "
      "into PagedCacheInsert.",
      Places, Fuse);
}

}  // namespace pagefuse
