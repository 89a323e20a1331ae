// SPDX-License-Identifier: Apache-2.0
// Compares constants by the numbers that they hold, not by their bytes.
#pragma once

#include <optional>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// The elements as doubles; nullopt for strings, packed and complex types, and tensors of more than
// `max_size` elements.
std::optional<std::vector<double>> Numbers(const Tensor& tensor, int64_t max_size = 4096);

// The number if the tensor has one element.
std::optional<double> ScalarNumber(const Tensor& tensor);

// The same of the constant behind a value; nullopt for null, and for what is none.
std::optional<double> NumberOf(const Value* value);
// Equal to float rounding: 1e-6 relative, NaN equals NaN. `precision` is the relative step of the
// coarser type.
bool NumbersEqual(double a, double b, double precision = 1e-6);

// True if the graph constant says the same as the pattern constant: both one element (0-d and
// 1-element alike) or the same dims, of the same kind (integers of any width, floats of any width,
// bool), elements equal to the rounding of the narrower float type.
bool ConstantsEqual(const Tensor& pattern, const Tensor& graph);

// As ConstantsEqual, integers and floats alike (the exponent of Pow may be either).
bool ConstantNumbersEqual(const Tensor& pattern, const Tensor& graph);

// The number that all elements are; nullopt where they differ, or are none, or more than 2^16.
std::optional<double> FilledNumber(const Tensor& tensor);

// True if all elements are `number`, of 2^16 at most.
bool IsFilledWith(const Tensor& tensor, double number);

}  // namespace pagefuse
