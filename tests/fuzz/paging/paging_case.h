// SPDX-License-Identifier: Apache-2.0
// A case of the fuzzer of paging: all of it follows from its seed, and from the files that there
// are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "change.h"
#include "judge_paging.h"
#include "subject.h"

namespace pagefuse::fuzz {

// A change, and the seed of its place.
struct ChosenChange {
  const Change* change = nullptr;
  uint32_t seed = 0;
};

struct PagingCase {
  Subject subject;  // before the changes
  std::vector<ChosenChange> changes;
  PagingRun run;
  DecoderCase decoder;  // after them
  std::string where;    // what was changed, a line a change
};

// A subject with one change or two, or with none. NotFound if none of some changes has a place.
absl::StatusOr<PagingCase> MakePagingCase(const Subjects& subjects, uint64_t seed, bool unchanged);

// The changes, one after the other.
absl::StatusOr<ChangedDecoder> MakeChanges(const DecoderCase& decoder,
                                           const std::vector<ChosenChange>& changes);

Verdict Judge(const PagingCase& made);

}  // namespace pagefuse::fuzz
