// SPDX-License-Identifier: Apache-2.0
// Cases whose inputs the device computes, as it does inside of a graph: the host knows none of their contents.
#pragma once

#include <map>
#include <string>

#include "op_run.h"

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// Which inputs: all, or those that are no indices, as where the host makes the lists of a step.
enum class Computed { kAll, kData };

// The case as a model in which nodes of the device copy what is fed. Its node is the last one. Constants stay constants;
// what the op updates in place, and texts, come as they are.
Model WithComputedInputs(const OpDef& op, const CaseNode& call, Computed which);
std::map<std::string, Tensor> FeedsOfComputed(const OpDef& op, const CaseNode& call,
                                              Computed which);
// Whether there is an index that the device can compute.
bool HasIndices(const OpDef& op, const CaseNode& call);

}  // namespace pagefuse
