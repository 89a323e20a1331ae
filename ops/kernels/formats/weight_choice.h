// The formats that weights of products may have: what --weights takes. Passes, commands, benches
// and documents read this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagefuse {

// bfloat16, in the blocks that products read; they round activations to it too.
inline constexpr int kBf16Bits = 16;

struct WeightChoice {
  std::string_view name;
  std::string_view alias = {};  // another name for it
  // Of a number, as the pass quantise-weights writes it into the graph: codes in blocks, or kBf16Bits.
  // 0: the type of the file.
  int bits = 0;
};

std::span<const WeightChoice> WeightChoices();
// "float32, bf16, int8, int4", for messages and help.
std::string WeightChoiceNames();
// The choice of that name or alias; InvalidArgument listing the names.
absl::StatusOr<WeightChoice> FindWeightChoice(std::string_view name);

}  // namespace pagefuse
