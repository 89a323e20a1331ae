#include "pagefuse/passes/analysis/attention/stacked_caches.h"

#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/readers_text.h"

namespace pagefuse {
namespace {

bool HasRank(const Value* value, int rank) {
  return value != nullptr && value->shape() && value->shape()->rank() == rank;
}

bool IsFirstAxis(const Node& node, int rank) {
  return NormalAxis(IntOr(node, "axis", 0), rank) == 0;
}

// [1, ...] as [...]; a Reshape says it too.
bool DropsFirstAxis(const Node& view) {
  if (!view.Is("Squeeze") && !view.Is("Reshape")) return false;
  const Value* stack = view.input(0);
  return HasRank(stack, 5) && HasRank(view.output(0), 4) && (*stack->shape())[0].constant() == 1;
}

// [...] as [1, ...].
bool AddsFirstAxis(const Node& view) {
  if (!view.Is("Unsqueeze") && !view.Is("Reshape")) return false;
  const Value* stack = view.output(0);
  return HasRank(view.input(0), 4) && HasRank(stack, 5) && (*stack->shape())[0].constant() == 1;
}

// The tensor of rank 5 that a value is an element of; null if it is none.
Value* StackOf(const Value* value) {
  const Node* node = value->producer();
  if (node == nullptr) return nullptr;
  if (node->Is("Gather")) {
    const Tensor* index = ConstantOf(node->input(1));
    const bool is_one = index != nullptr && index->rank() == 0;
    return is_one && HasRank(node->input(0), 5) && IsFirstAxis(*node, 5) ? node->input(0) : nullptr;
  }
  if (!DropsFirstAxis(*node)) return nullptr;
  const Node* cut = node->input(0)->producer();
  const bool is_part = cut != nullptr && cut->Is("Split") && IsFirstAxis(*cut, 5);
  return is_part ? cut->input(0) : nullptr;
}

// Elements of the first axis before part `index` of a Split.
std::optional<int64_t> PlaceOfPart(const Node& split, int index) {
  int64_t place = 0;
  for (int i = 0; i < index; ++i) {
    const Value* before = split.output(i);
    const auto length =
        before != nullptr && before->shape() ? (*before->shape())[0].constant() : std::nullopt;
    if (!length) return std::nullopt;
    place += *length;
  }
  return place;
}

}  // namespace

Value* StackedOutputOf(const Use& use) {
  if (!AddsFirstAxis(*use.node)) return nullptr;
  const Node* join = OnlyReader(*use.node->output(0));
  if (!join || !join->Is("Concat") || !IsFirstAxis(*join, 5)) return nullptr;
  Value* stack = join->output(0);
  return stack->is_output() && stack->uses().empty() ? stack : nullptr;
}

Value* PastInputOf(Value* value) {
  if (!HasRank(value, 4)) return nullptr;
  if (value->is_input()) return value;
  Value* stack = StackOf(value);
  return stack != nullptr && stack->is_input() ? stack : nullptr;
}

std::optional<int64_t> PastPlaceOf(const Value* value) {
  const Node* node = value->producer();
  if (node == nullptr) return -1;
  if (!node->Is("Gather")) {
    const Value* part = node->input(0);
    return PlaceOfPart(*part->producer(), part->producer_index());
  }
  const Tensor* index = ConstantOf(node->input(1));
  if (index == nullptr) return std::nullopt;
  const auto places = IntegerValues(*index);
  if (!places.ok() || places->size() != 1) return std::nullopt;
  if ((*places)[0] >= 0) return (*places)[0];
  const auto length = (*node->input(0)->shape())[0].constant();
  return length ? std::optional((*places)[0] + *length) : std::nullopt;
}

PresentOutput PresentOutputOf(Value* value) {
  PresentOutput found;
  if (value->is_output()) found.output = value;
  for (const Use& use : value->uses()) {
    Value* stack = StackedOutputOf(use);
    if (stack == nullptr || found.output != nullptr) {
      found.all = false;
    } else {
      found.output = stack;
      found.place = use.node->output(0)->uses()[0].index;
    }
  }
  return found;
}

}  // namespace pagefuse
