// SPDX-License-Identifier: Apache-2.0
// The text of IndexerTopK's decomposition, for ops that choose keys by scores of their own.
#pragma once

#include <string>

namespace pagefuse::pagefuse_ops {

// Nodes from `logits`, `ks` and `ke` to `indices`; the attribute topk is theirs. `padded`: there may
// be fewer columns than topk.
std::string IndexerTopKLines(bool padded);

}  // namespace pagefuse::pagefuse_ops
