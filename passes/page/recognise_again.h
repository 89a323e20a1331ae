// Attention that is recognised while a graph is being paged.
#pragma once

#include "absl/status/status.h"

#include "pagefuse/ir/model.h"
#include "pagefuse/ops/infer.h"

namespace pagefuse {

// Runs what recognises attention on a graph of which something was taken that pages have and
// Attention has not. `contents` are those of the graph then.
absl::Status RecogniseAgain(Model& model, SymbolicContents& contents);

}  // namespace pagefuse
