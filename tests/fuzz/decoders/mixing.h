// SPDX-License-Identifier: Apache-2.0
// What may stand between the layers of a random decoder: ops that mix tokens, and ops that look
// like it and do not.
#pragma once

#include <string>
#include <vector>

#include "plan.h"

namespace pagefuse::fuzz {

class DecoderText;

struct MixOp {
  std::string name;
  Meaning meaning = Meaning::kTokenwise;
  // Writes the op over `x` and returns what takes its place, of the same shape.
  std::string (*write)(DecoderText& text, const std::string& x) = nullptr;
};

// Over rows [B, S, hidden].
const std::vector<MixOp>& MixOps();
// Over heads [B, H, S, D].
const std::vector<MixOp>& HeadMixOps();

// The op of a feature's option; `x` itself for "none".
std::string WriteMix(const std::vector<MixOp>& ops, const std::string& name, DecoderText& text,
                     const std::string& x);

// The halves of MixOps.
std::vector<MixOp> TokenwiseOps();
std::vector<MixOp> TokenMixingOps();

}  // namespace pagefuse::fuzz
