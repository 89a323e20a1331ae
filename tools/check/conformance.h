// SPDX-License-Identifier: Apache-2.0
// Makes the conformance page: how many test cases of each op passed, and which ops are refused and
// why.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse::tools {

// Refused: nothing ran. Skipped: it ran, but there was nothing to compare with. Structure: a model
// without data, of which nothing but types and shapes was checked.
enum class Verdict { kPassed, kFailed, kRefused, kSkipped, kStructure };

class Conformance {
 public:
  // Counts a case for every op of its model, subgraphs and functions included. A refused case
  // counts as refused for the ops that are not registered, or for all if each of them is. What
  // compared nothing says nothing of any op.
  // `model` is null where it could not be read: then the case counts in the totals alone.
  void Add(const Model* model, Verdict verdict);
  // The page as Markdown.
  std::string Page() const;

 private:
  struct Counts {
    int passed = 0, failed = 0, refused = 0;
    int low = 0, high = 0;  // versions of the domain in the cases
  };
  std::map<std::pair<std::string, std::string>, Counts> ops_;  // by domain and op
  int cases_[5] = {0, 0, 0, 0, 0};                             // by verdict
};

}  // namespace pagefuse::tools
