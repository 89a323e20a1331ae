// SPDX-License-Identifier: Apache-2.0
// Tells how many readers a value has, and names them in messages that refuse a second one.
#pragma once

#include <string>

#include "pagefuse/ir/graph/graph.h"

namespace pagefuse {

// Whether exactly one node reads the value, once, and no caller of the graph.
bool HasOneReader(const Value& value);
// The node that does; null where HasOneReader is false.
Node* OnlyReader(const Value& value);

// "node "a" (Neg) and node "b" (Add)".
std::string ReadersText(const Value& value);
// The same, and "the graph's caller" where the value is an output.
std::string ReadersAndCallerText(const Value& value);

}  // namespace pagefuse
