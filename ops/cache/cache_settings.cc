// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cache/cache_settings.h"

#include <set>

#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/ops/cache/cache_plan.h"
#include "pagefuse/ops/kernels/formats/cache_choice.h"
#include "pagefuse/ops/pagefuse/latent/sparse_mla_attention.h"

namespace pagefuse {
namespace {

// Of groups that are given their block size: a state has its own.
std::optional<int64_t> BlockSizeOf(const Model& model) {
  const auto groups = ReadCacheGroups(model);
  if (!groups.ok()) return std::nullopt;
  for (const CacheGroup& group : *groups) {
    if (group.kind != CacheKind::kState) return group.block_size;
  }
  return std::nullopt;
}

std::string FormatOf(const Node& attention) {
  const std::string name = attention.StringAttribute("kv_quant_mode", "none").value_or("unknown");
  const auto mode = ParseKvQuantMode(name);
  if (!mode.ok()) return name;
  return std::string(NameOfCache(*mode, attention.input(1)->dtype(), attention.input(0)->dtype()));
}

std::string SlotFormatOf(const Node& attention) {
  const auto bits = [&](std::string_view name) {
    return static_cast<int>(attention.IntAttribute(name, 0).value_or(0));
  };
  return std::string(
      NameOfSlots(bits("key_bits"), bits("value_bits"), bits("norm_correction") == 1));
}

// Of latent rows or index keys that `reader` reads.
std::string FormatOfSharedRows(const Node& reader) {
  const DataType stored = reader.input(kSparseMlaIn["kv_cache"])->dtype();
  if (stored == DataType::kUint8) {
    const bool packed = reader.StringAttribute("format", "").value_or("") == "mxfp4";
    return packed ? "mxfp4" : "fp8";
  }
  return std::string(NameOfCache(KvQuantMode::kNone, stored, reader.input(0)->dtype()));
}

struct LayerSettings {
  CacheLayer layer;
  std::string format;
};

// Latent rows of paged sequences: all of them, or a list of what the graph keeps. A list alone says
// nothing of pages.
bool AttendsToLatentPages(const Node& node) {
  if (!node.Is("SparseMlaAttention", "pagefuse")) return false;
  if (node.input(kSparseMlaIn["block_table"])) return true;
  const Value* cache = node.input(kSparseMlaIn["kv_cache"]);
  return cache && cache->producer() &&
         (cache->producer()->Is("MlaCacheInsert", "pagefuse") ||
          cache->producer()->Is("QNormRopeKvInsert", "pagefuse"));
}

// Rows of a window are those of QNormRopeKvInsert where no compressed ones are read besides.
bool HasWindow(const Node& attention) {
  if (attention.IntAttribute("sliding_window", 0).value_or(0) > 0) return true;
  const Node* insert = attention.input(1)->producer();
  return insert && insert->Is("QNormRopeKvInsert", "pagefuse") &&
         !attention.input(kSparseMlaIn["extra_kv_cache"]);
}

// A layer is a cache that something attends over, however often.
std::vector<LayerSettings> LayersOf(const Model& model) {
  std::vector<LayerSettings> layers;
  std::set<const Value*> caches;
  for (const auto& node : model.graph->nodes()) {
    const bool has_slots = node->Is("TurboQuantAttention", "pagefuse");
    const bool has_rows = AttendsToLatentPages(*node);
    if (!has_slots && !has_rows && !node->Is("PagedAttention", "pagefuse")) continue;
    if (!caches.insert(node->input(1)).second) continue;
    LayerSettings& settings = layers.emplace_back();
    settings.layer.index = static_cast<int64_t>(layers.size()) - 1;
    settings.layer.has_window = HasWindow(*node);
    settings.format = has_rows    ? FormatOfSharedRows(*node)
                      : has_slots ? SlotFormatOf(*node)
                                  : FormatOf(*node);
  }
  for (LayerSettings& settings : layers) {
    settings.layer.count = static_cast<int64_t>(layers.size());
  }
  return layers;
}

// What the layers of one kind have beside "none", or that.
std::string FormatOfKind(const std::vector<LayerSettings>& layers, bool has_window) {
  std::set<std::string> formats;
  for (const LayerSettings& settings : layers) {
    if (settings.layer.has_window == has_window) formats.insert(settings.format);
  }
  if (formats.size() > 1) formats.erase("none");
  return absl::StrJoin(formats, ", ");
}

std::string FormatOfAll(const std::string& full, const std::string& window) {
  if (full.empty() || window.empty() || full == window) return full.empty() ? window : full;
  return StrCat("full=", full, ",window=", window);
}

// The formats of index keys by which rows of paged sequences are chosen.
std::optional<std::string> IndexFormatOf(const Model& model) {
  std::set<std::string> formats;
  for (const auto& node : model.graph->nodes()) {
    const bool scores =
        node->Is("PagedMqaLogits", "pagefuse") || node->Is("PagedIndexerTopK", "pagefuse");
    const Value* keys = scores ? node->input(1) : nullptr;
    if (keys && keys->producer() && keys->producer()->domain() == "pagefuse") {
      formats.insert(FormatOfSharedRows(*node));
    }
  }
  if (formats.empty()) return std::nullopt;
  return absl::StrJoin(formats, ", ");
}

absl::Status CheckIndexFormat(const CacheSettings& has, const std::string& asked) {
  const std::string format = has.index_format.value_or("none");
  if (asked == format) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(
      "option indexer_cache: \"", asked, "\" is asked for, but the paged cache of the graph ",
      has.index_format ? StrCat("has index keys in \"", format, "\" already")
                       : std::string("has no index keys")));
}

std::string Described(const CacheSettings& settings) {
  if (settings.skipped_layers.empty()) return StrCat("\"", settings.format, "\"");
  return StrCat("\"", settings.format, "\" but in layers ",
                absl::StrJoin(settings.skipped_layers, ","));
}

absl::Status CheckFormats(const Model& model, const CacheSettings& has, const std::string& asked,
                          const std::string& skipped) {
  PF_ASSIGN_OR_RETURN(const CachePlan plan, CachePlan::Parse(asked, skipped));
  for (const auto& [layer, format] : LayersOf(model)) {
    PF_RETURN_IF_ERROR(plan.CheckLayers(layer.count));
    if (plan.FormatOf(layer).name == format) continue;
    return absl::InvalidArgumentError(StrCat(
        "option kv_cache: \"", asked, "\"", skipped.empty() ? "" : " but in layers ", skipped,
        " is asked for, but the paged cache of the graph is ", Described(has), " already"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<CacheSettings> CacheSettingsOf(const Model& model) {
  const std::vector<LayerSettings> layers = LayersOf(model);
  if (layers.empty()) return std::nullopt;
  const std::string full = FormatOfKind(layers, /*has_window=*/false);
  const std::string window = FormatOfKind(layers, /*has_window=*/true);
  CacheSettings settings{.format = FormatOfAll(full, window),
                         .block_size = BlockSizeOf(model),
                         .index_format = IndexFormatOf(model)};
  for (const auto& [layer, format] : layers) {
    if (format == "none" && (layer.has_window ? window : full) != "none") {
      settings.skipped_layers.push_back(layer.index);
    }
  }
  return settings;
}

absl::Status CheckCacheOptions(const Model& model,
                               const std::map<std::string, std::string>& options) {
  const std::optional<CacheSettings> has = CacheSettingsOf(model);
  if (!has) return absl::OkStatus();
  const auto format = options.find("kv_cache");
  const auto skipped = options.find("kv_cache_skip_layers");
  if (format != options.end()) {
    PF_RETURN_IF_ERROR(
        CheckFormats(model, *has, format->second, skipped == options.end() ? "" : skipped->second));
  }
  if (const auto index = options.find("indexer_cache"); index != options.end()) {
    PF_RETURN_IF_ERROR(CheckIndexFormat(*has, index->second));
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
