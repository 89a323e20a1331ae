// SPDX-License-Identifier: Apache-2.0
// A model as another runtime sees it: written with bodies for all that is pagefuse's own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/check/testcase.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

// The model after the stage export. FailedPrecondition with the reason where an op got no body.
// `keep_float8`: caches of float8 stay that, which runtimes can read that have the ops.
absl::StatusOr<Model> Written(const Model& model, int64_t target_opset, bool keep_float8 = false);

// The same graph with calls of functions that no registry here knows: their bodies run.
absl::StatusOr<Model> WithForeignNames(const Model& written);

// Float8 tensors as bytes, as the inputs of a written model are.
absl::StatusOr<std::map<std::string, Tensor>> AsBytes(const std::map<std::string, Tensor>& feeds);
// And back, for outputs that are float8 in `model`.
absl::StatusOr<std::vector<Tensor>> FromBytes(std::vector<Tensor> outputs, const Model& model);

// Folders of tests/golden that have an answer, and names of tests for them: Op_case.
std::vector<std::string> GoldenFoldersWithAnswers();
std::string GoldenName(const std::string& folder);

// Bytes of 16-bit floats are compared as numbers: a wider type makes a signalling NaN quiet.
void LetNansDiffer(TestCase& test_case);

}  // namespace pagefuse
