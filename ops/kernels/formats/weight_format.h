// SPDX-License-Identifier: Apache-2.0
// The formats that weights of products may have: what --weights takes. Passes, commands, benches and
// documents read this one table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagefuse {

inline constexpr int64_t kWeightBlock = 32;

// How a graph holds the matrix of a product whose N results sum over K numbers each. Orders that a
// matrix unit reads are made when kernels are prepared (ops/schema/packing.h).
enum class WeightLayout {
  kAsGiven,  // as the file has it
  kRows,     // [N, K]; activations are rounded to the type of the weights
  // Codes [N, blocks, block * bits / 8] and scales [N, blocks], as com.microsoft.MatMulNBits has
  // them; activations are rounded to int8.
  kCodes,
};

struct WeightFormat {
  std::string_view name;
  std::string_view alias = {};  // another name for it
  WeightLayout layout = WeightLayout::kAsGiven;
  int bits = 32;      // of a number, or of a code
  int64_t block = 0;  // codes of a row that share a scale in float32

  bool changes_nothing() const { return layout == WeightLayout::kAsGiven; }
  // Of a weight.
  double bytes() const { return bits / 8.0 + (block > 0 ? 4.0 / static_cast<double>(block) : 0); }
};

std::span<const WeightFormat> WeightFormats();
// "float32, bf16, int8, int4", for messages and help.
std::string WeightFormatNames();
// The format of that name or alias; InvalidArgument listing the names.
absl::StatusOr<WeightFormat> FindWeightFormat(std::string_view name);

}  // namespace pagefuse
