// SPDX-License-Identifier: Apache-2.0
// What SampleTokens is told of a row. Compiles for hosts and devices.
#pragma once

namespace pagefuse {

// Columns of its input `settings`.
enum SampleSetting {
  kTemperature,
  kTopK,
  kMinP,
  kTopP,
  kRepetition,
  kFrequency,
  kPresence,
  kSampleSettings
};

}  // namespace pagefuse
