// SPDX-License-Identifier: Apache-2.0
// The fuzzer of paging: changed decoders with pages against the same as they were exported.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace pagefuse::fuzz {

struct PagingFuzzOptions {
  double seconds = std::numeric_limits<double>::infinity();
  int64_t count = std::numeric_limits<int64_t>::max();
  uint64_t seed = 1;
  std::string out = "paging_fuzz_found";
  bool unchanged = false;  // subjects as they are
  bool verbose = false;
  bool shrink = true;
  std::vector<std::string> paths;  // of decoders besides the random ones
};

// Judges cases from a seed on until time or cases are used up, makes what is found plain, writes it
// to `out`, and prints tables. 1 if anything was found.
int FuzzPaging(const PagingFuzzOptions& options);

// Judges the files (subject.h) in several runs each; 1 if one of them shows a finding, or none is a
// decoder that runs.
int ReplayPaging(const std::vector<std::string>& files, bool verbose);

// Prints the case of a seed and its verdict; 1 if it shows a finding.
int ShowPagingCase(const PagingFuzzOptions& options);

}  // namespace pagefuse::fuzz
