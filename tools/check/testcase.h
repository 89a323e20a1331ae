// SPDX-License-Identifier: Apache-2.0
// Test cases in the folder layout of ONNX's backend tests: model.onnx and
// test_data_set_N/{input,output}_K.pb. Rules of comparison and expected errors are in the model's
// metadata.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/check/compare.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// One test_data_set_N.
struct TestDataSet {
  std::string name;
  std::map<std::string, Tensor> feeds;  // by name of the graph input
  // In the order of the graph outputs, undefined where there is none; empty for error cases.
  std::vector<Tensor> outputs;
};

struct TestCase {
  std::string name;  // the folder's
  Model model;
  std::vector<TestDataSet> data_sets;
  std::map<std::string, CompareRule> rules;  // by output, from `pagefuse.compare`
  bool whole_model = false;                  // there is a config.json beside it
  bool single_op = true;                     // at most one node computes, functions looked into
  DataType computed = DataType::kUndefined;  // ComputeType of the model
  // `pagefuse.expect_error` and `pagefuse.error_input`: the class of the error (SHAPE, SLOT_RANGE,
  // ...), and the input or attribute that its message must name. Empty: the case must succeed.
  std::string expected_error;
  std::string error_input;
};

// The model of a case alone, which LoadTestCase reads too.
absl::StatusOr<Model> LoadCaseModel(const std::string& folder);

// Reads a case: `folder`/model.onnx, or `folder`.onnx where there is none. Tensors belong to the
// inputs and outputs that they are named after, else to those in the order of their numbers.
// NotFound or InvalidArgument naming the file.
absl::StatusOr<TestCase> LoadTestCase(const std::string& folder);

// Unimplemented naming the input if the data of a case has another type, rank or size than its
// model declares: it says nothing of anyone. Cases that expect an error are meant to be wrong.
absl::Status CheckDataFits(const TestCase& test_case);

// Whether any data set has an output to compare with.
bool HasExpectedOutputs(const TestCase& test_case);

// The folders below `root` that hold a model.onnx or lie beside a file of their name with .onnx,
// sorted; `root` itself if it holds one.
std::vector<std::string> FindTestCases(const std::string& root);

// Runs a model on feeds; the outputs in order.
using ModelRunner = std::function<absl::StatusOr<std::vector<Tensor>>(
    const Model&, const std::map<std::string, Tensor>&)>;

// Runs every data set and compares, or checks that the call fails as expected and leaves its feeds
// as they were. InvalidArgument tells the data set, the output and the first difference; an error
// of `run` comes back as it is. `notes` gets what a reader of a passed case should know: what was
// not compared, and what was compared less closely (case_outputs.h).
absl::Status CheckTestCase(const TestCase& test_case, const ModelRunner& run,
                           std::vector<std::string>* notes = nullptr);

// Parses `pagefuse.compare`: {"output": {"rule": "allclose", "rtol": 1e-5, "atol": 0}, ...}.
absl::StatusOr<std::map<std::string, CompareRule>> ParseCompareRules(const std::string& json);

}  // namespace pagefuse
