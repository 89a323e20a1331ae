// SPDX-License-Identifier: Apache-2.0
// Nodes of TurboQuant slots in standard ops, for the decompositions of the ops over them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pagefuse/ops/pagefuse/body_writer.h"

namespace pagefuse::pagefuse_ops {

// The text of an op with two inputs.
std::string Call(std::string_view op, std::string_view a, std::string_view b);

// What decides the nodes.
struct TurboQuantBody {
  int key_bits = 4;
  int value_bits = 4;
  bool norm_correction = false;
  bool has_rotation = false;   // the input is given
  bool has_centroids = false;  // the input is given
  int64_t head_size = 0;       // needed without the input `centroids`

  bool has_rotated_keys() const { return key_bits != 8; }
};

// The values `rotation` and `centroids`, unless they are inputs or the keys need none. Reads `d`,
// the head size as a value [1].
void WriteTurboQuantTables(const TurboQuantBody& body, BodyWriter& writer);

// From `slots` [X, N, Hk, S]: `k_rows` (in the rotated space) and `v_rows`, float [X, N, Hk, D].
// Reads `d` and `centroids`.
void WriteTurboQuantRows(const TurboQuantBody& body, BodyWriter& writer);

// From the rows `k` and `v`, float [T, Hk, D]: the pieces of their slots as uint8 [T, Hk, ...],
// whose names are returned, comma-separated in their order. Reads `d`, `rotation`, `centroids`.
std::string WriteTurboQuantCodes(const TurboQuantBody& body, BodyWriter& writer);

}  // namespace pagefuse::pagefuse_ops
