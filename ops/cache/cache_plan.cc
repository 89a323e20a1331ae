// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cache/cache_plan.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

absl::Status Wrong(std::string_view option, std::string_view why) {
  return absl::InvalidArgumentError(StrCat("option ", option, ": ", why));
}

absl::StatusOr<CacheChoice> FormatNamed(std::string_view name) {
  auto choice = FindCacheChoice(name);
  if (!choice.ok()) return Wrong("kv_cache", StdView(choice.status().message()));
  return choice;
}

absl::StatusOr<std::vector<int64_t>> ParseLayers(std::string_view text) {
  std::vector<int64_t> layers;
  for (absl::string_view part : absl::StrSplit(AbslView(text), ',', absl::SkipEmpty())) {
    int64_t layer = 0;
    if (!absl::SimpleAtoi(part, &layer)) {
      return Wrong("kv_cache_skip_layers",
                   StrCat("expected numbers of layers with commas, got \"", StdView(part), "\""));
    }
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace

absl::StatusOr<CachePlan> CachePlan::Parse(std::string_view formats, std::string_view skip_layers) {
  CachePlan plan;
  PF_ASSIGN_OR_RETURN(plan.skipped_, ParseLayers(skip_layers));
  if (formats.find('=') == std::string_view::npos) {
    PF_ASSIGN_OR_RETURN(plan.full_, FormatNamed(formats));
    plan.window_ = plan.full_;
    return plan;
  }
  std::optional<CacheChoice> full, window;
  for (absl::string_view part : absl::StrSplit(AbslView(formats), ',')) {
    const std::pair<std::string, std::string> split = absl::StrSplit(part, absl::MaxSplits('=', 1));
    const auto& [kind, name] = split;
    std::optional<CacheChoice>& choice = kind == "full" ? full : window;
    if ((kind != "full" && kind != "window") || choice) {
      return Wrong("kv_cache", StrCat("expected a name for all layers, or ", kCacheByWindow,
                                      ", got \"", formats, "\""));
    }
    PF_ASSIGN_OR_RETURN(choice, FormatNamed(name));
  }
  PF_ASSIGN_OR_RETURN(const CacheChoice unchanged, FindCacheChoice("none"));
  plan.full_ = full.value_or(unchanged);
  plan.window_ = window.value_or(unchanged);
  return plan;
}

CacheChoice CachePlan::FormatOf(const CacheLayer& layer) const {
  const bool skipped = std::ranges::any_of(skipped_, [&](int64_t skip) {
    return skip == layer.index || skip == layer.index - layer.count;
  });
  if (skipped) return *FindCacheChoice("none");
  return layer.has_window ? window_ : full_;
}

absl::Status CachePlan::CheckLayers(int64_t count) const {
  for (const int64_t layer : skipped_) {
    if (layer >= -count && layer < count) continue;
    return Wrong("kv_cache_skip_layers",
                 StrCat("expected layers from ", -count, " to ", count - 1, ", got ", layer));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
