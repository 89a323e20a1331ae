// SPDX-License-Identifier: Apache-2.0
// Sequences of tensors that are made and read at places which constants tell: exporters split and
// join so, and no value has to be a sequence.
#include <optional>
#include <string_view>
#include <vector>

#include "pagefuse/passes/edit/graph_builder.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/normalise/normalise.h"

namespace pagefuse {
namespace {

// Integers that the graph holds: one, or a list.
struct KnownIntegers {
  bool is_one = false;
  std::vector<int64_t> values;
};

std::optional<Tensor> TensorOf(const Value& value) {
  if (const Tensor* constant = ConstantOf(&value)) return *constant;
  const Node* node = value.producer();
  if (node == nullptr || !node->Is("Constant") || node->attributes().size() != 1) {
    return std::nullopt;
  }
  const auto& [name, attribute] = *node->attributes().begin();
  return ConstantNodeValue(attribute, name);
}

std::optional<KnownIntegers> IntegersOf(const Value* value) {
  constexpr int64_t kMostParts = 1 << 16;
  const std::optional<Tensor> tensor = value ? TensorOf(*value) : std::nullopt;
  if (!tensor || tensor->rank() > 1 || tensor->size() > kMostParts) return std::nullopt;
  KnownIntegers known{.is_one = tensor->rank() == 0, .values = {}};
  if (tensor->dtype() == DataType::kInt64) {
    const auto values = tensor->values<int64_t>();
    known.values.assign(values.begin(), values.end());
  } else if (tensor->dtype() == DataType::kInt32) {
    const auto values = tensor->values<int32_t>();
    known.values.assign(values.begin(), values.end());
  }
  if (known.values.empty()) return std::nullopt;
  return known;
}

// Squeeze or Unsqueeze, whose axes became an input.
Value* WithAxis(GraphBuilder& builder, std::string_view op, Value* x, int64_t axis, int64_t opset) {
  constexpr int64_t kAxesAreInput = 13;
  if (opset < kAxesAreInput) return builder.Add(op, {x}, {{"axes", std::vector<int64_t>{axis}}});
  return builder.Add(op, {x, builder.Ints({axis})});
}

struct Part {
  int64_t begin = 0, end = 0;
};

// Part `place` of parts of these sizes, or of parts that have one size, but the last. nullopt where
// that is none, or their number would have to be known.
std::optional<Part> PartAt(const KnownIntegers& sizes, int64_t place) {
  if (sizes.is_one) {
    const int64_t size = sizes.values[0];
    if (place < 0 || size <= 0 || place >= kMaxElements / size) return std::nullopt;
    return Part{place * size, (place + 1) * size};
  }
  const auto count = static_cast<int64_t>(sizes.values.size());
  if (place < 0) place += count;
  if (place < 0 || place >= count) return std::nullopt;
  Part part;
  for (int64_t i = 0; i <= place; ++i) {
    part.begin = part.end;
    part.end += sizes.values[i];
  }
  return part;
}

// What SequenceAt takes of a SplitToSequence; null if constants do not tell.
Value* PartOfSplit(Node* at, const Node& split, int64_t place, int64_t opset) {
  const bool alone = split.input(1) == nullptr;
  const auto sizes =
      alone ? KnownIntegers{.is_one = true, .values = {1}} : IntegersOf(split.input(1));
  const auto part = sizes ? PartAt(*sizes, place) : std::nullopt;
  if (!part) return nullptr;
  GraphBuilder builder(*at->graph(), at, at->output(0)->name());
  const int64_t axis = IntOr(split, "axis", 0);
  Value* rows = builder.Add("Slice", {split.input(0), builder.Ints({part->begin}),
                                      builder.Ints({part->end}), builder.Ints({axis})});
  // Parts of one element lose their axis where the split says so.
  if (!alone || IntOr(split, "keepdims", 1) != 0) return rows;
  return WithAxis(builder, "Squeeze", rows, axis, opset);
}

// What SequenceAt takes of a SequenceConstruct.
Value* ElementOf(const Node& construct, int64_t place) {
  if (place < 0) place += construct.num_inputs();
  return place >= 0 && place < construct.num_inputs() ? construct.input(static_cast<int>(place))
                                                      : nullptr;
}

bool SettleAt(Node* at, int64_t opset) {
  const Node* made = at->input(0) ? at->input(0)->producer() : nullptr;
  const auto place = IntegersOf(at->input(1));
  if (made == nullptr || !place || place->values.size() != 1) return false;
  Value* element = nullptr;
  if (made->Is("SplitToSequence")) element = PartOfSplit(at, *made, place->values[0], opset);
  if (made->Is("SequenceConstruct")) element = ElementOf(*made, place->values[0]);
  return element != nullptr && ReplaceValue(*at->graph(), at->output(0), element);
}

// ConcatFromSequence of a SequenceConstruct.
bool SettleConcat(Node* concat, int64_t opset) {
  const Node* made = concat->input(0) ? concat->input(0)->producer() : nullptr;
  if (made == nullptr || !made->Is("SequenceConstruct")) return false;
  GraphBuilder builder(*concat->graph(), concat, concat->output(0)->name());
  const int64_t axis = IntOr(*concat, "axis", 0);
  std::vector<Value*> parts = made->inputs();
  if (IntOr(*concat, "new_axis", 0) != 0) {
    for (Value*& part : parts) part = WithAxis(builder, "Unsqueeze", part, axis, opset);
  }
  Value* joined = builder.Add("Concat", parts, {{"axis", axis}});
  return ReplaceValue(*concat->graph(), concat->output(0), joined);
}

}  // namespace

bool SettleSequences(Model& model) {
  bool changed = false;
  for (const GraphScope& scope : AllGraphs(model)) {
    const int64_t opset = OpsetOf(*scope.opsets, "");
    SymbolicContents contents;
    // Producers come first, so that none of the nodes to come is erased.
    for (Node* node : NodesOf(*scope.graph)) {
      const bool settled = node->Is("SequenceAt")           ? SettleAt(node, opset)
                           : node->Is("ConcatFromSequence") ? SettleConcat(node, opset)
                                                            : false;
      if (!settled) continue;
      EraseDead(node, contents);
      changed = true;
    }
  }
  return changed;
}

}  // namespace pagefuse
