// SPDX-License-Identifier: Apache-2.0
// Products of rows with the matrices of their experts on a CUDA device: y[r] = x[r / repeat] * W[expert of r].
//
// Which expert a row asks for the device alone knows. Few rows read their matrices straight away; of more rows a kernel makes tiles of
// rows of one expert first. How many tiles there can be follows from the sizes, and so does every grid: what is left over ends at once.
//
// Sums are float. A row of y has the same bits whatever experts the other rows ask for; which kernel makes it depends on the sizes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/index_errors.h"
#include "pagefuse/ops/kernels/cuda/launch.h"
#include "pagefuse/ops/kernels/cuda/products.h"

namespace pagefuse::cuda {

struct GroupedProductParams {
  int64_t rows = 0;    // of y
  int64_t repeat = 1;  // of them, one behind the other, that are made of one row of x
  int64_t experts = 0, n = 0, k = 0;
  // Of x and y: float, float16, bfloat16. Under float x and bfloat16 weights x is rounded to bfloat16, and products are exact.
  DataType type = DataType::kFloat;
  const void* x = nullptr;  // [rows / repeat, K]
  void* y = nullptr;        // [rows, N]
  // [rows], int32 or int64: 0 to experts - 1, and negative ones count from the end. Rows of others become zeros, and are told.
  const void* ids = nullptr;
  bool wide_ids = false;
  IndexErrors errors = {};
  int ids_input = 0;  // of the node
  // That of the first expert: matrices, and their scales, lie one behind the other. Of codes without zero points.
  ProductWeight weight = {};
  // As ProductParams has it.
  bool rounds_x = false;
  // GroupedProductScratchBytes(params) bytes, aligned to 64.
  void* scratch = nullptr;
};

size_t GroupedProductScratchBytes(const GroupedProductParams& params);
Error LaunchGroupedProduct(const GroupedProductParams& params, Stream stream);

}  // namespace pagefuse::cuda
