// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/quantise/caches/cache_use.h"

#include <algorithm>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/cache/cache_groups.h"
#include "pagefuse/ops/pagefuse/cache/paged_cache_insert.h"

namespace pagefuse {
namespace {

constexpr int kCaches[] = {kPagedCacheInsertIn["key_cache"], kPagedCacheInsertIn["value_cache"]};
constexpr int kCacheOuts[] = {kPagedCacheInsertOut["key_cache_out"],
                              kPagedCacheInsertOut["value_cache_out"]};

// Another type, and scales beside it, only the caller of the graph can give a cache.
absl::Status CheckInputs(const Node& insert) {
  for (int i : kCaches) {
    const Value* cache = insert.input(i);
    const bool is_cache = cache != nullptr && cache->is_input() && cache->shape().has_value() &&
                          cache->shape()->rank() == 4;
    if (is_cache) continue;
    return absl::FailedPreconditionError(
        StrCat("quantise-kv-cache: ", insert.Description(), ": input ", i, ": expected a graph ",
               "input of shape [num_blocks, block_size, Hk, D], got ",
               cache == nullptr ? std::string("none") : StrCat("\"", cache->name(), "\"")));
  }
  return absl::OkStatus();
}

absl::Status TakesNoCodes(const Value& cache, std::string_view reader, const Node& other) {
  return absl::FailedPreconditionError(StrCat("quantise-kv-cache: \"", cache.name(),
                                              "\": expected no reader but ", reader, ", got ",
                                              other.Description()));
}

// Only PagedAttention knows how to read a quantised cache.
absl::Status CheckReaders(const Node& insert) {
  for (int i : kCacheOuts) {
    for (const Use& use : insert.output(i)->uses()) {
      if (use.node->Is("PagedAttention", "pagefuse")) continue;
      return TakesNoCodes(*insert.output(i), "PagedAttention", *use.node);
    }
  }
  return absl::OkStatus();
}

// The list of a group's caches, each as what takes its place.
std::vector<std::string> Renamed(const std::vector<std::string>& caches, const CacheNames& names) {
  std::vector<std::string> renamed;
  for (const std::string& cache : caches) {
    const auto it = names.find(cache);
    if (it == names.end()) {
      renamed.push_back(cache);
    } else {
      renamed.insert(renamed.end(), it->second.begin(), it->second.end());
    }
  }
  return renamed;
}

}  // namespace

absl::Status CacheUseError(const CacheUse& cache_use, const Node& node, std::string_view what) {
  return absl::InvalidArgumentError(StrCat("quantise-kv-cache: ", node.Description(), ": layer ",
                                           cache_use.layer.index, ": ", cache_use.choice.name, ": ",
                                           what));
}

std::vector<Node*> ReadersOf(const Node& insert) {
  std::vector<Node*> readers;
  for (int i : kCacheOuts) {
    for (const Use& use : insert.output(i)->uses()) {
      if (std::ranges::find(readers, use.node) == readers.end()) {
        readers.push_back(use.node);
      }
    }
  }
  return readers;
}

absl::Status CheckCache(const Node& insert) {
  PF_RETURN_IF_ERROR(CheckInputs(insert));
  return CheckReaders(insert);
}

absl::Status CheckRowCache(const Node& insert, const RowCachePorts& ports,
                           const CacheReader& reader) {
  const Value& cache = *insert.input(ports.in);
  if (!cache.is_input() || !cache.shape() || cache.shape()->rank() != 3) {
    return absl::FailedPreconditionError(
        StrCat("quantise-kv-cache: ", insert.Description(), ": input ", ports.in,
               ": expected a graph input of shape [num_blocks, block_size, row], got \"",
               cache.name(), "\""));
  }
  for (const Use& use : insert.output(ports.out)->uses()) {
    if (use.node->Is(reader.op, "pagefuse") && use.index == reader.port) continue;
    return TakesNoCodes(*insert.output(ports.out), reader.op, *use.node);
  }
  return absl::OkStatus();
}

void RetypeRowCache(Node& insert, const RowCachePorts& ports, DataType type,
                    const std::vector<int64_t>& block_dims) {
  Value* cache = insert.input(ports.in);
  cache->set_dtype(type);
  if (!block_dims.empty() && cache->shape()) {
    Shape shape{(*cache->shape())[0]};
    for (const int64_t dim : block_dims) shape.dims().push_back(Dim(dim));
    cache->set_shape(std::move(shape));
  }
  insert.output(ports.out)->set_dtype(type);
  if (cache->shape()) insert.output(ports.out)->set_shape(*cache->shape());
}

absl::Status RenameInGroups(Model& model, const CacheNames& names) {
  if (names.empty()) return absl::OkStatus();
  auto groups = ReadCacheGroups(model);
  if (groups.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  PF_RETURN_IF_ERROR(groups.status());
  for (CacheGroup& group : *groups) group.caches = Renamed(group.caches, names);
  WriteCacheGroups(model, *groups);
  return absl::OkStatus();
}

}  // namespace pagefuse
