// SPDX-License-Identifier: Apache-2.0
// The element types that an op takes, what they are computed in, and the choice among them at run
// time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/numeric/dispatch.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::onnx_ops {

// The type that an element is computed in: float for the narrow floats, which are rounded once at
// the end.
template <typename T>
using Compute = std::conditional_t<kIsSmallFloat<T>, float, T>;

template <typename T>
Compute<T> Load(T x) {
  return static_cast<Compute<T>>(x);
}

// Rounds to nearest even.
template <typename T>
T Store(Compute<T> x) {
  return static_cast<T>(x);
}

template <typename... Ts>
struct TypeList {};
template <typename... As, typename... Bs>
TypeList<As..., Bs...> Join(TypeList<As...>, TypeList<Bs...>);

using Floats = TypeList<float, double, Float16, Bfloat16>;
using Float8s = TypeList<Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ>;
using SignedInts = TypeList<int8_t, int16_t, int32_t, int64_t>;
using UnsignedInts = TypeList<uint8_t, uint16_t, uint32_t, uint64_t>;
using Ints = decltype(Join(SignedInts(), UnsignedInts()));
using SignedNumbers = decltype(Join(Floats(), SignedInts()));
using Numbers = decltype(Join(Floats(), Ints()));

template <typename... Ts>
std::vector<DataType> TypesOf(TypeList<Ts...>) {
  return {DataTypeOf<Ts>...};
}

// Calls f.operator()<T>() with the T of the list whose element type is `dtype`; Unimplemented if
// none is.
template <typename... Ts, typename F>
absl::Status Dispatch(TypeList<Ts...>, DataType dtype, F&& f) {
  return internal::DispatchAmong<Ts...>(dtype, f);
}

// The function that `f.operator()<T>()` returns for the T of the list whose element type is
// `dtype`, null if none is. Choosing a row function here keeps loops and threads out of the
// templates.
template <typename F, typename... Ts>
auto Choose(TypeList<Ts...>, DataType dtype, const F& f) {
  decltype((f.template operator()<Ts>(), ...)) chosen = nullptr;
  (void)((dtype == DataTypeOf<Ts> && (chosen = f.template operator()<Ts>(), true)) || ...);
  return chosen;
}

absl::Status NoKernelForType(DataType dtype);

// The address of an element; of the byte that it starts in where two share one.
void* ElementAt(const TensorArg& tensor, int64_t element);

// The elements of a tensor as floats, or doubles; none of an absent one.
absl::StatusOr<std::vector<float>> DecodedFloats(const TensorArg& tensor);
absl::StatusOr<std::vector<double>> DecodedDoubles(const TensorArg& tensor);

// Rounds to the tensor's type (one of Floats) and stores from element `start` on.
absl::Status EncodeDoubles(const std::vector<double>& values, const TensorArg& tensor,
                           int64_t start);

}  // namespace pagefuse::onnx_ops
