// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/schema/contents_read.h"

namespace pagefuse {
namespace {

thread_local ContentsRead* innermost = nullptr;

}  // namespace

ContentsRead::ContentsRead(size_t num_inputs) : inputs_(num_inputs), outer_(innermost) {
  innermost = this;
}

ContentsRead::~ContentsRead() { innermost = outer_; }

void ContentsRead::Note(int input) {
  // An inference that infers other nodes has their inputs noted too: too many do no harm.
  if (innermost == nullptr || input >= static_cast<int>(innermost->inputs_.size())) return;
  innermost->inputs_[input] = true;
}

}  // namespace pagefuse
