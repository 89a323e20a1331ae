// SPDX-License-Identifier: Apache-2.0
// The calls that are compared with ONNX Runtime.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "op_call.h"

namespace pagefuse {

struct OpPeerCase {
  std::string name;  // of a folder too
  std::string size;  // for the reader
  std::function<std::unique_ptr<OpCall>()> make;
};

// Each op of domain pagefuse that has a decomposition and one or more formats.
std::vector<OpPeerCase> OpPeerCases();

// Decode over a long context, float queries: the calls that GroupQueryAttention is compared with.
inline constexpr int64_t kPeerContext = 4096;
OpPeerCase FloatDecodeCase();
OpPeerCase Int8DecodeCase();

}  // namespace pagefuse
