// SPDX-License-Identifier: Apache-2.0
// One case of the model fuzzer: a model's bytes through everything that takes a model.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pagefuse::fuzz {

// How far a case came.
enum class Reached { kNothing, kImported, kInferred, kLoaded, kRan };
constexpr int kNumReached = 5;
const char* ReachedName(Reached reached);

struct CaseResult {
  Reached reached = Reached::kNothing;
  absl::Status status;  // what ended it there
};

// Pipelines times kinds of feeds.
constexpr int kNumVariants = 12;

// Imports, verifies, prints and parses, exports, infers, optimises, plans, and runs on small feeds.
// Any of it may end in a Status; a broken invariant ends the program. `base_dir` is where external
// data lies.
CaseResult RunModelCase(std::string_view bytes, int variant, const std::string& base_dir);

}  // namespace pagefuse::fuzz
