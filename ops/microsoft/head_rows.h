// SPDX-License-Identifier: Apache-2.0
// What happens to a head's row of q or k before attention: norm and rotation. Shared by the
// attention ops with those steps inside.
#pragma once

#include <cstdint>

#include "pagefuse/ops/microsoft/tensor_values.h"

namespace pagefuse::microsoft_ops {

// Rotates channels [offset, offset + 2 * half) of a row in place: pairs (a, b) become
// (a cos - b sin, b cos + a sin). Pairs are neighbours if interleaved, else half channels apart.
struct Rotation {
  const float* cosines = nullptr;  // [positions, half]; null: no rotation
  const float* sines = nullptr;
  int64_t positions = 0;
  int64_t half = 0;
  int64_t offset = 0;
  bool interleaved = false;

  void Apply(int64_t position, float* row) const;
};

// x * weight / sqrt(mean(x^2) + epsilon), in place.
struct HeadNorm {
  const float* weight = nullptr;  // [size]; null: no norm
  float epsilon = 0;

  void Apply(float* row, int64_t size) const;
};

// Where the heads of query, key or value lie in a tensor of one row a token.
struct HeadSource {
  const TensorArg* tensor = nullptr;
  int64_t heads = 0;
  int64_t size = 0;   // of a head
  int64_t first = 0;  // element of head 0 in a token's row
  int64_t width = 0;  // elements of a token's row

  // Reads a head's row as floats.
  void Load(int64_t token, int64_t head, float* row) const;
};

// Which of the tensors 0 to 2 (query, key, value) a source is; `packed`: all in tensor 0.
struct HeadCounts {
  int64_t q_heads = 0, kv_heads = 0;
  bool packed = false;
};
HeadSource HeadSourceOf(const KernelArgs& args, const HeadCounts& counts, int which, int64_t size);

// Norm, rotation, and rounding to the type that the op computes in.
struct HeadPreparation {
  HeadNorm norm;
  Rotation rotation;
  DataType round_to = DataType::kFloat;

  bool changes_nothing() const { return norm.weight == nullptr && rotation.cosines == nullptr; }
  void Apply(int64_t position, float* row, int64_t size) const;
};

}  // namespace pagefuse::microsoft_ops
