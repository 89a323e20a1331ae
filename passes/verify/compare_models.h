// SPDX-License-Identifier: Apache-2.0
// Compares two models on random inputs: the model before a rewrite and the model after it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// What a comparison says of models that give the same numbers.
inline constexpr std::string_view kVerifiedEqual = "equal";

// Numbers for the symbols in the shapes of a model's inputs, and random tensors for its inputs.
// `attempt` 0, 1, ... gives other sizes, `sample` other numbers. Integers are chosen by what they are used for: indices
// stay inside what they index, positions count up, masks are mostly ones, slots differ from each
// other. Unimplemented, naming the input, for types that cannot be made up.
absl::StatusOr<std::map<std::string, Tensor>> RandomFeeds(const Model& model, int attempt,
                                                          int sample = 0);
constexpr int kFeedAttempts = 6;

// Of numbers before and after, for models that compute in float.
constexpr double kTolerance = 2e-4;

// OK if the outputs are the same up to `tolerance` (absolute and relative) for float, or what that
// is for their type; InvalidArgument naming the output and the first place that differs.
absl::Status CompareTensors(const std::string& name, const Tensor& before, const Tensor& after,
                            double tolerance);

// Where two tensors differ first, by how much, and in how many elements, numbers that are none and
// infinite ones counted: `element 0: expected 0.51, got 0.53 (float, 1.8e-02 over 2.0e-04)`. Empty
// where CompareTensors finds them the same.
std::string DifferenceText(const Tensor& before, const Tensor& after, double tolerance);

// The tolerance for a model by the type that it computes in; `tolerance` is for float.
double ModelTolerance(const Model& model, double tolerance = kTolerance);

// Why nothing is compared where SameInterface is false.
inline constexpr std::string_view kInterfaceChanged = "inputs or outputs changed";

// The inputs and outputs of a graph: names, and types and ranks as far as they are known.
struct Interface {
  struct Port {
    std::string name;
    DataType dtype = DataType::kUndefined;
    std::optional<int> rank = {};
  };
  std::vector<Port> inputs, outputs;
};
Interface InterfaceOf(const Graph& graph);
// True if nothing is known of them that differs; of an input also its type counts.
bool SameInterface(const Interface& a, const Interface& b);

// Runs both models on the same random inputs. "equal", or the reason why `before` cannot be run
// under any of the sizes tried; an error if only one of them runs or the numbers differ. Both must
// have the same inputs and outputs, of the same ranks, else nothing is compared. `tolerance` is for
// models that compute in float; types must be inferred, so that narrower ones are seen.
absl::StatusOr<std::string> CompareOnRandomInputs(const Model& before, const Model& after,
                                                  double tolerance = kTolerance);

}  // namespace pagefuse
