// SPDX-License-Identifier: Apache-2.0
// Prepares match failures for whoever asks why a rule did not fire: the nearest one of each place,
// with places that failed alike reported as one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Of each rule and place the miss that got furthest; of those that differ in nothing but the
// numbers in names, or, where the root alone fits, in what was found, the first, which counts the
// others (MissedMatch::places). Nearest first.
std::vector<MissedMatch> NearestMisses(std::vector<MissedMatch> misses);

// `attention at "y" and 3 places like it (5 nodes matched): "x": expected Softmax, got Relu`
std::string MissText(const MissedMatch& miss);

// `attention without pages at node "y" (Softmax), 4 of them; nearest is attention: "x": expected
// Softmax, got Relu`
std::string UnfusedText(const UnfusedPlace& place);

// `condition` without what tells the layers of one model apart: the numbers in quoted names.
std::string WithoutNumbers(std::string_view condition);

// A rule that was asked about.
struct AskedRule {
  std::string name;
  bool ran = false;    // its pass
  bool fired = false;  // or, where its pass counts nothing, the graph changed
  int times = 0;       // 0: not counted
};

// Lines for the rules of which there is no miss: how often it fired, that it did not run, or, in
// one line for all of them, that nothing resembled it. With `briefly` those that fired get none.
std::vector<std::string> UnmissedLines(const std::vector<AskedRule>& rules,
                                       const std::vector<MissedMatch>& misses, bool briefly);

}  // namespace pagefuse
