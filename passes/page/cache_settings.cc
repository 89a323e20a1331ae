#include "pagefuse/passes/page/cache_settings.h"

#include <set>

#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/formats/cache_choice.h"

namespace pagefuse {
namespace {

std::optional<int64_t> BlockSizeOf(const Model& model) {
  const auto text = FindMetadata(model.metadata, "pagefuse.cache_groups");
  if (!text) return std::nullopt;
  const nlohmann::json groups = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!groups.is_array() || groups.empty() || !groups[0].is_object()) return std::nullopt;
  const auto size = groups[0].find("block_size");
  if (size == groups[0].end() || !size->is_number_integer()) return std::nullopt;
  return size->get<int64_t>();
}

std::string FormatOf(const Node& attention) {
  const std::string name = attention.StringAttribute("kv_quant_mode", "none").value_or("unknown");
  const auto mode = ParseKvQuantMode(name);
  if (!mode.ok()) return name;
  return std::string(NameOfCache(*mode, attention.input(1)->dtype(), attention.input(0)->dtype()));
}

}  // namespace

std::optional<CacheSettings> CacheSettingsOf(const Model& model) {
  std::set<std::string> formats;
  for (const auto& node : model.graph->nodes()) {
    if (!node->Is("PagedAttention", "pagefuse")) continue;
    formats.insert(FormatOf(*node));
  }
  if (formats.empty()) return std::nullopt;
  return CacheSettings{.format = absl::StrJoin(formats, ", "), .block_size = BlockSizeOf(model)};
}

absl::Status CheckCacheOptions(const Model& model,
                               const std::map<std::string, std::string>& options) {
  const std::optional<CacheSettings> has = CacheSettingsOf(model);
  if (!has) return absl::OkStatus();
  const auto format = options.find("kv_cache");
  if (format != options.end() && format->second != has->format) {
    return absl::InvalidArgumentError(StrCat("option kv_cache: \"", format->second,
                                             "\" is asked for, but the paged cache of the graph ",
                                             "is \"", has->format, "\" already"));
  }
  const auto size = options.find("block_size");
  if (size != options.end() && has->block_size && size->second != StrCat(*has->block_size)) {
    return absl::InvalidArgumentError(StrCat("option block_size: ", size->second,
                                             " is asked for, but the paged cache of the graph has ",
                                             "blocks of ", *has->block_size, " tokens already"));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
