// SPDX-License-Identifier: Apache-2.0
// Cases that say what a graph fuses to: a test-case folder with an expect.json beside its model.
// Recall, precision and equality over many of them.
//
//   verdict "fuse": the graph must hold exactly the fused ops `fuses_to`, with `attributes` and
//   `ports`; "leave": none of `near_miss_of`; "either": both are right if the numbers hold.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/check/testcase.h"

#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

// A case as it lies in its folder.
struct ExpectCase {
  TestCase test_case;
  nlohmann::json expected;
};

struct ExpectResult {
  std::string name;
  std::string family, exporter, verdict;
  std::vector<std::string> spelling;
  std::string fused;      // what the graph holds afterwards: "MlaCacheInsert 1"
  absl::Status fusion;    // OK: as the verdict says
  absl::Status equality;  // OK: before and after give the stored outputs
};

// True if the folder has an expect.json.
bool HasExpectation(const std::string& folder);

// An error if the case cannot be read.
absl::StatusOr<ExpectCase> LoadExpectCase(const std::string& folder);

// The stages canonicalize, recognise and fuse, but for chains of what is left.
PipelineOptions ExpectPipeline(PipelineOptions options = {});

// OK if the graph after those stages is as the verdict says.
absl::Status CheckVerdict(const Graph& graph, const nlohmann::json& expected);

// The outputs against others, within the tolerances of the case.
absl::Status CompareOutputs(const ExpectCase& expect_case, const std::vector<Tensor>& got,
                            const std::vector<Tensor>& want);

// Runs the stages canonicalize, recognise and fuse, and the graph before and after them.
// An error if the case cannot be read, or the options name what is not there.
absl::StatusOr<ExpectResult> RunExpectCase(const std::string& folder, PipelineOptions options = {});

// One line a case, then tables by family, exporter and spelling.
std::string ExpectReport(const std::vector<ExpectResult>& results);

}  // namespace pagefuse
