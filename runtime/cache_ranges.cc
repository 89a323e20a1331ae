// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/cache_ranges.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/numeric/convert.h"
#include "pagefuse/ops/registry/registry.h"

namespace pagefuse {
namespace {

// Names of the inputs in which a layer keeps keys and values.
struct LayerCaches {
  std::string key, value;
};

// The cache that `updated` is after the step, or null.
const Value* CacheBefore(const Model& model, const Value* updated) {
  const Node* insert = updated ? updated->producer() : nullptr;
  if (!insert) return updated;
  const auto version = model.opset_imports.find(std::string(insert->domain()));
  if (version == model.opset_imports.end()) return nullptr;
  const OpDef* op = OpRegistry::Global().Find(insert->domain(), insert->op_type(), version->second);
  if (!op) return nullptr;
  for (const auto& [output, input] : op->aliases()) {
    if (insert->output(output) == updated) return insert->input(input);
  }
  return nullptr;
}

absl::StatusOr<std::vector<LayerCaches>> CachesOf(const Model& model) {
  std::vector<LayerCaches> layers;
  std::set<const Value*> seen;
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is("PagedAttention", "pagefuse") && !node->Is("TurboQuantAttention", "pagefuse")) {
      continue;
    }
    if (!seen.insert(node->input(1)).second) continue;
    const auto mode = node->StringAttribute("kv_quant_mode", "none");
    const Value* key = CacheBefore(model, node->input(1));
    const Value* value = CacheBefore(model, node->input(2));
    if (!node->Is("PagedAttention", "pagefuse") || !mode.ok() || *mode != "none" || !key ||
        !value || !key->is_input() || !value->is_input()) {
      return absl::InvalidArgumentError(
          StrCat(node->Description(), ": layer ", layers.size(),
                 ": expected a paged cache of keys and values as they are, got another"));
    }
    layers.push_back({key->name(), value->name()});
  }
  if (layers.empty()) {
    return absl::InvalidArgumentError(
        "expected a paged cache of keys and values, got a graph whose layers keep none");
  }
  return layers;
}

// The largest magnitude of the cache's numbers; those that are none do not count.
absl::StatusOr<float> Largest(PagedModel& model, const std::string& cache) {
  const CacheLayout::CacheTensor& tensor = model.layout().tensors().at(cache);
  PF_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize(tensor.dtype, tensor.block_dims));
  const int64_t count = bytes * 8 / BitWidth(tensor.dtype);
  std::vector<std::byte> block(bytes);
  std::vector<float> numbers(count);
  float largest = 0;
  for (int64_t page = 0; page < model.cache().pool().num_pages(); ++page) {
    PF_RETURN_IF_ERROR(model.device().ReadPage(cache, page, block));
    PF_RETURN_IF_ERROR(DecodeToFloat(tensor.dtype, block.data(), count, numbers.data()));
    for (const float number : numbers) {
      if (std::isfinite(number)) largest = std::max(largest, std::fabs(number));
    }
  }
  return largest;
}

}  // namespace

absl::StatusOr<std::vector<CacheRange>> MeasureCacheRanges(
    PagedModel& model, const std::vector<std::vector<int64_t>>& prompts, int64_t step_tokens) {
  PF_ASSIGN_OR_RETURN(const std::vector<LayerCaches> layers, CachesOf(model.session().model()));
  for (const LayerCaches& layer : layers) {
    for (const std::string& name : {layer.key, layer.value}) {
      if (model.layout().apart().contains(name)) continue;
      return absl::FailedPreconditionError(
          StrCat("cache \"", name,
                 "\": expected a tensor of its own (PagedModelOptions::in_pages), got pages "
                 "that other caches have too"));
    }
  }
  std::vector<CacheRange> ranges(layers.size());
  for (size_t p = 0; p < prompts.size(); ++p) {
    const std::vector<int64_t>& prompt = prompts[p];
    if (prompt.empty()) {
      return absl::InvalidArgumentError(StrCat("prompt ", p, ": expected tokens, got none"));
    }
    const auto length = static_cast<int64_t>(prompt.size());
    PF_RETURN_IF_ERROR(model.Reserve({length}, step_tokens));
    const SequenceId sequence = model.cache().AddSequence();
    for (int64_t begin = 0; begin < length; begin += step_tokens) {
      const int64_t end = std::min(length, begin + step_tokens);
      PF_RETURN_IF_ERROR(
          model.Step({{sequence, {prompt.begin() + begin, prompt.begin() + end}}}).status());
      for (size_t i = 0; i < layers.size(); ++i) {
        PF_ASSIGN_OR_RETURN(const float key, Largest(model, layers[i].key));
        PF_ASSIGN_OR_RETURN(const float value, Largest(model, layers[i].value));
        ranges[i] = {std::max(ranges[i].key, key), std::max(ranges[i].value, value)};
      }
    }
  }
  return ranges;
}

}  // namespace pagefuse
