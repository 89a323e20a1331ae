// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/dense_caches.h"

#include <map>
#include <string_view>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/infer/infer.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/runtime/execution_plan.h"

namespace pagefuse {
namespace {

// `reader_of`: from the name of an input to the node that takes it as a dense tensor only, or null.
template <class ReaderOf>
std::vector<DenseCache> Find(const CacheLayout& layout, const ReaderOf& reader_of) {
  std::vector<DenseCache> found;
  for (const CacheGroup& group : layout.groups()) {
    for (const std::string& cache : group.caches) {
      const Node* reader = reader_of(cache);
      if (reader != nullptr) found.push_back({cache, reader->Description()});
    }
  }
  return found;
}

}  // namespace

std::vector<DenseCache> DenseCaches(const CacheLayout& layout, const Session& session) {
  return Find(layout, [&](const std::string& cache) { return session.DenseReader(cache); });
}

absl::StatusOr<std::vector<DenseCache>> DenseCaches(const CacheLayout& layout, Model& model) {
  PF_RETURN_IF_ERROR(VerifyOps(model));
  PF_RETURN_IF_ERROR(InferShapes(model));
  PF_ASSIGN_OR_RETURN(const ExecutionPlan plan, MakePlan(model, {.runs = false}));
  std::map<std::string_view, const Node*> readers;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const PlannedStep* step = DenseReader(plan, static_cast<int>(i));
    if (step != nullptr) readers[plan.values[plan.inputs[i]].value->name()] = step->node;
  }
  return Find(layout, [&](const std::string& cache) -> const Node* {
    const auto reader = readers.find(cache);
    return reader == readers.end() ? nullptr : reader->second;
  });
}

std::string DenseCache::Text() const {
  return StrCat("cache \"", cache, "\" lies beside the pages: ", reader,
                " reads it as a dense tensor");
}

}  // namespace pagefuse
