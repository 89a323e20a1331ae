// SPDX-License-Identifier: Apache-2.0
// The oracle of the fuzzer of paging: a decoder with pages against the same one as it was exported.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../decoders/decoder_case.h"
#include "../decoders/judge.h"

namespace pagefuse::fuzz {

// How a decoder is paged and asked.
struct PagingRun {
  int64_t block_size = 4;
  int64_t tokens_per_step = 7;  // longer prompts come in pieces
  bool absorb_latent = false;   // option absorb_mla
  std::vector<std::vector<int64_t>> prompts;
  int64_t new_tokens = 3;

  std::string ToString() const;
};

// Prompts of unequal lengths, two of which begin alike, of a vocabulary of that many tokens. One in
// four runs has a long one.
PagingRun RandomRun(uint64_t seed, int64_t vocabulary);

// kInvalid: the graph does not run as it was exported. kPaged: all prompts together and each alone
// get the logits of the export. kRefused: it is not paged, or a paged step ends in an error, either
// with a reason. kFinding: other logits, or an internal error.
Verdict JudgePaging(const DecoderCase& decoder, const PagingRun& run);

}  // namespace pagefuse::fuzz
