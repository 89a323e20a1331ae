// SPDX-License-Identifier: Apache-2.0
// The formats of cache rows that kernels of devices read and write.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/cache_format.h"
#include "pagefuse/ops/pagefuse/cache/cache_ports.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// Those that row_codec.h and attention_rows.h have code for: the first ones of the enum, up to this one. Nodes of newer formats run on
// the host.
inline constexpr KvQuantMode kLastKnownFormat = KvQuantMode::kInt4PerTokenHead;

inline absl::Status SupportsFormat(const KernelQuery& query) {
  PF_ASSIGN_OR_RETURN(const CacheFormat format, ReadCacheFormat(*query.node));
  if (format.mode <= kLastKnownFormat) return absl::OkStatus();
  return absl::UnimplementedError(StrCat("no code for rows of ", format.name()));
}

}  // namespace pagefuse::cuda
