#include "pagefuse/passes/authoring/missing_weights.h"

#include <random>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/absent_data.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/numeric/convert.h"
#include "pagefuse/kernels/numeric/dispatch.h"

namespace pagefuse {
namespace {

constexpr int64_t kMostBytes = int64_t{2} << 30;
// Of weights as models have them: products of rows stay in the range where sums are.
constexpr float kSpread = 0.05f;

absl::StatusOr<Tensor> Random(const Value& value, std::mt19937& random) {
  const Tensor& absent = *value.initializer();
  PF_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(absent.dtype(), absent.dims()));
  std::normal_distribution<float> normal(0, kSpread);
  std::uniform_int_distribution<int> bytes(0, 100);
  const absl::Status filled = DispatchType(tensor.dtype(), [&]<typename T>() {
    for (T& x : tensor.mutable_values<T>()) {
      if constexpr (std::is_integral_v<T>) {
        x = static_cast<T>(bytes(random));
      } else {
        x = ConvertElement<T>(normal(random));
      }
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
  if (bytes > kMostBytes) {
    return absl::ResourceExhaustedError(StrCat("weights of ", bytes >> 20,
                                               " MiB are not there; up to ", kMostBytes >> 20,
                                               " MiB are made up"));
  }
  std::mt19937 random(20240501);
  for (Value* value : missing) {
    PF_ASSIGN_OR_RETURN(Tensor tensor, Random(*value, random));
    model.graph->SetInitializer(value, std::move(tensor));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
