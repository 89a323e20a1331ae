// SPDX-License-Identifier: Apache-2.0
// Changes of a decoder in one place, after which it means something else, mostly. What is changed
// is a valid graph or does not run; which of them the fuzzer finds out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../decoders/decoder_case.h"
#include "absl/status/statusor.h"
#include "graph_mutations.h"

namespace pagefuse::fuzz {

struct Change {
  std::string family;  // of which one is picked first
  std::string name;
  // One of both. True if it changed something. Types and shapes of values are known.
  std::function<bool(Node& node, testing::Random& random)> of_node = nullptr;
  std::function<bool(DecoderCase& decoder, testing::Random& random)> of_decoder = nullptr;
};

const std::vector<Change>& AllChanges();
// Null if there is none of that name.
const Change* FindChange(const std::string& name);

// Makes the change in a place that the seed chooses. What was changed, where; NotFound if there is
// no place for it. The result is as if read from a file: no more is known of its values than of
// those of `decoder`.
struct ChangedDecoder {
  DecoderCase decoder;
  std::string where;
};
absl::StatusOr<ChangedDecoder> MakeChange(const DecoderCase& decoder, const Change& change,
                                          uint32_t seed);

// The changes, by file.
std::vector<Change> TypeChanges();
std::vector<Change> AxisChanges();
std::vector<Change> SequenceChanges();
std::vector<Change> PastChanges();
std::vector<Change> TermChanges();
std::vector<Change> WireChanges();
std::vector<Change> AttributeChanges();
std::vector<Change> ControlChanges();

}  // namespace pagefuse::fuzz
