// The formats that weights of products may have: what --weights takes. Passes, commands, benches
// and documents read this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pagefuse {

struct WeightChoice {
  std::string_view name;
  std::string_view alias = {};  // another name for it
  // Bits of codes in blocks, written into the graph (pass quantise-weights); 0: the type of the
  // file.
  int bits = 0;
  // Packed to bfloat16 when a session is made; activations of products are rounded to it too.
  bool packs_bfloat16 = false;
};

std::span<const WeightChoice> WeightChoices();
// "float32, bf16, int8, int4", for messages and help.
std::string WeightChoiceNames();
// The choice of that name or alias; InvalidArgument listing the names.
absl::StatusOr<WeightChoice> FindWeightChoice(std::string_view name);

}  // namespace pagefuse
