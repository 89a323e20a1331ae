// SPDX-License-Identifier: Apache-2.0
// The differential mode of model_fuzz: random decoders, as they were exported against fused and
// paged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagefuse::fuzz {

struct DecoderFuzzOptions {
  double seconds = 5;
  int64_t cases = 0;
  uint64_t seed = 1;
  std::string out;
  bool verbose = false;
};

// Judges random decoders until time or cases are used up, makes what is found plain, writes it to
// `out` and prints tables of what was paged, what was refused and why. 1 if anything was found.
int FuzzDecoders(const DecoderFuzzOptions& options);

// Judges the files (decoder_case.h); 1 if one of them shows a finding, or does not run.
int ReplayDecoders(const std::vector<std::string>& files, bool verbose);

// Judges the decoder of one plan and prints it as text; 1 if it shows a finding.
int JudgePlan(const std::string& plan);

}  // namespace pagefuse::fuzz
