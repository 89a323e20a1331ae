// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/verify/missing_weights.h"

#include <algorithm>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/tensor/absent_tensor.h"
#include "pagefuse/ir/tensor/machine_memory.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"

namespace pagefuse {
namespace {

// Of weights as models have them: products of rows stay in the range where sums are.
constexpr float kSpread = 0.05f;

// Numbers that are drawn anew would take longer than what is computed with them. The length of what
// is repeated divides no matrix.
constexpr int64_t kDrawn = 1048573;

// Integers are indices (of experts, for a token): the first two of whatever it is. Bytes are codes.
template <typename T>
std::vector<T> Draw(int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal(0, kSpread);
  std::uniform_int_distribution<int> bytes(0, 100), index(0, 1);
  std::vector<T> drawn(count);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      drawn[i] = static_cast<T>(sizeof(T) == 1 ? bytes(random) : index(random));
    } else {
      drawn[i] = ConvertElement<T>(normal(random));
    }
  }
  return drawn;
}

absl::StatusOr<Tensor> Random(const Value& value, std::mt19937& random) {
  const Tensor& absent = *value.initializer();
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(absent.dtype(), absent.dims()));
  const absl::Status filled = DispatchType(tensor.dtype(), [&]<typename T>() {
    const std::vector<T> drawn = Draw<T>(std::min(tensor.size(), kDrawn), random);
    const std::span<T> values = tensor.mutable_values<T>();
    for (size_t at = 0; at < values.size(); at += drawn.size()) {
      const size_t count = std::min(drawn.size(), values.size() - at);
      std::copy_n(drawn.begin(), count, values.begin() + static_cast<int64_t>(at));
    }
  });
  if (filled.ok()) return tensor;
  return absl::UnimplementedError(StrCat("initializer \"", value.name(), "\": type ",
                                         DataTypeName(tensor.dtype()), " cannot be made up"));
}

}  // namespace

absl::Status FillMissingWeights(Model& model) {
  std::vector<Value*> missing;
  int64_t bytes = 0;
  for (Value* value : model.graph->initializers()) {
    if (!IsAbsent(*value->initializer())) continue;
    missing.push_back(value);
    bytes += value->initializer()->byte_size();
  }
  // As much again is for what is computed with them.
  const int64_t most = DefaultMemoryBytes() / 2;
  if (bytes > most) {
    return absl::ResourceExhaustedError(StrCat(
        "weights of ", bytes >> 20, " MiB are not there, and cannot be made up: half of the ",
        "memory is ", most >> 20, " MiB"));
  }
  std::mt19937 random(20240501);
  for (Value* value : missing) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, Random(*value, random));
    model.graph->SetInitializer(value, std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
