// SPDX-License-Identifier: Apache-2.0
// Models that do in ONNX Runtime what a call of one of our ops does, with their inputs on disk.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "op_call.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// ONNX Runtime's binding for Node.js has no tensors of bfloat16, so those (and float16) enter and
// leave the graph as uint16; BitCast stands between. Of float8 see runtime_body.h.
struct PeerModel {
  Model model;
  std::vector<std::pair<std::string, Tensor>> inputs;
  // Outputs that may be written over an input: output, input.
  std::vector<std::pair<std::string, std::string>> in_place;
  std::string op;  // what computes it: "decomposition", or the name of an op
};

// One call of a function whose body is the op's decomposition. Shares the call's tensors.
// Unimplemented if the op has none.
absl::StatusOr<PeerModel> DecompositionPeer(OpCall& call);

// The call's node alone. Shares the call's tensors.
PeerModel NodePeer(OpCall& call);

struct PeerAttentionShape {
  int64_t heads, kv_heads, head_size, length;
};

// GroupQueryAttention of domain com.microsoft, float: one new token at the end of a sequence of
// `length`, its cache float or (quantised) int8 under one scale.
PeerModel GroupQueryAttentionPeer(const PeerAttentionShape& shape, bool quantised);

// A comparison as the table shows it.
struct PeerCase {
  std::string name, size;
  std::string kernel;  // ours
  double seconds = 0;  // of our fastest run
  int aim = 0;         // how many times faster we want to be
};

// Writes model.onnx, input_N.bin and manifest.json into `folder`, which is made.
absl::Status SavePeer(const PeerModel& peer, const PeerCase& peer_case, const std::string& folder);

}  // namespace pagefuse
