// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/weights/kept_weights.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"
#include "pagefuse/passes/edit/match_failure.h"
#include "pagefuse/passes/edit/node_walk.h"
#include "pagefuse/passes/edit/readers_text.h"

namespace pagefuse {
namespace {

constexpr char kOurs[] = "pagefuse";
constexpr char kMicrosoft[] = "com.microsoft";

bool AreCodes(DataType type) {
  constexpr DataType kCodes[] = {DataType::kUint8, DataType::kInt8, DataType::kUint4,
                                 DataType::kInt4};
  return std::ranges::count(kCodes, type) > 0;
}

bool IsMatrix(const Value& value) {
  return (IsFloatingPoint(value.dtype()) || AreCodes(value.dtype())) && value.shape() &&
         value.shape()->rank() >= 2;
}

// The matrix of a file that a value is made of; null where what a graph is fed has a part in its
// numbers.
const Value* MatrixBehind(const Value& value) {
  const OpTypes moves = {"Cast",  "Expand", "Flatten", "Identity",  "Reshape",
                         "Slice", "Split",  "Squeeze", "Transpose", "Unsqueeze"};
  const Value* matrix = nullptr;
  absl::flat_hash_set<const Value*> seen;
  std::vector<const Value*> above = {&value};
  while (!above.empty()) {
    const Value* at = above.back();
    above.pop_back();
    if (!seen.insert(at).second) continue;
    const Node* node = at->producer();
    if (at->initializer() != nullptr || (node != nullptr && node->Is("Constant"))) {
      if (matrix == nullptr && IsMatrix(*at)) matrix = at;
      continue;
    }
    if (node == nullptr || !node->Subgraphs().empty()) return nullptr;
    // Sizes and bounds, which may come of what is fed, follow what is moved.
    for (int i = IsOneOf(*node, moves) ? 1 : node->num_inputs(); i-- > 0;) {
      if (node->input(i) != nullptr) above.push_back(node->input(i));
    }
  }
  return matrix;
}

std::string MakingText(const Value& weight, const Value& matrix) {
  if (weight.producer() == nullptr) return "an input of the graph, which callers may give";
  if (&matrix == &weight) return weight.producer()->Description();
  std::string text =
      StrCat("what ", weight.producer()->Description(), " makes of \"", matrix.name(), "\"");
  if (matrix.is_input()) StrAppend(&text, ", an input of the graph");
  const auto is_another = [first = matrix.uses()[0].node](const Use& use) {
    return use.node != first;
  };
  if (matrix.is_output() || std::ranges::any_of(matrix.uses(), is_another)) {
    StrAppend(&text, ", which ", ReadersAndCallerText(matrix), " read");
  }
  return text;
}

// Ops that take weights in formats.
struct FormatOp {
  const char* domain;
  const char* op;
  int weight;  // input
  const char* bits = "bits";
};
constexpr FormatOp kFormatOps[] = {
    {kOurs, "Linear", 1},
    {kOurs, "SplitLinear", 1},
    {kOurs, "GatedLinear", 1},
    {kOurs, "GroupedMatMul", 2},
    {kMicrosoft, "MatMulNBits", 1},
    {kMicrosoft, "GatherBlockQuantized", 0},
    {kMicrosoft, "QMoE", 2, "expert_weight_bits"},
};

// Ops that take weights in none, and what takes them.
struct OtherOp {
  const char* domain;
  const char* op;
  std::string_view with_formats;
};
constexpr OtherOp kOtherOps[] = {
    {"", "Einsum", "MatMul"}, {"", "GatherND", "Gather"}, {kMicrosoft, "MoE", "GroupedMatMul"}};

template <typename Op, size_t n>
const Op* FindOp(const Op (&ops)[n], const Node& node) {
  const auto* found =
      std::ranges::find_if(ops, [&](const Op& op) { return node.Is(op.op, op.domain); });
  return found == std::end(ops) ? nullptr : found;
}

// Products with codes that are of bfloat16 are all that rows are asked for.
bool HoldsAsAsked(const Node& node, int64_t bits, const WeightFormat& format) {
  if (format.layout == WeightLayout::kCodes) return bits == format.bits;
  return node.Is("MatMulNBits", kMicrosoft) && IntOr(node, "accuracy_level", 0) == kBfloat16Level;
}

}  // namespace

absl::Status ExpectConstant(const Value& weight) {
  const Value* matrix = MatrixBehind(weight);
  if (matrix == nullptr) return absl::OkStatus();
  return MatchFailure("weight ", weight, ": expected a constant, got ",
                      MakingText(weight, *matrix));
}

absl::Status ExpectRight(const Node& product) {
  const Value& left = *product.input(0);
  const Value* matrix = IsMatrix(left) ? MatrixBehind(left) : nullptr;
  if (matrix == nullptr) return absl::OkStatus();
  const auto terms = left.shape()->back(IntOr(product, "transA", 0) != 0 ? 1 : 0).constant();
  if (terms && *terms < kLeastTerms) return absl::OkStatus();  // as frequencies of a rotation
  return MatchFailure("weight ", *matrix, ": expected the right side of a product, got the left");
}

absl::Status ExpectNumbers(const Node& node, const WeightFormat& format) {
  const FormatOp* op = FindOp(kFormatOps, node);
  const Value* weight = op == nullptr ? nullptr : node.input(op->weight);
  if (ConstantOf(weight) == nullptr) return absl::OkStatus();
  const DataType type = weight->dtype();
  if (type == DataType::kBfloat16) {
    const bool keeps =
        format.layout == WeightLayout::kCodes && node.input(0)->dtype() == DataType::kFloat;
    return keeps ? MatchFailure("weight ", *weight, ": expected float, got ", DataTypeName(type))
                 : absl::OkStatus();
  }
  const bool is_packed = type == DataType::kUint4 || type == DataType::kInt4;
  const int64_t bits = is_packed ? 4 : IntOr(node, op->bits, 4);
  if (!AreCodes(type) || HoldsAsAsked(node, bits, format)) return absl::OkStatus();
  return MatchFailure("weight ", *weight, ": expected float, got codes of ", bits, " bits");
}

absl::Status ExpectOtherOp(const Node& node) {
  const OtherOp* op = FindOp(kOtherOps, node);
  if (op == nullptr) return absl::OkStatus();
  for (const Value* input : node.inputs()) {
    const Value* matrix = input == nullptr ? nullptr : MatrixBehind(*input);
    if (matrix == nullptr) continue;
    return MatchFailure("weight ", *matrix, ": expected ", op->with_formats, " as its reader, got ",
                        op->op);
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
