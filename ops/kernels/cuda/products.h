// SPDX-License-Identifier: Apache-2.0
// Matrix products on a CUDA device: y = x * W, with a bias, or activation(x * W) * (x * W') of a gated MLP; W of
// numbers, or of codes in blocks.
//
// Sums are float. A row of y has the same bits whatever the other rows are, as long as the same kernel computes it;
// which one does depends on the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

struct ProductWeight {
  // float, float16 or bfloat16; uint8: codes as MatMulNBits has them.
  DataType type = DataType::kFloat;
  const void* data = nullptr;
  bool rows = false;  // [N, K], as codes are; else [K, N]
  // Of codes: (code - zero) * scale by blocks of a row. Blocks are powers of two from 16 on; the last one of a
  // row may be padded.
  int bits = 0;  // 2, 4 or 8
  int64_t block = 0;
  const void* scales = nullptr;         // [N, blocks], of the type of x
  const uint8_t* zero_codes = nullptr;  // packed as codes are, rows begin at bytes
  const void* zeros = nullptr;          // [N, blocks], of the type of x; neither: 2^(bits - 1)

  bool is_codes() const { return type == DataType::kUint8; }
};

enum class GateFunction : uint8_t { kGelu, kGeluTanh, kSilu };

// Columns of y that lie in a tensor of their own.
struct OutputPart {
  void* y = nullptr;  // [M, columns]; null: nobody reads them
  int64_t columns = 0;
};
inline constexpr int kMostOutputParts = 4;

struct ProductParams {
  int64_t m = 0, n = 0, k = 0;
  // Of x, bias and y: float, float16, bfloat16. Under float x and bfloat16 weights x is rounded to bfloat16, and
  // products are exact.
  DataType type = DataType::kFloat;
  const void* x = nullptr;  // [M, K]
  bool x_turned = false;    // [K, M]
  ProductWeight weight;
  void* y = nullptr;  // [M, N]
  // Where y is cut: its columns in order, in place of `y`. Of one product that is not gated.
  OutputPart parts[kMostOutputParts];
  int num_parts = 0;

  // y = alpha * x * W + beta * bias[row * row_step + column * column_step].
  float alpha = 1.0f, beta = 1.0f;
  const void* bias = nullptr;
  int64_t bias_row_step = 0, bias_column_step = 0;

  // y = function(x * W, at most limit) * (x * up, within limit), where `up` has data: a weight of the same kind.
  ProductWeight up;
  GateFunction gate = GateFunction::kSilu;
  float limit = 0;  // infinity: none
  bool gated() const { return up.data != nullptr; }

  // Products of many matrices, one behind the other in y: how many along each axis, and how many matrices of x and
  // of W further its next one is (0: the same). Empty: one product.
  std::vector<int64_t> batch, x_steps, weight_steps;

  // Whether x is rounded to int8 in blocks of 32, as ops/kernels/linalg/nbits_int8.h says; of products of codes of
  // float, which may be asked for it and computed without.
  bool rounds_x = false;

  // Whether nothing on the stream writes the weights: they may be read before the kernel in front has ended.
  bool constant_weights = false;
  // ProductScratchBytes(params) bytes, aligned to 16.
  void* scratch = nullptr;
};

size_t ProductScratchBytes(const ProductParams& params);
Error LaunchProduct(const ProductParams& params, Stream stream);

// The kernels among which LaunchProduct chooses, in this order. Each says whether it takes a product; the last one
// takes all.
bool SuitsInt8(const ProductParams& params);  // codes under an x that is rounded
size_t Int8ScratchBytes(const ProductParams& params);
Error LaunchInt8(const ProductParams& params, Stream stream);
bool SuitsRowBf16(const ProductParams& params);  // one row, weights of bfloat16 in rows
Error LaunchRowBf16(const ProductParams& params, Stream stream);
bool SuitsSmallBf16(const ProductParams& params);  // few rows, weights of bfloat16 in rows
Error LaunchSmallBf16(const ProductParams& params, Stream stream);
bool SuitsTileBf16(const ProductParams& params);  // many rows
size_t TileBf16ScratchBytes(const ProductParams& params);
Error LaunchTileBf16(const ProductParams& params, Stream stream);
bool SuitsSmallRows(const ProductParams& params);  // few rows, weights in rows
Error LaunchSmallRows(const ProductParams& params, Stream stream);
bool SuitsSmallColumns(const ProductParams& params);  // few rows, weights in columns
Error LaunchSmallColumns(const ProductParams& params, Stream stream);
Error LaunchTileFloat(const ProductParams& params, Stream stream);

// Parts of these in sources of their own.
Error LaunchSmallGated(const ProductParams& params, Stream stream);
Error LaunchSmallCodes(const ProductParams& params, Stream stream);
struct TileBf16Plan {
  int rows = 0;  // of a tile
  // Where tiles are too few for all multiprocessors, blocks share K: parts of so many steps.
  int parts = 1, part_steps = 0;
  size_t x_bytes = 0;  // of scratch memory for the rounded x; partial sums are behind
};
Error LaunchTileBf16Gated(const ProductParams& params, const TileBf16Plan& plan,
                          const void* rounded, Stream stream);
Error LaunchTileCodes(const ProductParams& params, Stream stream);
// Elements to bfloat16: a multiple of 8, both sides aligned to 32.
Error LaunchRoundToBf16(const float* from, void* to, int64_t count, Stream stream);
// Rows [m, k] to int8 for codes of so many bits, and a unit for each of their blocks (int8_parts.h).
struct FloatRows {
  const float* x = nullptr;
  int64_t m = 0, k = 0;
};
Error LaunchRoundToInt8(const FloatRows& rows, int bits, int8_t* to, float* units, Stream stream);
struct Int8Call;
Error LaunchInt8Small(const Int8Call& call, const ProductParams& params, Stream stream);
Error LaunchInt8Tiles(const Int8Call& call, const ProductParams& params, Stream stream);

}  // namespace pagefuse::cuda
