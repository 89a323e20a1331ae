// SPDX-License-Identifier: Apache-2.0
// What the fuzzer of paging changes: random decoders, and exports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../decoders/decoder_case.h"
#include "../decoders/plan.h"
#include "absl/status/statusor.h"

namespace pagefuse::fuzz {

struct Subject {
  std::string name;          // of the file, or the plan
  std::optional<Plan> plan;  // of a random decoder
  DecoderCase decoder;
  int64_t vocabulary = 0;
};

// A file of a decoder whose inputs and outputs are called as exporters call them; or a text of
// decoder_case.h. Unimplemented naming an input of no known meaning.
absl::StatusOr<DecoderCase> ReadDecoder(const std::string& path);

// Columns of the logits as they are declared.
int64_t VocabularyOf(const DecoderCase& decoder);

Subject MakeSubject(const Plan& plan);

class Subjects {
 public:
  // Decoders in files, and below folders; what is none, or large, is left out.
  explicit Subjects(const std::vector<std::string>& paths);

  // The subject of a seed: a random decoder, mostly one that can be paged and that has places for
  // changes of a family; or one of the files, where there are any, in a third of the seeds.
  Subject Pick(uint64_t seed, const std::string& family = "") const;
  const std::vector<std::string>& files() const { return files_; }

 private:
  std::vector<std::string> files_;
};

}  // namespace pagefuse::fuzz
