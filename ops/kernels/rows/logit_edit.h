// SPDX-License-Identifier: Apache-2.0
// What is changed of single logits before a token is chosen. Compiles for hosts and devices.
#pragma once

#include <cstdint>

namespace pagefuse {

// Of a row.
struct LogitPenalties {
  double repetition = 1;  // of tokens that were seen
  double frequency = 0;   // for each time in the output
  double presence = 0;    // for being in the output
};

// Of a token.
struct LogitEdit {
  double bias = 0;  // -infinity: it cannot come
  int64_t count =
      -1;  // how often it is in the output; -1: it was not seen, not in the prompt either
};

// A product that no addition is fused with, so that hosts and devices round alike.
constexpr double RoundedProduct(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// In double until all of it is done, so that the order of roundings does not matter.
constexpr float EditedLogit(float logit, const LogitEdit& edit, const LogitPenalties& penalties) {
  double value = logit + edit.bias;
  if (edit.count < 0) return static_cast<float>(value);
  value = value > 0 ? value / penalties.repetition : RoundedProduct(value, penalties.repetition);
  value -= RoundedProduct(penalties.frequency, static_cast<double>(edit.count));
  if (edit.count > 0) value -= penalties.presence;
  return static_cast<float>(value);
}

}  // namespace pagefuse
