// SPDX-License-Identifier: Apache-2.0
#include "change.h"

#include <algorithm>
#include <map>
#include <set>

#include "change_parts.h"
#include <onnx/onnx_pb.h>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse::fuzz {
namespace {

using Names = std::map<std::string, const onnx::ValueInfoProto*>;

Names ByName(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
  Names names;
  for (const auto& value : values) names[value.name()] = &value;
  return names;
}

absl::StatusOr<onnx::ModelProto> ProtoOf(const Model& model) {
  PF_ASSIGN_OR_RETURN(const std::string bytes, ExportModel(model));
  onnx::ModelProto proto;
  if (proto.ParseFromString(bytes)) return proto;
  return absl::InternalError("the model does not parse");
}

// Outputs as inference has them, where the file said anything of their axes.
void DeclareOutputs(const Model& inferred, const Model& before, Model& model) {
  for (Value* output : model.graph->outputs()) {
    const Value* known = inferred.graph->FindValue(output->name());
    output->set_dtype(known->dtype());
    const Value* old = before.graph->FindValue(output->name());
    const bool open = old && old->is_output() && !old->shape();
    if (!open) output->set_shape(known->shape());
  }
}

// The changed graph with what the file said of its inputs, and nothing of inner values.
absl::StatusOr<Model> AsFile(const Model& changed, const Model& before) {
  PF_ASSIGN_OR_RETURN(onnx::ModelProto proto, ProtoOf(changed));
  PF_ASSIGN_OR_RETURN(const onnx::ModelProto old, ProtoOf(before));
  onnx::GraphProto& graph = *proto.mutable_graph();
  graph.clear_value_info();
  const Names inputs = ByName(old.graph().input());
  for (auto& input : *graph.mutable_input()) {
    if (const auto known = inputs.find(input.name()); known != inputs.end()) input = *known->second;
  }
  for (auto& output : *graph.mutable_output()) output.clear_type();
  PF_ASSIGN_OR_RETURN(Model model, ImportModel(proto.SerializeAsString(), {}));
  Model inferred = model.Clone();
  PF_RETURN_IF_ERROR(InferShapes(inferred));
  DeclareOutputs(inferred, before, model);
  return model;
}

// The nodes in a random order, the first that the change is for.
std::string ChangeNode(Graph& graph, const Change& change, testing::Random& random) {
  std::vector<Node*> nodes = NodesOf(graph);
  for (size_t left = nodes.size(); left > 0; --left) {
    std::swap(nodes[random() % left], nodes[left - 1]);
    Node& node = *nodes[left - 1];
    if (node.Is("Constant")) continue;
    constexpr size_t kMostLetters = 200;
    const std::string text = PrintNode(node).substr(0, kMostLetters);
    for (int tries = 0; tries < 2; ++tries) {  // an input or a number is picked at random
      if (change.of_node(node, random)) return StrCat(" at ", text);
    }
  }
  return "";
}

// Whether anything computed of a value, as integers, chooses rows of a table.
bool ChoosesRows(const Value& value, std::set<const Value*>& seen) {
  if (!seen.insert(&value).second) return false;
  return std::ranges::any_of(value.uses(), [&](const Use& use) {
    if (use.node->Is("Shape")) return false;
    if (use.node->Is("Gather") && use.index == 1) return true;
    return std::ranges::any_of(use.node->outputs(), [&](const Value* output) {
      return output && IsInteger(output->dtype()) && ChoosesRows(*output, seen);
    });
  });
}

// How many of these hold: the tokens choose rows, and positions are read. What an input is for which
// one does not hold any more, its name alone would tell.
int RolesThatAreTold(const DecoderCase& decoder) {
  Model live = decoder.model.Clone();
  SymbolicContents contents;
  if (!InferShapes(live, &contents).ok()) return 0;
  EraseDeadNodes(*live.graph, contents);
  const auto input = [&](FeedRole role) {
    const Value* value = InputOf(decoder, role);
    return value ? live.graph->FindValue(value->name()) : nullptr;
  };
  const Value *tokens = input(FeedRole::kIds), *positions = input(FeedRole::kPositions);
  const auto reads = [](const Use& use) { return !use.node->Is("Shape"); };
  std::set<const Value*> seen;
  return (tokens && ChoosesRows(*tokens, seen) ? 1 : 0) +
         (positions && std::ranges::any_of(positions->uses(), reads) ? 1 : 0);
}

std::vector<Change> Known() {
  std::vector<Change> changes;
  for (const testing::Mutation& breakage : testing::Breakages()) {
    const std::string name(breakage.name);
    const bool number = name.find("number") != name.npos || name.find("quarter") != name.npos ||
                        name == "off by one" || name == "one less";
    changes.push_back({number ? "numbers" : "others", name, breakage.rewrite});
  }
  return changes;
}

}  // namespace

const std::vector<Change>& AllChanges() {
  static const std::vector<Change>& all = *[] {
    auto* changes = new std::vector<Change>;
    for (auto* part : {Known, TypeChanges, AxisChanges, SequenceChanges, PastChanges, TermChanges,
                       WireChanges, AttributeChanges, ControlChanges}) {
      for (Change& change : part()) changes->push_back(std::move(change));
    }
    return changes;
  }();
  return all;
}

const Change* FindChange(const std::string& name) {
  const auto& all = AllChanges();
  const auto found = std::ranges::find(all, name, &Change::name);
  return found == all.end() ? nullptr : &*found;
}

absl::StatusOr<ChangedDecoder> MakeChange(const DecoderCase& decoder, const Change& change,
                                          uint32_t seed) {
  ChangedDecoder changed{.decoder = Copy(decoder), .where = change.name};
  PF_RETURN_IF_ERROR(InferShapes(changed.decoder.model));
  testing::Random random(seed);
  bool done = false;
  if (change.of_decoder) {
    done = change.of_decoder(changed.decoder, random);
  } else {
    const std::string where = ChangeNode(*changed.decoder.model.graph, change, random);
    done = !where.empty();
    changed.where += where;
  }
  if (!done) return absl::NotFoundError(StrCat(change.name, ": no place for it"));
  PF_RETURN_IF_ERROR(changed.decoder.model.graph->SortTopologically());
  PF_ASSIGN_OR_RETURN(changed.decoder.model, AsFile(changed.decoder.model, decoder.model));
  if (RolesThatAreTold(changed.decoder) < RolesThatAreTold(decoder)) {
    return absl::NotFoundError(StrCat(change.name, ": its name alone would tell an input's role"));
  }
  return changed;
}

}  // namespace pagefuse::fuzz
