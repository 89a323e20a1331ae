// fuse-topk-slots: positions within a request that become slots of a paged cache through its block
// table, in whatever arithmetic, become TopKSlots.
//
//   slots = Where (v >= 0 and valid[t], table[req[t], v / size] * size + v mod size, -1)
//   lens = how many of them are not -1
//     =>  slots, lens = TopKSlots <block_size = size> (v, req, table, valid)
#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/fuse/fuse.h"
#include "pagefuse/passes/fuse/site_pass.h"
#include "pagefuse/passes/refused.h"
#include "pagefuse/passes/words/index_tensor.h"
#include "pagefuse/passes/words/replacement.h"

namespace pagefuse {
namespace {

constexpr const char* kName = "fuse-topk-slots";

using Kind = IndexAtom::Kind;

struct SlotSite {
  Element output;
  AtomPtr token, rank;
  Conditions valid;
  AtomPtr table;   // table[request, v / size]
  AtomPtr chosen;  // v
  AtomPtr flag;    // valid[t]; null: every token is
  IndexForm request;
  int64_t block_size = 0;
};

class SlotReader {
 public:
  SlotReader(ElementReader& reader, Value* output) : reader_(reader), output_(output) {}

  absl::StatusOr<SlotSite> Read() {
    PF_ASSIGN_OR_RETURN(site_.output, reader_.Whole(output_));
    if (site_.output.at.size() != 2) return absl::NotFoundError("no matrix of slots");
    site_.token = site_.output.at[0].atom();
    site_.rank = site_.output.at[1].atom();
    if (!site_.token || !site_.rank) return absl::NotFoundError("one token or one rank");
    const auto chosen = reader_.Number(reader_.Operand(site_.output, 1));
    const auto other = reader_.Number(reader_.Operand(site_.output, 2));
    const bool keeps = other == -1;
    if (!keeps && chosen != -1) return absl::NotFoundError("nothing is marked by -1");
    const Element condition = reader_.Operand(site_.output, 0);
    PF_ASSIGN_OR_RETURN(
        site_.valid, keeps ? reader_.ReadConditions(condition) : reader_.ReadNegation(condition));
    reader_.Assume(site_.valid);
    const IndexForm slot = reader_.ReadIndex(reader_.Operand(site_.output, keeps ? 1 : 2));
    PF_RETURN_IF_ERROR(ReadSlot(slot));
    PF_RETURN_IF_ERROR(ReadValid());
    return site_;
  }

 private:
  // table[request, v / size] * size + v mod size
  absl::Status ReadSlot(const IndexForm& slot) {
    for (const auto& [key, term] : slot.terms()) {
      const AtomPtr& atom = term.first;
      if (atom->kind != Kind::kLoad || atom->args.size() != 2) continue;
      TakeEntry(atom);
    }
    if (!site_.table || site_.block_size < 1) {
      return absl::NotFoundError("no table is read by a quotient of positions");
    }
    const Dim size(site_.block_size);
    const IndexForm expected =
        IndexForm::Of(site_.table).Times(size) + DivMod(IndexForm::Of(site_.chosen), size).second;
    if (expected.Key() == slot.Key()) return absl::OkStatus();
    return Refused("slots are ", slot.Key(), ", expected ", expected.Key());
  }

  // table[request, v / size], or the entry of the flat table at request * width + v / size: a position
  // beyond the table has no slot.
  void TakeEntry(const AtomPtr& entry) {
    IndexForm request = entry->args[0];
    AtomPtr column = entry->args[1].atom();
    const auto& shape = entry->tensor->shape();
    if (column && column->kind == Kind::kMod && shape &&
        ProvablyEqual(column->divisor, shape->back(0))) {
      request = request - DivMod(column->args[0], column->divisor).first;
      column = column->args[0].atom();
    }
    if (!column || column->kind != Kind::kDiv) return;
    const AtomPtr chosen = column->args[0].atom();
    if (!chosen || chosen->kind != Kind::kLoad) return;
    site_.table = entry;
    site_.chosen = chosen;
    site_.request = request;
    site_.block_size = column->divisor.constant().value_or(0);
  }

