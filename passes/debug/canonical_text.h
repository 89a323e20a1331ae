// SPDX-License-Identifier: Apache-2.0
// Prints models as text in which only what matters is left, and shows how two such texts differ.
#pragma once

#include <string>

#include "pagefuse/ir/graph/model.h"

namespace pagefuse {

// The model as text in which only what matters is left: values are named by their place, nodes are
// ordered by what reads them, names of nodes, metadata and types of inner values are gone. Names of
// inputs and outputs stay.
std::string CanonicalText(const Model& model);

// The two texts, with the lines marked that only one of them has.
std::string TextDiff(const std::string& expected, const std::string& got);

}  // namespace pagefuse
