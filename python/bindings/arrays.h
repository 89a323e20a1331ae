// SPDX-License-Identifier: Apache-2.0
// Tensors from and to what Python has: arrays of numpy, whatever speaks DLPack, nested lists.
#pragma once

#include "pybind11/pybind11.h"

#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse::python {

// A pagefuse.Tensor as it is; an array of numpy or of another package (DLPack, on the CPU) without a
// copy where it is dense, row after row; else what numpy makes of it. Memory that may be written is
// writable for the tensor too. TypeError naming the type that has no tensor.
Tensor TensorFrom(pybind11::handle array);

// The same memory as an array of numpy, or as a pagefuse.Tensor for types that numpy lacks.
pybind11::object ArrayOf(const Tensor& tensor);

// The class pagefuse.Tensor.
void BindTensor(pybind11::module_& module);

}  // namespace pagefuse::python
