// SPDX-License-Identifier: Apache-2.0
// The types that the type variables of an op stand for at one node.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "pagefuse/ops/schema/op_def.h"
#include "pagefuse/ops/schema/signature.h"

namespace pagefuse {

// All that it refers to must outlive it.
class TypeBindings {
 public:
  TypeBindings(const OpDef& op, const Signature& signature) : op_(op), signature_(signature) {}

  // Checks the type of every input, and binds the variables of the ports.
  absl::Status BindInputs(const ShapeContext& c);
  // Gives each output whose type inference left open the type of its port as far as the inputs
  // decide it, and checks the others.
  absl::Status CheckOutputs(ShapeContext& c) const;

 private:
  absl::Status Bind(const ShapeContext& c, int input);
  // A type variable, a type name, or empty: any.
  std::string_view NameOf(const PortSignature& port, const ShapeContext& c) const;
  // " with format = fp8" where the port's type depends on it.
  std::string Reason(const PortSignature& port, const ShapeContext& c) const;
  const std::vector<DataType>* Allowed(std::string_view variable) const;
  // Undefined where no input has bound the variable.
  DataType Bound(std::string_view variable) const;
  DataType Find(std::string_view name) const;
  bool IsAllowed(std::string_view name, DataType type) const;

  const OpDef& op_;
  const Signature& signature_;
  std::vector<std::pair<std::string_view, DataType>> bound_;  // an op has few
};

}  // namespace pagefuse
