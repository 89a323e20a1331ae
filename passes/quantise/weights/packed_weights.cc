#include "pagefuse/passes/quantise/weights/packed_weights.h"

#include <string>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/resident_pages.h"
#include "pagefuse/ops/kernels/linalg/packed_bf16.h"
#include "pagefuse/ops/pagefuse/linear/bf16_weight.h"

namespace pagefuse {
namespace {

using pagefuse_ops::Bf16Sizes;

Bf16Sizes SizesOf(const WeightMatrix& matrix) { return {.k = matrix.k(), .n = matrix.n()}; }

// Matrix `index` of a stack, or the only one.
WeightView ViewOf(const WeightMatrix& matrix, int64_t index) {
  const auto* data = static_cast<const float*>(matrix.tensor->data());
  return {data + index * matrix.n() * matrix.k(), matrix.k(), matrix.n(), matrix.columns_sum};
}

// Gives pages of the weights' file back as they are packed.
PackedBf16::ReleaseFn ReleaseOf(const std::vector<WeightUse>& weights) {
  return [&weights](const float* begin, int64_t count) {
    for (const WeightUse& weight : weights) {
      const Tensor& tensor = *weight.matrix.tensor;
      const auto* data = static_cast<const float*>(tensor.data());
      if (begin < data || begin >= data + tensor.size()) continue;
      ReleasePages(*tensor.buffer(), begin, count * sizeof(float));
    }
  };
}

absl::StatusOr<Tensor> Pack(const WeightMatch& use) {
  const WeightMatrix& first = use.weights[0].matrix;
  const Bf16Sizes sizes = SizesOf(first);
  std::vector<int64_t> dims = use.is_gated() ? sizes.GatedDims() : sizes.Dims();
  if (first.is_stack()) dims.insert(dims.begin(), first.count());
  PF_ASSIGN_OR_RETURN(Tensor packed, Tensor::Allocate(DataType::kBfloat16, dims));
  auto* words = static_cast<uint16_t*>(packed.mutable_data());
  const PackedBf16::ReleaseFn release = ReleaseOf(use.weights);
  for (int64_t i = 0; i < first.count(); ++i) {
    std::vector<WeightView> views;
    for (const WeightUse& weight : use.weights) views.push_back(ViewOf(weight.matrix, i));
    PackedBf16::PackInto(views, words + i * sizes.words(), release);
  }
  return packed;
}

}  // namespace

absl::StatusOr<Value*> PackedWeights::Of(const WeightMatch& use) {
  std::vector<const void*> memory;
  for (const WeightUse& weight : use.weights) memory.push_back(weight.matrix.tensor->data());
  Stored& stored = stored_[{memory, use.weights[0].matrix.columns_sum}];
  if (stored.value != nullptr) return stored.value;
  PF_ASSIGN_OR_RETURN(Tensor packed, Pack(use));
  for (const WeightUse& weight : use.weights) stored.matrices.push_back(*weight.matrix.tensor);
  std::string name = use.weights[0].value->name();
  if (use.is_gated()) name += "." + use.weights[1].value->name();
  stored.value = graph_.AddInitializer(graph_.UniqueName(StrCat(name, ".bf16")), std::move(packed));
  return stored.value;
}

Node* PutPacked(Graph& graph, const WeightMatch& use, Value* packed) {
  const Node& old = *use.node;
  const WeightMatrix& matrix = use.weights[0].matrix;
  const Attributes sizes = {{"K", matrix.k()}, {"N", matrix.n()}};
  if (use.is_table) return PutOver(graph, use, {"GatherBf16"}, {packed, old.input(1)}, sizes);
  if (use.is_grouped) {
    return PutOver(graph, use, {"GroupedMatMulBf16"}, {old.input(0), old.input(1), packed}, sizes);
  }
  if (use.is_gated()) {
    return PutOver(graph, use, {"GatedLinearBf16"}, {old.input(0), packed}, sizes);
  }
  std::vector<Value*> inputs = {old.input(0), packed};
  if (use.bias != nullptr) inputs.push_back(use.bias);
  return PutOver(graph, use, {"MatMulBf16"}, std::move(inputs), sizes);
}

}  // namespace pagefuse
