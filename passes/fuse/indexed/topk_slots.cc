// SPDX-License-Identifier: Apache-2.0
// fuse-topk-slots: fuses the lookup of positions within a request in its block table, which gives
// slots of a paged cache, into TopKSlots.
//
//   slots = Where (v >= 0 and valid[t], table[req[t], v / size] * size + v mod size, -1)
//   lens = how many of them are not -1
//     =>  slots, lens = TopKSlots <block_size = size> (v, req, table, valid)
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/passes/analysis/indexing/index_tensor.h"
#include "pagefuse/passes/analysis/indexing/replacement.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/indexed/match_pass.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-topk-slots";

using Kind = IndexSymbol::Kind;

struct SlotMatch {
  Element output;
  IndexSymbolPtr token, rank;
  Conditions valid;
  IndexSymbolPtr table;   // table[request, v / size]
  IndexSymbolPtr chosen;  // v
  IndexSymbolPtr flag;    // valid[t]; null: every token is
  IndexExpr request;
  int64_t block_size = 0;
};

class SlotReader {
 public:
  SlotReader(IndexingAnalysis& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<SlotMatch> Read() {
    PF_ASSIGN_OR_RETURN(match_.output, reader_.Whole(output_));
    if (match_.output.at.size() != 2) return absl::NotFoundError("no matrix of slots");
    match_.token = match_.output.at[0].symbol();
    match_.rank = match_.output.at[1].symbol();
    if (!match_.token || !match_.rank) return absl::NotFoundError("one token or one rank");
    const auto chosen = reader_.Number(reader_.Operand(match_.output, 1));
    const auto other = reader_.Number(reader_.Operand(match_.output, 2));
    const bool keeps = other == -1;
    if (!keeps && chosen != -1) return absl::NotFoundError("nothing is marked by -1");
    const Element condition = reader_.Operand(match_.output, 0);
    PF_ASSIGN_OR_RETURN(
        match_.valid, keeps ? reader_.ReadConditions(condition) : reader_.ReadNegation(condition));
    reader_.Assume(match_.valid);
    const IndexExpr slot = reader_.ReadIndex(reader_.Operand(match_.output, keeps ? 1 : 2));
    PF_RETURN_IF_ERROR(ReadSlot(slot));
    PF_RETURN_IF_ERROR(ReadValid());
    return match_;
  }

 private:
  // table[request, v / size] * size + v mod size
  absl::Status ReadSlot(const IndexExpr& slot) {
    for (const auto& [key, term] : slot.terms()) {
      const IndexSymbolPtr& symbol = term.first;
      if (symbol->kind != Kind::kLoad || symbol->args.size() != 2) continue;
      TakeEntry(symbol);
    }
    if (!match_.table || match_.block_size < 1) {
      return absl::NotFoundError("no table is read by a quotient of positions");
    }
    const Dim size(match_.block_size);
    const IndexExpr expected =
        IndexExpr::Of(match_.table).Times(size) + DivMod(IndexExpr::Of(match_.chosen), size).second;
    if (expected.Key() == slot.Key()) return absl::OkStatus();
    return MatchFailure("slots are ", slot.Key(), ", expected ", expected.Key());
  }

  // table[request, v / size], or the entry of the flat table at request * width + v / size: a position
  // beyond the table has no slot.
  void TakeEntry(const IndexSymbolPtr& entry) {
    IndexExpr request = entry->args[0];
    IndexSymbolPtr column = entry->args[1].symbol();
    const auto& shape = entry->tensor->shape();
    if (column && column->kind == Kind::kMod && shape &&
        ProvablyEqual(column->divisor, shape->back(0))) {
      request = request - DivMod(column->args[0], column->divisor).first;
      column = column->args[0].symbol();
    }
    if (!column || column->kind != Kind::kDiv) return;
    const IndexSymbolPtr chosen = column->args[0].symbol();
    if (!chosen || chosen->kind != Kind::kLoad) return;
    match_.table = entry;
    match_.chosen = chosen;
    match_.request = request;
    match_.block_size = column->divisor.constant().value_or(0);
  }

  absl::Status ReadValid() {
    bool by_sign = false;
    for (const IndexExpr& condition : match_.valid) {
      if (condition.Key() == IndexExpr::Of(match_.chosen).Key()) {
        by_sign = true;
        continue;
      }
      const IndexSymbolPtr flag = (condition + IndexExpr(1)).symbol();
      const bool is_flag = flag && flag->kind == Kind::kLoad &&
                           flag->tensor->dtype() == DataType::kBool && !match_.flag &&
                           !IndexExpr::Of(flag).Mentions(match_.rank->key);
      if (!is_flag) {
        return MatchFailure("the condition ", condition.Key(), " >= 0 is none of a slot");
      }
      match_.flag = flag;
    }
    if (by_sign) return absl::OkStatus();
    return MatchFailure("negative positions are not left out");
  }

  IndexingAnalysis& reader_;
  Value* output_;
  SlotMatch match_;
};

// A vector that counts the valid entries of each token, if the graph has one.
Value* CountOf(IndexingAnalysis& reader, const SlotMatch& match, const Graph& graph) {
  const IndexSymbolPtr counted = MakeAxis("n0", match.rank->extent);
  for (const auto& node : graph.nodes()) {
    // In floats, and cast.
    const Node* sum = node->Is("Cast") ? node->input(0)->producer() : node.get();
    if (!sum || !sum->Is("ReduceSum") || IntOr(*sum, "keepdims", 1) != 0) continue;
    Value* output = node->output(0);
    const auto& shape = output->shape();
    if (IsFloatingPoint(output->dtype()) || !shape || shape->rank() != 1) continue;
    const IndexSymbolPtr count = reader.ReadIndex({output, {IndexExpr::Of(match.token)}}).symbol();
    if (!count || count->kind != Kind::kCount || count->args.size() != match.valid.size() + 1) {
      continue;
    }
    const bool all = std::all_of(match.valid.begin(), match.valid.end(), [&](const auto& valid) {
      return std::any_of(count->args.begin() + 1, count->args.end(), [&](const auto& other) {
        return Renamed(valid, match.rank, counted).Key() == other.Key();
      });
    });
    if (all) return output;
  }
  return nullptr;
}

Value* InType(GraphBuilder& builder, Value* value, DataType type) {
  if (type == DataType::kInt32) return value;
  return builder.Cast(value, type);
}

// What stands for the slots, and for their count if there is one.
absl::StatusOr<std::vector<Value*>> Build(Replacement& replacement, const SlotMatch& match,
                                          const std::vector<Value*>& old) {
  GraphBuilder& builder = replacement.builder();
  Layout layout(builder, {match.chosen->tensor, match.output.value});
  const Element chosen{match.chosen->tensor, match.chosen->args};
  PF_ASSIGN_OR_RETURN(Value * positions, layout.Gathered(chosen, {{match.token}, {match.rank}}));
  PF_ASSIGN_OR_RETURN(Value * requests, IndexVector(builder, layout, match.request, match.token));
  Value* flags = nullptr;
  if (match.flag) {
    PF_ASSIGN_OR_RETURN(flags,
                        layout.Gathered({match.flag->tensor, match.flag->args}, {{match.token}}));
  } else {
    PF_ASSIGN_OR_RETURN(Value * sizes, layout.Sizes({match.token->extent}));
    Value* ones = builder.Add("Expand", {builder.Int(1), sizes});
    flags = builder.Cast(ones, DataType::kBool);
  }
  Node* node = builder.AddNode("pagefuse", "TopKSlots",
                               {layout.AsInt32(positions), layout.AsInt32(requests),
                                layout.AsInt32(match.table->tensor), flags},
                               2);
  node->SetAttribute("block_size", MakeAttribute(match.block_size));
  std::vector<Value*> results;
  for (size_t i = 0; i < old.size(); ++i) {
    results.push_back(InType(builder, node->output(static_cast<int>(i)), old[i]->dtype()));
  }
  return results;
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  IndexingAnalysis reader(context.contents);
  std::vector<Value*> old = {node.output(0)};
  PF_ASSIGN_OR_RETURN(const SlotMatch match, SlotReader(reader, old[0]).Read());
  if (Value* count = CountOf(reader, match, *scope.graph)) old.push_back(count);
  Replacement replacement(*scope.graph, *old[0], kName);
  return replacement.Finish(Build(replacement, match, old), old, *scope.opsets, context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseTopKSlots() {
  return MakeMatchPass(
      kName,
      "Fuses the lookup of slots for selected positions in a block table into TopKSlots, "
      "however it is computed.",
      IntegerChoices, Fuse);
}

}  // namespace pagefuse
