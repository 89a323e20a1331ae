// SPDX-License-Identifier: Apache-2.0
// Makes a case that shows a finding plain.
#pragma once

#include <functional>

#include "../child.h"
#include "paging_case.h"

namespace pagefuse::fuzz {

using PagingJudge = std::function<Verdict(const DecoderCase& decoder, const PagingRun& run)>;

// The case with as little as still shows a finding of the same kind: fewer changes, a plainer plan,
// nodes and outputs left out, smaller dims. Its verdict, too.
struct ShrunkCase {
  PagingCase made;
  Verdict verdict;
};
ShrunkCase Shrink(PagingCase made, const Verdict& verdict, const PagingJudge& judge);

// A decoder in a process of its own.
Verdict JudgeAlone(Progress& progress, const DecoderCase& decoder, const PagingRun& run);

// Of every case of the fuzzer of paging.
ChildLimits PagingLimits();

}  // namespace pagefuse::fuzz