  absl::Status ReadValid() {
    bool by_sign = false;
    for (const IndexForm& condition : site_.valid) {
      if (condition.Key() == IndexForm::Of(site_.chosen).Key()) {
        by_sign = true;
        continue;
      }
      const AtomPtr flag = (condition + IndexForm(1)).atom();
      const bool is_flag = flag && flag->kind == Kind::kLoad &&
                           flag->tensor->dtype() == DataType::kBool && !site_.flag &&
                           !IndexForm::Of(flag).Mentions(site_.rank->key);
      if (!is_flag) {
        return Refused("the condition ", condition.Key(), " >= 0 is none of a slot");
      }
      site_.flag = flag;
    }
    if (by_sign) return absl::OkStatus();
    return Refused("negative positions are not left out");
  }

  ElementReader& reader_;
  Value* output_;
  SlotSite site_;
};

// A vector that counts the valid entries of each token, if the graph has one.
Value* CountOf(ElementReader& reader, const SlotSite& site, const Graph& graph) {
  const AtomPtr counted = MakeAxis("n0", site.rank->extent);
  for (const auto& node : graph.nodes()) {
    // In floats, and cast.
    const Node* sum = node->Is("Cast") ? node->input(0)->producer() : node.get();
    if (!sum || !sum->Is("ReduceSum") || IntOr(*sum, "keepdims", 1) != 0) continue;
    Value* output = node->output(0);
    const auto& shape = output->shape();
    if (IsFloatingPoint(output->dtype()) || !shape || shape->rank() != 1) continue;
    const AtomPtr count = reader.ReadIndex({output, {IndexForm::Of(site.token)}}).atom();
    if (!count || count->kind != Kind::kCount || count->args.size() != site.valid.size() + 1) {
      continue;
    }
    const bool all = std::all_of(site.valid.begin(), site.valid.end(), [&](const auto& valid) {
      return std::any_of(count->args.begin() + 1, count->args.end(), [&](const auto& other) {
        return Renamed(valid, site.rank, counted).Key() == other.Key();
      });
    });
    if (all) return output;
  }
  return nullptr;
}

Value* InType(GraphBuilder& builder, Value* value, DataType type) {
  if (type == DataType::kInt32) return value;
  return builder.Add("Cast", {value}, "to", static_cast<int64_t>(type));
}

// What stands for the slots, and for their count if there is one.
absl::StatusOr<std::vector<Value*>> Build(Replacement& replacement, const SlotSite& site,
                                          const std::vector<Value*>& old) {
  GraphBuilder& builder = replacement.builder();
  Arranger arranger(builder, {site.chosen->tensor, site.output.value});
  const Element chosen{site.chosen->tensor, site.chosen->args};
  PF_ASSIGN_OR_RETURN(Value * positions, arranger.Gathered(chosen, {{site.token}, {site.rank}}));
  PF_ASSIGN_OR_RETURN(Value * requests, IndexVector(builder, arranger, site.request, site.token));
  Value* flags = nullptr;
  if (site.flag) {
    PF_ASSIGN_OR_RETURN(flags,
                        arranger.Gathered({site.flag->tensor, site.flag->args}, {{site.token}}));
  } else {
    PF_ASSIGN_OR_RETURN(Value * sizes, arranger.Sizes({site.token->extent}));
    Value* ones = builder.Add("Expand", {builder.Int(1), sizes});
    flags = builder.Add("Cast", {ones}, "to", static_cast<int64_t>(DataType::kBool));
  }
  Node* node = builder.AddNode("pagefuse", "TopKSlots",
                               {arranger.AsInt32(positions), arranger.AsInt32(requests),
                                arranger.AsInt32(site.table->tensor), flags},
                               2);
  node->SetAttribute("block_size", MakeAttribute(site.block_size));
  std::vector<Value*> results;
  for (size_t i = 0; i < old.size(); ++i) {
    results.push_back(InType(builder, node->output(static_cast<int>(i)), old[i]->dtype()));
  }
  return results;
}

absl::Status Fuse(Node& node, const GraphScope& scope, PassContext& context) {
  ElementReader reader(context.contents);
  std::vector<Value*> old = {node.output(0)};
  PF_ASSIGN_OR_RETURN(const SlotSite site, SlotReader(reader, old[0]).Read());
  if (Value* count = CountOf(reader, site, *scope.graph)) old.push_back(count);
  Replacement replacement(*scope.graph, *old[0], kName);
  return replacement.Finish(Build(replacement, site, old), old, *scope.opsets, context.contents);
}

}  // namespace

std::unique_ptr<Pass> FuseTopKSlots() {
  return MakeSitePass(kName,
                      "Fuses positions that become slots through a block table, in any arithmetic.",
                      IntegerChoices, Fuse);
}

}  // namespace pagefuse
