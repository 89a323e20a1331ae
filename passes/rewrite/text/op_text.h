// SPDX-License-Identifier: Apache-2.0
// Ops as text: the function that says what an op computes, with typed ports. It is the op's body, so
// that shapes, types, an oracle and what other runtimes run come from it.
//
//   # op: acme.Scale                      x * factor, with an optional bias
//   # types: T in float, float16          type variables of the ports
//   # in-place: y = x                     y may use the memory of x
//   <domain: "acme", opset_import: ["" : 21]>
//   Scale <factor: float = 1.0> (T[N, D] x, T[D] bias?) => (T[N, D] y) {
//     constant = Constant <value_float: float = @factor> ()  ...  y = Add (scaled, bias)
//   }
//   # ---- without: bias                  what it is for calls that leave an optional input out
//   (x) => (y) { ... }
//
// Dims of ports are the language of ops/schema/op_def.h. An output whose type or dims the ports do not tell
// has those that the body gives. Further keys, as in OpDef: `# alias: cache_out = cache` (the output
// is the input's memory, updated), `# view: y = x`, `# metadata: slots`, `# elementwise:`. A key may
// stand on several lines. Ops and rules (rule_text.h) share a file.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/passes/rewrite/text/rewrite.h"

namespace pagefuse {

struct TextOp {
  OpDef def;
  // `# elementwise:`, which is true of the op once it has a kernel (OpDef::Elementwise).
  bool elementwise = false;
};

// All ops of a file. InvalidArgument with file, line, column and a mark under it.
absl::StatusOr<std::vector<TextOp>> ParseOps(const RuleFile& file);

// OK if the nodes of all bodies are of known ops: those of the registry, these among them. For when
// the registry has them.
absl::Status CheckBodies(const RuleFile& file);

}  // namespace pagefuse
