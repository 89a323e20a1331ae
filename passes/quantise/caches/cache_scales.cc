// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/cache_scales.h"

#include <cmath>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"
#include "pagefuse/passes/edit/op_types.h"

namespace pagefuse {
namespace {

absl::Status Wrong(std::string_view option, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("quantise-kv-cache: ", option, ": ", why));
}

absl::StatusOr<std::vector<float>> ReadScales(const PassContext& context,
                                              const std::string& option) {
  std::vector<float> scales;
  const std::string text = context.Option(option, "");
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    float scale = 0;
    if (!absl::SimpleAtof(part, &scale) || !(scale > 0) || !std::isfinite(scale)) {
      return Wrong(option, StrCat("expected a positive number, got \"", StdView(part), "\""));
    }
    scales.push_back(scale);
  }
  return scales;
}

// Elements are moved at most.
bool IsView(const Node& node) {
  return IsAnyOf(node, {"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Identity"});
}

const Node* BehindViews(const Value* rows) {
  const Node* node = rows->producer();
  while (node != nullptr && IsView(*node)) node = node->input(0)->producer();
  return node;
}

// The scale by which rows were rounded to codes of type `stored`, where a graph does so itself:
// their codes under that scale hold them as they are.
std::optional<float> ExportedScale(const Value* rows, DataType stored) {
  const Node* dequantise = BehindViews(rows);
  if (dequantise == nullptr || !dequantise->Is("DequantizeLinear")) return std::nullopt;
  const Value* codes = dequantise->input(0);
  const Value* scale = dequantise->input(1);
  if (codes->dtype() != stored || scale == nullptr || !scale->initializer() ||
      scale->dtype() != DataType::kFloat || scale->initializer()->size() != 1) {
    return std::nullopt;
  }
  const float value = scale->initializer()->values<float>()[0];
  return value > 0 && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

absl::StatusOr<float> ScaleOf(const CacheUse& use, std::string_view option,
                              const std::vector<float>& scales, const Value* rows) {
  if (scales.empty()) return ExportedScale(rows, use.choice.stored).value_or(1.0f);
  if (scales.size() == 1) return scales[0];
  if (static_cast<int64_t>(scales.size()) == use.layer.count) return scales[use.layer.index];
  return Wrong(option, StrCat("expected a number, or one for each of ", use.layer.count,
                              " layers, got ", scales.size()));
}

}  // namespace

absl::StatusOr<ScaleOptions> ScaleOptions::Read(const PassContext& context) {
  ScaleOptions options;
  PF_ASSIGN_OR_RETURN(options.key_, ReadScales(context, "k_scale"));
  PF_ASSIGN_OR_RETURN(options.value_, ReadScales(context, "v_scale"));
  return options;
}

absl::StatusOr<KvScales> ScaleOptions::Of(const CacheUse& use) const {
  KvScales scales;
  const Value* key = use.insert->input(kPagedCacheInsertIn["key"]);
  const Value* value = use.insert->input(kPagedCacheInsertIn["value"]);
  PF_ASSIGN_OR_RETURN(scales.key, ScaleOf(use, "k_scale", key_, key));
  PF_ASSIGN_OR_RETURN(scales.value, ScaleOf(use, "v_scale", value_, value));
  return scales;
}

}  // namespace pagefuse
