#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse {

int64_t TensorArg::size() const {
  int64_t count = 1;
  for (int64_t dim : dims) count *= dim;
  return count;
}

const TensorArg& KernelArgs::input(int i) const {
  static const TensorArg kAbsent;
  return i < static_cast<int>(inputs.size()) ? inputs[i] : kAbsent;
}

const TensorArg& KernelArgs::output(int i) const {
  static const TensorArg kAbsent;
  return i < static_cast<int>(outputs.size()) ? outputs[i] : kAbsent;
}

}  // namespace pagefuse
