// SPDX-License-Identifier: Apache-2.0
// Numbers of two runs that should be the same.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "decoder_feeds.h"

namespace pagefuse::fuzz {

// Nothing, or the first difference. What is no number in `expected` may be anything.
std::string CompareRows(std::span<const float> expected, std::span<const float> found);

// All outputs of `model` after a step. Rows of padding are not compared. InvalidArgument naming
// the output that differs, and where.
absl::Status CompareOutputs(const RandomStep& step, const Model& model,
                            const std::vector<Tensor>& expected, const std::vector<Tensor>& found);

}  // namespace pagefuse::fuzz
