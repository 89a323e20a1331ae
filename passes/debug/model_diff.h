// SPDX-License-Identifier: Apache-2.0
// Compares what two graphs compute, whatever their values are called and in whichever order their
// nodes stand.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

struct ModelDiff {
  // Nodes side by side that only one of the graphs has, or that read other values than before.
  struct Hunk {
    std::string layer;  // "layer 3", where names tell it
    std::string from;   // the first value that both graphs have and the hunk reads
    std::vector<std::string> removed, added;  // nodes as text, with the names of the first graph
  };
  struct Constant {
    std::string name;
    std::optional<double> largest;  // of the differences; none where types or dims differ
    std::string detail;
  };

  std::map<std::string, std::pair<int, int>> ops;  // how many each graph has, where that differs
  int ops_alike = 0;                               // ops of which both have as many
  std::vector<std::string> inputs, outputs;        // `+ float[2] "x"`, `- ...`
  std::vector<Hunk> hunks;
  std::vector<Constant> constants;
  int constants_alike = 0;

  bool same() const {
    return inputs.empty() && outputs.empty() && hunks.empty() && constants.empty();
  }
};

// Inputs and outputs belong together by their names, others in their order where types are the
// same; nodes by what computes them, by what reads them, and by their neighbours.
ModelDiff DiffModels(const Model& before, const Model& after);

// As `pagefuse diff` prints it; "same\n" where nothing differs.
std::string ModelDiffText(const ModelDiff& diff);

}  // namespace pagefuse
