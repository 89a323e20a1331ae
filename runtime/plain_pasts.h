// SPDX-License-Identifier: Apache-2.0
// Which output gives back which past of a decoder that runs as it was exported.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/runtime/plain_inputs.h"

namespace pagefuse {

// The output that has the rows of the past and those of the new tokens: what is called so
// (NamedPresentOf), or else the one output that they are joined, written or copied into. Null if
// there is none, or several.
const Value* PresentOf(const Graph& graph, const Value* past);

// A past of no tokens: one axis at least, the batch aside, is as long as the past is; or it is read
// as far as it was written, whatever it holds behind; or rows are written into it at the places that
// one of the inputs gives. FailedPrecondition naming the past that is none of these.
absl::Status CheckStartsEmpty(const PlainInputs::Past& past,
                              const std::vector<const Value*>& places);

}  // namespace pagefuse
