// SPDX-License-Identifier: Apache-2.0
// Which kernel computes a grouped product.
#include <algorithm>

#include "pagefuse/ops/kernels/cuda/grouped_products_rows.h"
#include "pagefuse/ops/kernels/cuda/product_tile.h"

namespace pagefuse::cuda {
namespace {

enum class Way : uint8_t { kNumbers, kCodes, kInt8, kColumns, kInt8Tiles, kBf16Tiles, kTiles };

// What sizes, types and addresses decide.
struct Plan {
  Way way = Way::kTiles;
  int tile_rows = kTile;
  int64_t order_bytes = 0;
  // Of x rounded to bfloat16, or to int8 with units behind it.
  int64_t rounded_bytes = 0, unit_bytes = 0;

  explicit Plan(const GroupedProductParams& params);
  size_t bytes() const { return static_cast<size_t>(order_bytes + rounded_bytes + unit_bytes); }
};

int64_t SourceRows(const GroupedProductParams& p) { return p.rows / p.repeat; }

bool SuitsInt8(const GroupedProductParams& p) {
  const ProductWeight& w = p.weight;
  return p.rounds_x && w.is_codes() && p.type == DataType::kFloat && p.k > 0 &&
         (w.bits == 4 || w.bits == 8) && w.block % kRoundBlock == 0 && IsAligned(w.data, 16) &&
         IsAligned(w.scales, 4);
}

// Rows, or columns, of pieces of 16 bytes.
bool ComesInPieces(const GroupedProductParams& p) {
  const int64_t run = p.weight.rows ? p.k : p.n;
  return IsAligned(p.weight.data, 16) && run * BitWidth(p.weight.type) % 128 == 0;
}

bool SuitsBf16Tiles(const GroupedProductParams& p) {
  return p.weight.type == DataType::kBfloat16 && p.weight.rows && p.type != DataType::kFloat16 &&
         p.k > 0 && IsAligned(p.x, 32) && ComesInPieces(p);
}

// The kernel for a few rows an expert; kTiles where none takes the product.
Way WayOfFewRows(const GroupedProductParams& p) {
  if (SuitsInt8(p)) return Way::kInt8;
  if (p.weight.is_codes()) return IsAligned(p.weight.data, 4) ? Way::kCodes : Way::kTiles;
  if (!ComesInPieces(p)) return Way::kTiles;
  return p.weight.rows ? Way::kNumbers : Way::kColumns;
}

// Up to so many rows most experts have one at most, and each row is a tile of its own.
bool AreApart(const GroupedProductParams& p) {
  return p.rows <= std::max<int64_t>(p.experts / 4, 4);
}

int Bf16TileRows(const GroupedProductParams& p) {
  if (p.rows <= 16 * p.experts) return 16;
  return p.rows <= 96 * p.experts ? 64 : 128;
}

Plan::Plan(const GroupedProductParams& p) {
  const auto padded = [](int64_t bytes) { return CeilDiv(bytes, 256) * 256; };
  const Way few = WayOfFewRows(p);
  if (AreApart(p) && few != Way::kTiles) {
    way = few;
    tile_rows = 1;
  } else if (few == Way::kInt8) {
    const bool many = p.rows > 2 * kInt8TileRows * p.experts;
    way = many ? Way::kInt8Tiles : few;
    tile_rows = many ? kInt8ManyRows : kInt8TileRows;
  } else if (SuitsBf16Tiles(p)) {
    way = Way::kBf16Tiles;
    tile_rows = Bf16TileRows(p);
  } else if (p.rows <= 2 * kFloatTileRows * p.experts && few != Way::kTiles) {
    way = few;
    tile_rows = kFloatTileRows;
  }
  order_bytes = padded(static_cast<int64_t>(RowOrderBytes(p, tile_rows)));
  if (way == Way::kBf16Tiles && p.type == DataType::kFloat) {
    rounded_bytes = SourceRows(p) * p.k * 2;
  }
  if (few != Way::kInt8) return;
  const int64_t blocks = SourceRows(p) * CeilDiv(p.k, kRoundBlock);
  rounded_bytes = padded(blocks * kRoundBlock);
  unit_bytes = blocks * static_cast<int64_t>(sizeof(float));
}

// Sets x, rounded first where the kernel wants it so.
Error SetSource(const GroupedProductParams& p, const Plan& plan, GroupedRowsCall& call,
                Stream stream) {
  call.x = p.x;
  call.x_aligned = IsAligned(p.x, 16) && p.k * BitWidth(p.type) % 128 == 0;
  if (plan.rounded_bytes == 0) return 0;
  const auto* x = static_cast<const float*>(p.x);
  char* rounded = static_cast<char*>(p.scratch) + plan.order_bytes;
  call.x = rounded;
  if (plan.way == Way::kBf16Tiles) {
    return LaunchRoundToBf16(x, rounded, SourceRows(p) * p.k, stream);
  }
  auto* units = reinterpret_cast<float*>(rounded + plan.rounded_bytes);
  call.units = units;
  return LaunchRoundToInt8({.x = x, .m = SourceRows(p), .k = p.k}, p.weight.bits,
                           reinterpret_cast<int8_t*>(rounded), units, stream);
}

Error LaunchWay(const GroupedProductParams& params, const Plan& plan, const GroupedRowsCall& call,
                Stream stream) {
  switch (plan.way) {
    case Way::kNumbers:
      return LaunchGroupedNumbers(params, call, plan.tile_rows, stream);
    case Way::kCodes:
      return LaunchGroupedCodes(params, call, plan.tile_rows, stream);
    case Way::kInt8:
      return LaunchGroupedInt8(params, call, plan.tile_rows, stream);
    case Way::kColumns:
      return LaunchGroupedColumns(params, call, plan.tile_rows, stream);
    case Way::kInt8Tiles:
      return LaunchGroupedInt8Tiles(params, call, stream);
    case Way::kBf16Tiles:
      return LaunchGroupedBf16Tiles(params, call, plan.tile_rows, stream);
    case Way::kTiles:
      break;
  }
  return LaunchGroupedTiles(params, call, stream);
}

bool IsEmpty(const GroupedProductParams& params) { return params.rows == 0 || params.n == 0; }

}  // namespace

size_t GroupedProductScratchBytes(const GroupedProductParams& params) {
  return IsEmpty(params) ? 0 : Plan(params).bytes();
}

Error LaunchGroupedProduct(const GroupedProductParams& params, Stream stream) {
  if (IsEmpty(params)) return 0;
  if (std::max(params.rows, params.experts) >= INT32_MAX) return kTooLarge;
  const Plan plan(params);
  GroupedRowsCall call{.n = params.n, .k = params.k};
  call.tiles = static_cast<int>(ExpertTiles(params, plan.tile_rows));
  call.weights = WeightStack::Of(params);
  call.y = params.y;
  Error error = LaunchRowOrder(params, plan.tile_rows, params.scratch, call.order, stream);
  if (error == 0) error = SetSource(params, plan, call, stream);
  return error == 0 ? LaunchWay(params, plan, call, stream) : error;
}

}  // namespace pagefuse::cuda
