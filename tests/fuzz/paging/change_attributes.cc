// SPDX-License-Identifier: Apache-2.0
// Attributes of ops: those of attention first of all.
#include <limits>

#include "change_parts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

bool IsAttention(const Node& node) {
  return node.Is("Attention") || node.Is("GroupQueryAttention", "com.microsoft") ||
         node.Is("MultiHeadAttention", "com.microsoft");
}

// Set, whether it was there or not.
Change FloatOfAttention(const char* attribute, float number) {
  return {"attributes", StrCat(attribute, " of attention = ", number), [=](Node& node, Random&) {
            const auto old = node.FloatAttribute(attribute, std::numeric_limits<float>::max());
            if (!IsAttention(node) || !old.ok() || *old == number) return false;
            node.SetAttribute(attribute, MakeAttribute(number));
            return true;
          }};
}

Change IntOfAttention(const char* attribute, int64_t number) {
  return {"attributes", StrCat(attribute, " of attention = ", number), [=](Node& node, Random&) {
            const auto old = node.IntAttribute(attribute, std::numeric_limits<int64_t>::max());
            if (!IsAttention(node) || !old.ok() || *old == number) return false;
            node.SetAttribute(attribute, MakeAttribute(number));
            return true;
          }};
}

// One that the node has, whatever the op.
bool AnyNumber(Node& node, Random& random) {
  if (node.attributes().empty()) return false;
  const auto [name, attribute] = PickOne(node.attributes(), random);
  if (name == "to" || name == "axis") return false;
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    const int64_t others[] = {*integer + 1, *integer - 1, 0, 1, -*integer, 1 - *integer};
    const int64_t other = PickOne(others, random);
    node.SetAttribute(name, MakeAttribute(other));
    return other != *integer;
  }
  if (const auto* number = std::get_if<float>(&attribute.value)) {
    const float others[] = {-*number, 0, 2 * *number, *number / 3, 1};
    const float other = PickOne(others, random);
    node.SetAttribute(name, MakeAttribute(other));
    return other != *number;
  }
  return false;
}

bool AnyInput(Node& node, Random& random) {
  if (!IsAttention(node) || node.num_inputs() < 4) return false;
  const int index = 3 + static_cast<int>(random() % (node.num_inputs() - 3));
  if (!node.input(index)) return false;
  node.SetInput(index, nullptr);
  return true;
}

Change Flag(const char* op, const char* attribute, int64_t usual) {
  return {"attributes", StrCat(attribute, " of ", op), [=](Node& node, Random&) {
            const auto old = node.IntAttribute(attribute, usual);
            if (node.op_type() != op || !old.ok()) return false;
            node.SetAttribute(attribute, MakeAttribute(int64_t{1} - *old));
            return true;
          }};
}

}  // namespace

std::vector<Change> AttributeChanges() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<Change> changes = {{"attributes", "a number of any op", AnyNumber},
                                 {"attributes", "an input of attention left out", AnyInput}};
  for (const float number : {0.0F, 0.01F, 2.0F, 50.0F, -2.0F, kInfinity}) {
    changes.push_back(FloatOfAttention("softcap", number));
  }
  for (const float number : {0.0F, 1.0F, 0.1F, -0.5F}) {
    changes.push_back(FloatOfAttention("scale", number));
  }
  for (const int64_t number : {0, 1, 2, -1, -2, 5, 1'000'000}) {
    changes.push_back(IntOfAttention("local_window_size", number));
  }
  for (const char* attribute :
       {"is_causal", "rotary_interleaved", "smooth_softmax", "qk_matmul_output_mode"}) {
    for (const int64_t number : {0, 1}) changes.push_back(IntOfAttention(attribute, number));
  }
  changes.push_back(IntOfAttention("do_rotary", 0));
  for (const char* attribute : {"kv_num_heads", "q_num_heads"}) {
    for (const int64_t number : {1, 2, 4}) changes.push_back(IntOfAttention(attribute, number));
  }
  const std::tuple<const char*, const char*, int64_t> flags[] = {
      {"CumSum", "exclusive", 0},
      {"CumSum", "reverse", 0},
      {"Trilu", "upper", 1},
      {"RotaryEmbedding", "interleaved", 0},
      {"TopK", "largest", 1},
      {"TopK", "sorted", 1},
      {"ArgMax", "select_last_index", 0},
      {"Mod", "fmod", 0},
      {"ReduceMax", "keepdims", 1}};
  for (const auto& [op, attribute, usual] : flags) {
    changes.push_back(Flag(op, attribute, usual));
  }
  return changes;
}

}  // namespace pagefuse::fuzz
