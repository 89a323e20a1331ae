// SPDX-License-Identifier: Apache-2.0
// Calls of single standard ops that are compared with the same node in ONNX Runtime.
#pragma once

#include <string>
#include <vector>

#include "peer_cases.h"

namespace pagefuse {

class StandardCases {
 public:
  // `op`: "Add", or "com.microsoft.Gelu" for one of that domain, of the parts in the order of its
  // ports.
  void Add(std::string name, std::string size, std::string op, std::vector<Part> parts);
  const std::vector<OpPeerCase>& cases() const { return cases_; }

 private:
  std::vector<OpPeerCase> cases_;
};

// Elementwise ops, reductions, order, norms, conversions; movement; products, windows, attention.
void AddElementCases(StandardCases& cases);
void AddMovementCases(StandardCases& cases);
void AddProductCases(StandardCases& cases);

// All of them; their names begin with "std_".
std::vector<OpPeerCase> StandardOpPeerCases();

}  // namespace pagefuse
