// SPDX-License-Identifier: Apache-2.0
// Graphs as other exporters would write the ops, as text with what they fuse to and what to feed:
//
//   # fuses: MlaCacheInsert 1
//   # size T: 5                  the number that the symbol is
//   # feed slots: distinct 24    different integers below 24
//   # feed positions: range 0 40
//   # feed lens: ints 7 10
//   # feed scale: positive 0.02  about that, above 0
//   # feed levels: ascending
//   # feed kv_cache: 656 float 512 528 bfloat16 528 656   rows of 656 bytes, codes but for the
//                                                         numbers between these places
//   # compare q_out: codes       a few may be a step apart
//
// Other inputs are fed with normal numbers, bytes of codes with such of finite numbers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "fusion_case.h"

namespace pagefuse {

// The texts of tests/data/other_exporters, in order.
std::vector<std::string> TextCases();
absl::StatusOr<FusionCase> LoadTextCase(const std::string& path);

}  // namespace pagefuse
