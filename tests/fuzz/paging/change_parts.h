// SPDX-License-Identifier: Apache-2.0
// What changes of decoders share.
#pragma once

#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "change.h"
#include "mutation_parts.h"

namespace pagefuse::fuzz {

using testing::Random;
using testing::Rewriter;

// True of what depends on the feeds.
bool Varies(const Value* value);

// An input of the node that varies and that `fits`; -1 if there is none.
int PickInput(const Node& node, Random& random, const std::function<bool(const Value&)>& fits);

// Lets one input of the node that fits read what `make` makes of it; false if `make` gives null.
bool ReplaceInput(Node& node, Random& random, const std::function<bool(const Value&)>& fits,
                  const std::function<Value*(Rewriter& rewriter, Value* value)>& make);

// A number as a constant of the type of `like`, without axes; null for types that it has none of.
Value* NumberLike(Rewriter& rewriter, const Value& like, double number);

Value* ReversedAlong(Rewriter& rewriter, Value* value, int64_t axis);

// Where the axes that vary lie: those of tokens and sequences. -1 if there is none.
int PickVaryingAxis(const Value& value, Random& random);

bool SameShape(const Value& a, const Value& b);

// The inputs that are pasts, in their order.
std::vector<Value*> PastsOf(const DecoderCase& decoder);
// The output of a past; null if it is not known.
Value* PresentOf(const DecoderCase& decoder, const Value& past);
// The inputs of a role.
Value* InputOf(const DecoderCase& decoder, FeedRole role);

template <typename List>
auto& PickOne(List& list, Random& random) {
  return list[random() % std::size(list)];
}

}  // namespace pagefuse::fuzz
