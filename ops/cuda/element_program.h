// SPDX-License-Identifier: Apache-2.0
// Nodes of elementwise ops, and chains of them, as programs that the device runs (ops/kernels/cuda/elementwise.h).
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ops/kernels/cuda/elementwise.h"
#include "pagefuse/ops/schema/kernel.h"

namespace pagefuse::cuda {

// The op by its name, for all that are one step of one or two operands.
struct SimpleStep {
  ElementOp op = ElementOp::kCast;
  int operands = 1;
  unsigned kinds = 0;  // that it is computed in: bits 1 << ElementKind
  bool tests = false;  // the result is bool
};
std::optional<SimpleStep> SimpleStepOf(std::string_view domain, std::string_view op_type);

// A value of a program, and its type. Without a number: an operand that is omitted.
struct ProgramValue {
  int number = -1;
  DataType type = DataType::kUndefined;
  bool present() const { return number >= 0; }
};

// Puts a program together; then gives registers to what it computes.
class ProgramBuilder {
 public:
  using Operand = ProgramValue;

  absl::StatusOr<Operand> Input(DataType type);
  // A number in that type.
  absl::StatusOr<Operand> Constant(DataType type, double number);
  // The one element of a tensor in the host's memory.
  absl::StatusOr<Operand> Constant(const Tensor& tensor);
  // Unimplemented with the node's name if there is no step for its op, types or attributes.
  absl::StatusOr<Operand> Add(const Node& node, const std::vector<Operand>& operands);
  // With the result that was added last; Unimplemented if it is too long.
  absl::StatusOr<ElementProgram> Finish();

  int inputs() const { return static_cast<int>(input_types_.size()); }

 private:
  struct Step {
    ElementStep step;
    Operand a, b, c, result;
  };
  Operand Value(DataType type);
  Operand Then(ElementStep step, DataType type, const Operand& a, const Operand& b = {},
               const Operand& c = {});
  absl::StatusOr<Operand> AddSimple(const Node& node, const SimpleStep& simple,
                                    const std::vector<Operand>& operands);
  absl::StatusOr<Operand> AddPow(const Node& node, const std::vector<Operand>& operands);
  absl::StatusOr<Operand> AddClip(const Node& node, const std::vector<Operand>& operands);
  absl::StatusOr<Operand> AddVariadic(const Node& node, const std::vector<Operand>& operands);
  absl::StatusOr<Operand> AddGelu(const Node& node, const std::vector<Operand>& operands);
  // The register of an input or of a step's result, or the constant.
  std::vector<int> PlaceValues(ElementProgram& program) const;

  int values_ = 0;
  std::vector<DataType> types_;    // by value
  std::vector<int> input_values_;  // by input
  std::vector<DataType> input_types_;
  std::vector<std::pair<int, uint64_t>> constants_;  // value, bits
  std::vector<Step> steps_;
};

// What a kernel keeps: a program, and what it reads.
struct CompiledProgram : KernelState {
  ElementProgram program;
  // By input of the program: the node's input, or a constant.
  struct Source {
    int input = -1, constant = -1;
  };
  std::vector<Source> sources;
  std::vector<const Tensor*> host_constants;  // of a chain's body
  std::vector<Tensor> constants;              // the same on the device

  int64_t packed_bytes() const override;
};

// Of a node of an elementwise op, or of pagefuse.Elementwise. The error says why there is no program.
absl::StatusOr<std::unique_ptr<CompiledProgram>> CompileProgram(const Node& node);

}  // namespace pagefuse::cuda
