// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/cuda/element_program.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/pagefuse/elementwise/elementwise_chain.h"

namespace pagefuse::cuda {
namespace {

using Operand = ProgramValue;

bool IsNumber(const Tensor* tensor) { return tensor != nullptr && tensor->size() == 1; }

// One operand an input of the node: a constant of one element is part of the program.
absl::StatusOr<std::vector<Operand>> OperandsOf(const Node& node, ProgramBuilder& builder,
                                                CompiledProgram& compiled) {
  std::vector<Operand> operands;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const Value* input = node.input(i);
    if (input == nullptr) {
      operands.emplace_back();
    } else if (node.Is("CastLike") && i == 1) {
      operands.push_back({.type = input->dtype()});  // it has the type, and is not read
    } else if (input->IsConstant() && IsNumber(input->initializer())) {
      PF_ASSIGN_OR_RETURN(const Operand operand, builder.Constant(*input->initializer()));
      operands.push_back(operand);
    } else {
      PF_ASSIGN_OR_RETURN(const Operand operand, builder.Input(input->dtype()));
      operands.push_back(operand);
      compiled.sources.push_back({.input = i});
    }
  }
  return operands;
}

absl::Status AddChain(const Node& node, const std::vector<Operand>& operands,
                      ProgramBuilder& builder, CompiledProgram& compiled) {
  PF_ASSIGN_OR_RETURN(const pagefuse_ops::ChainGraph chain, pagefuse_ops::ChainOf(node));
  absl::flat_hash_map<const Value*, Operand> values = {{nullptr, Operand()}};
  for (size_t i = 0; i < operands.size(); ++i) values[chain.body->inputs()[i]] = operands[i];
  for (const Value* constant : chain.body->initializers()) {
    if (constant->is_input()) continue;
    const Tensor* tensor = constant->initializer();
    if (IsNumber(tensor)) {
      PF_ASSIGN_OR_RETURN(values[constant], builder.Constant(*tensor));
      continue;
    }
    PF_ASSIGN_OR_RETURN(values[constant], builder.Input(tensor->dtype()));
    compiled.sources.push_back({.constant = static_cast<int>(compiled.host_constants.size())});
    compiled.host_constants.push_back(tensor);
  }
  Operand last;
  auto op = chain.ops.begin();
  for (const auto& node_of : chain.body->nodes()) {
    const Node& inner = *node_of;
    std::vector<Operand> read;
    for (const Value* input : inner.inputs()) read.push_back(values.at(input));
    PF_ASSIGN_OR_RETURN(last, builder.Add(inner, read));
    if ((*op++)->checks_values() && !IsFloatingPoint(last.type)) {
      return absl::UnimplementedError(
          StrCat(inner.Description(), " checks its integers as a whole"));
    }
    values[inner.output(0)] = last;
  }
  if (values.at(chain.body->outputs()[0]).number == last.number) return absl::OkStatus();
  return absl::UnimplementedError("the chain's result is not that of its last node");
}

}  // namespace

// Values that a program reads no more give their registers away.
std::vector<int> ProgramBuilder::PlaceValues(ElementProgram& program) const {
  std::vector<int> places(values_, 0);
  std::vector<size_t> last_read(values_, 0);
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const Operand* operand : {&steps_[i].a, &steps_[i].b, &steps_[i].c}) {
      if (operand->present()) last_read[operand->number] = i;
    }
  }
  for (size_t i = 0; i < input_values_.size(); ++i) places[input_values_[i]] = static_cast<int>(i);
  for (size_t i = 0; i < constants_.size(); ++i) {
    places[constants_[i].first] = kElementConstant + static_cast<int>(i);
  }
  std::vector<int> free;
  program.registers = static_cast<int32_t>(input_values_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    // A step reads all operands before it writes, so its result may take their place.
    std::vector<int> done;
    for (const Operand* operand : {&steps_[i].a, &steps_[i].b, &steps_[i].c}) {
      if (!operand->present() || last_read[operand->number] != i) continue;
      const int place = places[operand->number];
      if (place < kElementConstant && std::ranges::count(done, place) == 0) done.push_back(place);
    }
    free.insert(free.end(), done.begin(), done.end());
    if (free.empty()) free.push_back(program.registers++);
    places[steps_[i].result.number] = free.back();
    free.pop_back();
  }
  return places;
}

absl::StatusOr<ElementProgram> ProgramBuilder::Finish() {
  ElementProgram program;
  const auto fits = [](size_t size, int most) { return static_cast<int>(size) <= most; };
  if (steps_.empty() || !fits(steps_.size(), kMaxElementSteps) ||
      !fits(input_types_.size(), kMaxElementInputs) ||
      !fits(constants_.size(), kMaxElementConstants)) {
    return absl::UnimplementedError(StrCat("a program of ", steps_.size(), " steps, ",
                                           input_types_.size(), " inputs and ", constants_.size(),
                                           " constants; at most ", kMaxElementSteps, ", ",
                                           kMaxElementInputs, " and ", kMaxElementConstants));
  }
  const std::vector<int> places = PlaceValues(program);
  if (program.registers > kMaxElementRegisters) {
    return absl::UnimplementedError(
        StrCat(program.registers, " values at once, at most ", kMaxElementRegisters));
  }
  for (const Step& step : steps_) {
    ElementStep& to = program.step[program.steps++];
    to = step.step;
    to.to = static_cast<uint8_t>(places[step.result.number]);
    const auto place = [&](const Operand& operand) {
      return static_cast<uint8_t>(operand.present() ? places[operand.number] : to.to);
    };
    to.a = place(step.a), to.b = place(step.b), to.c = place(step.c);
  }
  program.inputs = static_cast<int32_t>(input_types_.size());
  for (size_t i = 0; i < input_types_.size(); ++i) {
    program.input_types[i] = static_cast<uint8_t>(input_types_[i]);
  }
  program.constants = static_cast<int32_t>(constants_.size());
  for (size_t i = 0; i < constants_.size(); ++i) program.constant[i] = constants_[i].second;
  program.result_type = static_cast<uint8_t>(steps_.back().result.type);
  program.wide = std::ranges::any_of(types_, [](DataType type) { return ElementWidth(type) == 8; });
  return program;
}

int64_t CompiledProgram::packed_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& constant : constants) bytes += constant.byte_size();
  return bytes;
}

absl::StatusOr<std::unique_ptr<CompiledProgram>> CompileProgram(const Node& node) {
  auto compiled = std::make_unique<CompiledProgram>();
  ProgramBuilder builder;
  PF_ASSIGN_OR_RETURN(const std::vector<Operand> operands, OperandsOf(node, builder, *compiled));
  if (node.Is("Elementwise", "pagefuse")) {
    PF_RETURN_IF_ERROR(AddChain(node, operands, builder, *compiled));
  } else {
    PF_RETURN_IF_ERROR(builder.Add(node, operands).status());
  }
  PF_ASSIGN_OR_RETURN(compiled->program, builder.Finish());
  return compiled;
}

}  // namespace pagefuse::cuda
