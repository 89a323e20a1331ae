// The same numbers before and after: two models on random inputs.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/ir/model.h"

namespace pagefuse {

// Numbers for the symbols in the shapes of a model's inputs, and random tensors for its inputs.
// `attempt` 0, 1, ... gives other sizes. Integers are chosen by what they are used for: indices
// stay inside what they index, positions count up, masks are mostly ones, slots differ from each
// other. Unimplemented, naming the input, for types that cannot be made up.
absl::StatusOr<std::map<std::string, Tensor>> RandomFeeds(const Model& model, int attempt);
constexpr int kFeedAttempts = 5;

// OK if the outputs are the same up to `tolerance` (absolute and relative) for float, or what that
// is for their type; InvalidArgument naming the output and the first place that differs.
absl::Status CompareTensors(const std::string& name, const Tensor& before, const Tensor& after,
                            double tolerance);

// Runs both models on the same random inputs. "equal", or the reason why `before` cannot be run
// under any of the sizes tried; an error if only one of them runs or the numbers differ. Both must
// have the same inputs and outputs, of the same ranks, else nothing is compared. `tolerance` is for
// models that compute in float; types must be inferred, so that narrower ones are seen.
absl::StatusOr<std::string> CompareOnRandomInputs(const Model& before, const Model& after,
                                                  double tolerance = 2e-4);

}  // namespace pagefuse
