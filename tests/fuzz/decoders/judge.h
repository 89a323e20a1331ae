// SPDX-License-Identifier: Apache-2.0
// The oracle of the differential fuzzer: a decoder as it was exported, against what the passes make
// of it.
#pragma once

#include <string>

#include "decoder_case.h"

namespace pagefuse::fuzz {

enum class Judgement {
  kInvalid,  // the decoder itself does not run
  kPaged,    // paged, with the numbers of full forward passes
  kRefused,  // not paged, and said why
  kFinding,  // other numbers, a refusal at run time, an internal error
};
constexpr int kNumJudgements = 4;
const char* JudgementName(Judgement judgement);

struct Verdict {
  Judgement judgement = Judgement::kInvalid;
  std::string kind;    // what verdicts of one kind have in common
  std::string reason;  // why it was refused, or what was found
};

// Without passes, full forward passes over growing sequences give the tokens and the logits. Those
// of the engine, for prompts together and alone, must be the same; and so must all outputs of the
// fused graph that is not paged, on random inputs.
Verdict JudgeDecoder(const DecoderCase& decoder);

// A reason without names, sizes and numbers: what reasons of one kind have in common.
std::string ReasonKind(const std::string& reason);

}  // namespace pagefuse::fuzz
