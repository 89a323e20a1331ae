// SPDX-License-Identifier: Apache-2.0
// A decoder as it was exported: what a paged one must give.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../decoders/decoder_case.h"
#include "absl/status/statusor.h"

#include "pagefuse/runtime/request.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::fuzz {

// What a prompt goes on with.
struct Generation {
  Request request;                         // every token after the prompt is forced
  std::vector<std::vector<float>> logits;  // a row a new token; the last may hold what is no number
};

// Runs the graph without any pass. Where it has pasts, the prompt is one step and every new token
// another, over what the graph itself left; otherwise every token is a full pass over all before
// it. Not thread-safe.
class AsExported {
 public:
  static absl::StatusOr<AsExported> Create(const DecoderCase& decoder);

  // The likeliest tokens. Ends behind a row that no token can be taken of. An error if the graph
  // does not run on the prompt.
  absl::StatusOr<Generation> Generate(const std::vector<int64_t>& prompt, int64_t new_tokens);
  // The rows of another generation's tokens.
  absl::StatusOr<std::vector<std::vector<float>>> Replay(const Generation& generation);

  // Columns of logits, 0 before anything ran.
  int64_t vocabulary() const { return vocabulary_; }
  // The model with the types that are inferred.
  const Model& model() const { return typed_.model; }

 private:
  AsExported() = default;
  absl::StatusOr<std::vector<float>> Step(const std::vector<int64_t>& tokens, int64_t first);

  // Its values have the types and shapes that are inferred: a past may be declared without the size
  // of a head.
  DecoderCase typed_;
  std::unique_ptr<Session> session_;
  std::vector<std::string> fetches_;  // the logits, then the presents
  std::vector<std::string> pasts_;    // in the order of the presents
  std::map<std::string, Tensor> past_;
  int64_t vocabulary_ = 0;
};

// Options of a session that runs a graph without any pass, or with all but paging.
SessionOptions FuzzSession(bool optimise);

// True if a sampler takes a token of the row.
bool HasLikeliest(const std::vector<float>& row);

}  // namespace pagefuse::fuzz
