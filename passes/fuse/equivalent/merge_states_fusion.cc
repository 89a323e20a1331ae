// SPDX-License-Identifier: Apache-2.0
// Fuses MergeAttnStates wherever a graph merges two results of attention by their log-sum-exps.
#include <algorithm>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/fuse/equivalent/attribute_numbers.h"
#include "pagefuse/passes/fuse/equivalent/fusion_parts.h"
#include "pagefuse/passes/fuse/equivalent/fusions.h"

namespace pagefuse {
namespace {

bool IsFloatTensor(const Value& value, int rank) {
  return IsRowType(value.dtype()) && Rank(value) == rank;
}

bool SameShape(const Value& a, const Value& b) {
  return a.shape() && b.shape() && ProvablyEqual(*a.shape(), *b.shape());
}

// [heads, tokens] for an output [tokens, heads, size].
bool IsLogSums(const Value& value, const Value& output) {
  return value.dtype() == DataType::kFloat && Rank(value) == 2 &&
         ProvablyEqual((*value.shape())[0], (*output.shape())[1]) &&
         ProvablyEqual((*value.shape())[1], (*output.shape())[0]);
}

// Weights are powers, and nothing but elementwise ops and views stands above the output.
bool MayMerge(const Upstream& upstream) {
  constexpr size_t kMostNodes = 64;
  return upstream.nodes.size() <= kMostNodes &&
         std::any_of(upstream.nodes.begin(), upstream.nodes.end(),
                     [](const Node* node) { return node->Is("Exp") || node->Is("Sigmoid"); });
}

// How the op's results may differ: sums of two products, whose factors are quotients of powers.
ResultRule RuleFor(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {.relative = 1.0 / 1000, .of_largest = 1e-6, .unequal = 0.01, .nan = true};
    case DataType::kBfloat16:
      return {.relative = 1.0 / 127, .of_largest = 1e-6, .unequal = 0.005, .nan = true};
    case DataType::kFloat8E4M3FN:
      return {.share = 0.001, .nan = true};
    default:
      return {.relative = 2e-6, .of_largest = 1e-6, .nan = true};
  }
}

// How many tokens may have a context: a number of the graph, or as many as a folded mask says.
std::vector<int64_t> ContextsOf(const ComputedRegion& region) {
  std::vector<int64_t> contexts = IntegersOf(region.nodes);
  for (const Node* node : region.nodes) {
    for (const Value* input : node->inputs()) {
      const Tensor* mask = input ? ConstantOf(input) : nullptr;
      if (!mask || mask->dtype() != DataType::kBool) continue;
      const auto* flags = static_cast<const uint8_t*>(mask->data());
      contexts.push_back(std::count(flags, flags + mask->size(), uint8_t{1}));
    }
  }
  return contexts;
}

struct Merge {
  Value* output = nullptr;
  Value* lse = nullptr;  // null: nobody asks for it
  bool scaled = false;   // to float8
};

std::string MergeText(const Merge& merge, int64_t context) {
  return StrCat("(prefix_lse, suffix_lse, prefix_output, suffix_output",
                merge.scaled ? ", output_scale" : "", ") => (output",
                merge.lse ? ", output_lse" : "", ") { output", merge.lse ? ", output_lse" : "",
                " = pagefuse.MergeAttnStates <prefill_tokens_with_context = ", context,
                "> (prefix_output, prefix_lse, suffix_output, suffix_lse",
                merge.scaled ? ", output_scale" : "", ") }");
}

absl::StatusOr<bool> FuseMerge(FusionSearch& search, const Merge& merge) {
  const Value* output = merge.output;
  const auto lse = [output](std::string name) {
    return InnerPort(std::move(name), ProbeRole::kLogSums,
                     [output](const Value& value) { return IsLogSums(value, *output); });
  };
  const auto part = [&merge](std::string name) {
    return InnerPort(std::move(name), ProbeRole::kRows, [&merge](const Value& value) {
      return IsFloatTensor(value, 3) && SameShape(value, *merge.output) &&
             (merge.scaled || value.dtype() == merge.output->dtype());
    });
  };
  std::vector<FusionPort> ports = {lse("prefix_lse"), lse("suffix_lse"), part("prefix_output"),
                                   part("suffix_output")};
  if (merge.scaled) ports.push_back(ScalePort("output_scale"));
  std::vector<OutputSpec> outputs = {{"output", merge.output}};
  if (merge.lse) outputs.push_back({"output_lse", merge.lse});
  const auto draft = [&](const BoundPorts& bound, const ComputedRegion& region) {
    Draft result;
    if (bound.at("prefix_output")->dtype() != bound.at("suffix_output")->dtype()) return result;
    result.texts = {MergeText(merge, -1)};
    for (int64_t context : ContextsOf(region)) {
      result.texts.push_back(MergeText(merge, context));
    }
    result.rules = {RuleFor(output->dtype()), RuleFor(DataType::kFloat)};
    return result;
  };
  return search.Fuse("fuse-MergeAttnStates", outputs, ports, draft);
}

}  // namespace

absl::StatusOr<bool> FuseMergeAttnStates(FusionSearch& search, Value* output) {
  const bool scaled = output->dtype() == DataType::kFloat8E4M3FN;
  if (Rank(*output) != 3 || (!scaled && !IsRowType(output->dtype()))) return false;
  const Upstream upstream = search.UpstreamOf({output});
  if (!MayMerge(upstream)) return false;
  // Log-sum-exps of the result are nothing that the result is computed from.
  std::vector<Value*> sums;
  const auto& above = upstream.nodes;
  for (Value* value : search.ComputedValues()) {
    if (IsLogSums(*value, *output) && MayMerge(search.UpstreamOf({value})) &&
        std::find(above.begin(), above.end(), value->producer()) == above.end()) {
      sums.push_back(value);
    }
  }
  sums.push_back(nullptr);
  return AnyFuses(sums, [&](Value* lse) { return FuseMerge(search, {output, lse, scaled}); });
}

}  // namespace pagefuse
