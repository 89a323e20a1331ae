// SPDX-License-Identifier: Apache-2.0
// Inputs and outputs of ops by name: what `node.input(...)` and `node.output(...)` take where a
// place alone would not say what stands there. ports_test.cc holds every list to the declaration.
#pragma once

namespace pagefuse::ports {

struct Attention {
  enum In { kQuery, kKey, kValue, kMask, kPastKey, kPastValue, kKeyLengths };
  enum Out { kRows, kPresentKey, kPresentValue, kScores };
};

struct Clip {
  enum In { kInput, kLow, kHigh };
};

struct Dropout {
  enum In { kData, kRatio, kTraining };
  enum Out { kKept, kMask };
};

// com.microsoft
struct GroupQueryAttention {
  enum In {
    kQuery,
    kKey,
    kValue,
    kPastKey,
    kPastValue,
    kLengths,
    kTotal,
    kCos,
    kSin,
    kPositionIds,
    kBias,
    kSink,
    kKeyScale,
    kValueScale,
    kQueryNorm,
    kKeyNorm
  };
  enum Out { kRows, kPresentKey, kPresentValue };
};

struct MqaLogits {
  enum In { kQuery, kKey, kScale, kWeights, kBegin, kEnd };
};

struct PagedMqaLogits {
  enum In { kQuery, kCache, kWeights, kLengths, kTables, kLongest, kStarts };
};

struct QuantizeLinear {
  enum In { kInput, kScale, kZeroPoint };
};

struct Range {
  enum In { kStart, kLimit, kDelta };
};

struct RotaryEmbedding {
  enum In { kInput, kCos, kSin, kPositions };
};

struct ScatterND {
  enum In { kData, kIndices, kUpdates };
};

struct Slice {
  enum In { kData, kStarts, kEnds, kAxes, kSteps };
};

struct TensorScatter {
  enum In { kCache, kUpdate, kPlaces };
};

struct Where {
  enum In { kCondition, kTrue, kFalse };
};

}  // namespace pagefuse::ports
