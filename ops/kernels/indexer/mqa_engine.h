// SPDX-License-Identifier: Apache-2.0
// The loop around the two fast implementations of index scores: packs queries once, decodes pieces
// of the keys once for all queries that see them, and shares both among threads.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/indexer/mqa_logits.h"

namespace pagefuse::pagefuse_ops {

// Decoded keys of a piece: `keys` as the engine wants them, and the magnitudes of their scales. A
// negative scale has become the sign of its key, so that it can be applied after the rectifier.
// Both have room for a multiple of 16 keys and are aligned to 64.
struct DecodedKeys {
  void* keys = nullptr;
  float* scales = nullptr;
};

// Keys of one sequence that lie one behind the other, and where they go in a piece.
struct KeyRun {
  const uint8_t* codes = nullptr;
  int64_t count = 0;
  int64_t stride = 0;               // bytes from key to key
  int64_t first = 0;                // number of the first one in the piece
  const uint8_t* scales = nullptr;  // of the groups of a key, where there are such
  int64_t scale_stride = 0;
};

// The decoding of the next piece, in steps of 16 keys, so that it fits between the tile products of
// the piece before.
class KeyDecoding {
 public:
  virtual ~KeyDecoding() = default;
  // Decodes up to 16 keys more; nothing if all are.
  virtual void Step() = 0;
};

// How queries and keys are held, and the innermost loop. Thread-safe once made.
class MqaEngine {
 public:
  explicit MqaEngine(const MqaLogitsProblem& problem) : problem_(problem) {}
  virtual ~MqaEngine() = default;
  MqaEngine(const MqaEngine&) = delete;
  MqaEngine& operator=(const MqaEngine&) = delete;

  // Bytes of a packed query with its weights, and of a decoded key; the first a multiple of 64.
  virtual int64_t QueryBytes() const = 0;
  virtual int64_t KeyBytes() const = 0;
  virtual void PackQuery(int64_t row, void* packed) const = 0;
  virtual void DecodeRun(const KeyRun& run, const DecodedKeys& decoded) const = 0;
  virtual void NegateKey(int64_t key, const DecodedKeys& decoded) const = 0;
  // Writes out[range.begin, range.end): the logits of the packed query for those keys of a piece.
  // May take steps of `next` meanwhile.
  virtual void Score(const void* packed, const DecodedKeys& decoded, const KeyRange& range,
                     KeyDecoding& next, float* out) const = 0;
  // Around a run of calls of Score by one thread.
  virtual void BeginScores() const {}
  virtual void EndScores() const {}

 protected:
  const MqaLogitsProblem& problem() const { return problem_; }

 private:
  const MqaLogitsProblem& problem_;
};

void RunMqaEngine(const MqaLogitsProblem& problem, const MqaEngine& engine, Scratch* scratch);

}  // namespace pagefuse::pagefuse_ops
