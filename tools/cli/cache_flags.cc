// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/cache_flags.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"
#include "tools/cli/output.h"

#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/cache/cache_plan.h"
#include "pagefuse/ops/kernels/formats/cache_choice.h"

namespace pagefuse::tools {
namespace {

// The number of each layer with commas, as the options k_scale and v_scale take it.
absl::StatusOr<std::string> ScaleList(const nlohmann::json& layers, const char* name) {
  std::vector<std::string> scales;
  for (const nlohmann::json& layer : layers) {
    const auto scale = layer.is_object() ? layer.find(name) : layer.end();
    if (!layer.is_object() || scale == layer.end() || !scale->is_number()) {
      return absl::InvalidArgumentError(StrCat("layer ", scales.size(), ": expected a number \"",
                                               name, "\", got ", JsonText(layer)));
    }
    scales.push_back(absl::StrFormat("%.9g", scale->get<double>()));
  }
  return absl::StrJoin(scales, ",");
}

absl::Status ParseScales(const std::string& text, std::map<std::string, std::string>& options) {
  if (IsNestedTooDeeply(text)) return absl::InvalidArgumentError("JSON nested too deeply");
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto layers = json.is_object() ? json.find("layers") : json.end();
  if (!json.is_object() || layers == json.end() || !layers->is_array() || layers->empty()) {
    return absl::InvalidArgumentError("expected a JSON object with a list \"layers\"");
  }
  for (const char* name : {"k_scale", "v_scale"}) {
    PF_ASSIGN_OR_RETURN(options[name], ScaleList(*layers, name));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Option> AddCacheFlags(Command command, CacheFlags& flags) {
  return {
      command.AddText("--kv-cache", flags.format,
                      StrCat(CacheChoiceNames(), "; or ", kCacheByWindow,
                             "; a model that is paged already keeps its own [none]")),
      command.AddText("--kv-cache-skip-layers", flags.skip_layers,
                      "layers whose cache keeps the type of keys and values, with commas; negative "
                      "ones from the last, -1"),
      command.AddText("--kv-cache-scales", flags.scales,
                      "scales for fp8_per_tensor, a file of `pagefuse calibrate`"),
      command.AddText(
          "--indexer-cache", flags.index_format,
          StrCat("index keys by which rows are chosen: ", IndexChoiceNames(), " [none]"))};
}

Option AddCheckPagingFlag(Command command, std::string& when) {
  return command
      .AddText("--check-paging", when,
               "once, always or never: compare the logits of the rewritten graph with those of the "
               "graph as it was exported, before anything else, and put rewrites back where they "
               "differ; once keeps what was found in the user's cache folder")
      .ShowsDefault();
}

absl::Status ReadCacheFlags(const CacheFlags& flags, std::map<std::string, std::string>& options) {
  if (!flags.format && (flags.skip_layers || !flags.scales.empty())) {
    return absl::InvalidArgumentError(
        StrCat(flags.skip_layers ? "--kv-cache-skip-layers" : "--kv-cache-scales",
               ": says nothing without --kv-cache"));
  }
  if (flags.format) options["kv_cache"] = *flags.format;
  if (flags.index_format) options["indexer_cache"] = *flags.index_format;
  if (flags.skip_layers) options["kv_cache_skip_layers"] = *flags.skip_layers;
  if (flags.scales.empty()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.scales));
  return AtPlace("--kv-cache-scales", InFile(flags.scales, ParseScales(text, options)));
}

}  // namespace pagefuse::tools
