// SPDX-License-Identifier: Apache-2.0
// The formats that a pipeline gives to the caches of a paged graph: what --kv-cache takes. Passes,
// commands, benches and documents read this one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse {

struct CacheChoice {
  std::string_view name;
  KvQuantMode mode = KvQuantMode::kNone;
  // Type of the elements of the cache; kUndefined: that of keys and values.
  DataType stored = DataType::kUndefined;
  // Present: slots of both keys and values in place of rows of each; the mode is none then.
  const TurboQuantPreset* turboquant = nullptr;
  // Not 0: the format of codes of so many bits that is published for rows that heads share
  // (grouped_row.h): fp8_ds_mla of latent rows, indexer_fp8 and indexer_mxfp4 of index keys. The
  // mode is none then.
  int grouped_bits = 0;

  CacheFormat format() const { return {.mode = mode}; }
  // Rows of numbers, of another type perhaps.
  bool is_plain() const { return turboquant == nullptr && !grouped() && format().is_plain(); }
  bool grouped() const { return grouped_bits > 0; }
  // Whether latent rows can have it.
  bool takes_latent_rows() const { return is_plain() || grouped(); }
  bool changes_nothing() const { return is_plain() && stored == DataType::kUndefined; }
};

std::span<const CacheChoice> CacheChoices();
// "none, bf16, ...", for messages and help.
std::string CacheChoiceNames();
// InvalidArgument listing the names.
absl::StatusOr<CacheChoice> FindCacheChoice(std::string_view name);
// The same of index keys: what --indexer-cache takes.
std::span<const CacheChoice> IndexChoices();
std::string IndexChoiceNames();
absl::StatusOr<CacheChoice> FindIndexChoice(std::string_view name);
// The name of what a cache of `stored` elements is under `mode` to keys or queries of `computed`.
std::string_view NameOfCache(KvQuantMode mode, DataType stored, DataType computed);
// The name of a cache of TurboQuant slots; "turboquant" for a mix of bits that has none.
std::string_view NameOfSlots(int key_bits, int value_bits, bool norm_correction);

}  // namespace pagefuse
