// SPDX-License-Identifier: Apache-2.0
// Collects what a report says of a model.
#pragma once

#include <string>

#include "nlohmann/json.hpp"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/passes/explain/layers.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse::tools {

using ReportJson = nlohmann::ordered_json;

// A model before and after the passes, and what they told.
struct ReportSource {
  std::string path;
  Model before, after;
  PipelineOptions options;
  PipelineReport pipeline;
  LayerReport layers;
};

// "facts", "options", "layers", "kinds", "missing", "leftovers", "rewrites", "verify", "cache".
ReportJson ReportData(const ReportSource& source);

// "prefill" and "decode": milliseconds, and by op milliseconds, share, bytes of constants and
// caches, and GB/s;
// "kernels": a line for each node. Only "refused", with the reason, where the model does not run over
// a paged cache.
ReportJson ReportTimes(const ReportSource& source);

}  // namespace pagefuse::tools
