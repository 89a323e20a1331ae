// SPDX-License-Identifier: Apache-2.0
// Compares the outputs of a test case, by the rule that the case names or else by the kind of the
// model.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/check/testcase.h"

namespace pagefuse {

// The rule of an output: the one that the case or the command line names; else that of single ops
// or of whole graphs, by the type that the model computes in (compare.h). A model with a
// config.json is a decoder, which sums the errors of its layers: 1e-4 absolute at least, or two
// quanta of a cache of 8-bit integers.
CompareRule RuleFor(const TestCase& test_case, const std::string& output, const Tensor& want);

// Compares the outputs of a run with those of the data set, where there are any; rows of padding
// (pagefuse/ops/evaluate/padding.h) are left out. `notes` (may be null) gets what was left out, and by which quantum a
// decoder was compared whose 8-bit cache got another code here and there.
absl::Status CompareOutputs(const TestCase& test_case, const TestDataSet& data_set,
                            const std::vector<Tensor>& outputs, std::vector<std::string>* notes);

}  // namespace pagefuse
