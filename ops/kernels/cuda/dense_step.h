// SPDX-License-Identifier: Apache-2.0
// Sums, differences, products and quotients of dense tensors of one float type, or of one and a number, and the guard that puts a number in
// place of NaN: without the walk and the interpreter of programs, which take longer than a small tensor. Device code: for .cu files.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>

#include "pagefuse/ops/kernels/cuda/elementwise.h"
#include "pagefuse/ops/kernels/cuda/launch_kernel.h"
#include "pagefuse/ops/kernels/cuda/ptx.h"
#include "pagefuse/ops/kernels/cuda/row_vectors.h"

namespace pagefuse::cuda {

struct DenseOperand {
  const void* data = nullptr;  // null: the number
  float number = 0;
  bool repeated = false;  // one element
};
struct DenseStep {
  ElementOp op = ElementOp::kAdd;  // kIsNaN: a, or b where that is NaN
  uint32_t size = 0;               // threads that have work
  DenseOperand a, b;
  void* y = nullptr;
};

constexpr bool IsDenseOp(ElementOp op) {
  return op == ElementOp::kAdd || op == ElementOp::kSub || op == ElementOp::kMul ||
         op == ElementOp::kDiv;
}

// What a program computes of two operands, as programs number them.
struct DenseProgram {
  ElementOp op;
  uint8_t a, b;
};

// Where(IsNaN(a), b, a).
inline bool IsNanGuard(const ElementProgram& program) {
  const ElementStep &test = program.step[0], &choice = program.step[1];
  return program.steps == 2 && test.op == ElementOp::kIsNaN && choice.op == ElementOp::kWhere &&
         choice.a == test.to && choice.c == test.a && test.to != test.a && choice.b != test.to;
}

// Of a program of tensors without strides, if it is such a step.
inline std::optional<DenseProgram> DenseProgramOf(const ElementProgram& program) {
  const ElementStep &step = program.step[0], &last = program.step[program.steps - 1];
  const auto type = static_cast<DataType>(program.result_type);
  const bool floats =
      type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
  const bool of_one_type = std::all_of(program.input_types, program.input_types + program.inputs,
                                       [&](uint8_t input) { return input == program.result_type; });
  if (program.wide || !floats || !of_one_type || last.type != program.result_type ||
      step.kind != ElementKind::kFloat) {
    return std::nullopt;
  }
  if (IsNanGuard(program)) return DenseProgram{step.op, step.a, last.b};
  if (program.steps == 1 && IsDenseOp(step.op)) return DenseProgram{step.op, step.a, step.b};
  return std::nullopt;
}

inline constexpr int kDenseThreads = 128;

template <typename T, int kVector>
__device__ Vector<float, kVector> LoadOperand(const DenseOperand& x, uint32_t piece) {
  if (x.data != nullptr && !x.repeated) return LoadFloats<T, kVector>(x.data, piece);
  const float one = x.data != nullptr ? ToFloat(*static_cast<const T*>(x.data)) : x.number;
  Vector<float, kVector> floats;
#pragma unroll
  for (int i = 0; i < kVector; ++i) floats.at[i] = one;
  return floats;
}

template <typename T, int kVector>
__global__ void __launch_bounds__(kDenseThreads)
    DenseStepKernel(const __grid_constant__ DenseStep step) {
  ptx::LetNextKernelBegin();
  const uint32_t piece = blockIdx.x * kDenseThreads + threadIdx.x;
  ptx::WaitForKernelBefore();
  if (piece >= step.size) return;
  const auto a = LoadOperand<T, kVector>(step.a, piece);
  const auto b = LoadOperand<T, kVector>(step.b, piece);
  Vector<float, kVector> y;
  const auto compute = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) y.at[i] = f(a.at[i], b.at[i]);
  };
  switch (step.op) {
    case ElementOp::kAdd:
      compute([](float l, float r) { return l + r; });
      break;
    case ElementOp::kSub:
      compute([](float l, float r) { return l - r; });
      break;
    case ElementOp::kMul:
      compute([](float l, float r) { return l * r; });
      break;
    case ElementOp::kIsNaN:
      compute([](float l, float r) { return l == l ? l : r; });
      break;
    default:
      compute([](float l, float r) { return l / r; });
      break;
  }
  StoreFloats<T, kVector>(y, step.y, piece);
}

// Of `size` elements, in pieces of four where all tensors come in such. repeats(i): input i has one element.
template <class Repeats>
Error LaunchDenseStep(const ElementwiseParams& params, const DenseProgram& dense, int64_t size,
                      bool in_fours, const Repeats& repeats, Stream stream) {
  const ElementProgram& program = *params.program;
  const auto operand = [&](int id) {
    DenseOperand x;
    if (id < kElementConstant) {
      x.data = params.inputs[id].data;
      x.repeated = repeats(id);
    } else {
      x.number =
          std::bit_cast<float>(static_cast<uint32_t>(program.constant[id - kElementConstant]));
    }
    return x;
  };
  DenseStep step{.op = dense.op, .y = params.output};
  step.a = operand(dense.a);
  step.b = operand(dense.b);
  step.size = static_cast<uint32_t>(in_fours ? size / 4 : size);
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(step.size, kDenseThreads)),
                          .block = kDenseThreads};
  return ForFloatType(static_cast<DataType>(program.result_type), [&]<typename T>() -> Error {
    return Launch(in_fours ? DenseStepKernel<T, 4> : DenseStepKernel<T, 1>, shape, stream, step);
  });
}

}  // namespace pagefuse::cuda
