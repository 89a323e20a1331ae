// simplify-casts: removes and merges casts that keep every value.

#include "pagefuse/passes/simplify/peephole.h"
#include "pagefuse/passes/simplify/simplify.h"

namespace pagefuse {
namespace {

DataType TargetOf(const Node& cast) { return static_cast<DataType>(IntOr(cast, "to", 0)); }

// Significant bits and exponent range of a type's numbers: all of them fit a type with at least as
// much of everything.
struct Range {
  int digits = 0;        // of the mantissa, or of an integer without its sign
  int max_exponent = 0;  // numbers are below 2^max_exponent
  int min_exponent = 0;  // of the smallest number, 0 for integers
  bool sign = false;
  bool floating = false;
};

Range RangeOf(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return {24, 128, -149, true, true};
    case DataType::kDouble:
      return {53, 1024, -1074, true, true};
    case DataType::kFloat16:
      return {11, 16, -24, true, true};
    case DataType::kBfloat16:
      return {8, 128, -133, true, true};
    case DataType::kFloat8E4M3FN:
      return {4, 9, -9, true, true};
    case DataType::kFloat8E5M2:
      return {3, 16, -16, true, true};
    case DataType::kBool:
      return {1, 1, 0, false, false};
    default:
      break;
  }
  if (!IsInteger(type)) return {};
  const int bits = BitWidth(type) - (IsSigned(type) ? 1 : 0);
  return {bits, bits, 0, IsSigned(type), false};
}

// True if every value of `from` is one of `to`: a cast there and anywhere else is a cast straight
// there.
bool KeepsAll(DataType from, DataType to) {
  const Range a = RangeOf(from), b = RangeOf(to);
  if (a.digits == 0 || b.digits == 0 || to == DataType::kBool) return from == to;
  if (a.floating && !b.floating) return false;
  if (a.floating != b.floating) return a.digits <= b.digits && a.max_exponent <= b.max_exponent;
  return a.digits <= b.digits && a.max_exponent <= b.max_exponent &&
         a.min_exponent >= b.min_exponent && (b.sign || !a.sign);
}

bool RemoveCast(Node& node, Peephole& peephole) {
  Value* input = node.input(0);
  if (input == nullptr || input->dtype() == DataType::kUndefined) return false;
  if (input->dtype() != TargetOf(node)) return false;
  return peephole.Replace(node, input);
}

bool MergeCasts(Node& node, Peephole& peephole) {
  Value* middle = node.input(0);
  Node* first = middle == nullptr ? nullptr : middle->producer();
  if (first == nullptr || !first->Is("Cast") || first->graph() != node.graph()) return false;
  Value* source = first->input(0);
  if (source == nullptr || !KeepsAll(source->dtype(), TargetOf(*first))) return false;
  if (source->dtype() == TargetOf(node)) return peephole.Replace(node, source);
  return peephole.ReplaceByNode(node, "Cast", {source}, node);
}

bool CastLikeToCast(Node& node, Peephole& peephole) {
  const Value* like = node.input(1);
  if (like == nullptr || like->dtype() == DataType::kUndefined) return false;
  const int64_t type = static_cast<int64_t>(like->dtype());
  return peephole.ReplaceByNode(node, "Cast", {node.input(0)}, {node, {{"to", type}}});
}

}  // namespace

std::unique_ptr<Pass> SimplifyCasts() {
  return MakePeepholePass(
      "simplify-casts",
      "Removes casts to the type that a value already has, merges casts that keep every value, "
      "and turns CastLike into Cast.",
      {{"cast-like-to-cast", "CastLike", CastLikeToCast},
       {"remove-cast", "Cast", RemoveCast},
       {"merge-casts", "Cast", MergeCasts}});
}

}  // namespace pagefuse
