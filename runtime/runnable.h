// SPDX-License-Identifier: Apache-2.0
// The graph of a decoder made ready to run: over a paged cache, or else as it was exported.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/runtime/engine.h"
#include "pagefuse/runtime/paged_model.h"
#include "pagefuse/runtime/plain_decoder.h"
#include "pagefuse/runtime/probes.h"

namespace pagefuse {

// One of the two is null.
struct Runnable {
  std::unique_ptr<PagedModel> paged;
  std::unique_ptr<PlainDecoder> plain;
  std::string why_not_paged;  // node and condition

  const Session& session() const { return paged ? paged->session() : plain->session(); }
};

// Options of passes that say how a paged cache is stored.
inline constexpr const char* kCacheOptions[] = {"kv_cache",         "kv_cache_skip_layers",
                                                "indexer_cache",    "indexer_query",
                                                "indexer_hadamard", "k_scale",
                                                "v_scale"};

// Whether options of the paged cache are set.
bool AsksForPages(const EngineOptions& options);

// What options of a decoder come to for its graph.
PagedModelOptions PagedOptions(const EngineOptions& options);

// A graph that cannot be paged runs as a PlainDecoder, unless `require_paged`, or options of the
// paged cache are set: then FailedPrecondition says why, as it does where neither can run. An error
// of other options is InvalidArgument.
absl::StatusOr<Runnable> MakeRunnable(const Model& exported, const EngineOptions& options,
                                      bool require_paged = false);

// Runs a probe, and gives for each of its texts a row of logits behind the prompt and behind each
// token that follows. The cache of a paged model is made anew, and holds nothing afterwards.
absl::StatusOr<std::vector<LogitRows>> ProbeLogits(Runnable& runnable, const Probe& probe);

}  // namespace pagefuse
