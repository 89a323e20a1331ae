// SPDX-License-Identifier: Apache-2.0
// Sums, differences, products and quotients of dense tensors of one float type, or of one and a number: what a program of one such step is,
// without its walk and its interpreter, which take longer than a small tensor. Device code: for .cu files.
#pragma once

#include <algorithm>
#include <bit>

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
  ElementOp op = ElementOp::kAdd;
  uint32_t size = 0;  // threads that have work
  DenseOperand a, b;
  void* y = nullptr;
};

constexpr bool IsDenseOp(ElementOp op) {
  return op == ElementOp::kAdd || op == ElementOp::kSub || op == ElementOp::kMul ||
         op == ElementOp::kDiv;
}

// Whether a program of tensors without strides is such a step.
inline bool IsDenseStep(const ElementProgram& program) {
  const ElementStep& step = program.step[0];
  const auto type = static_cast<DataType>(program.result_type);
  const bool floats =
      type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
  return program.steps == 1 && !program.wide && floats && step.kind == ElementKind::kFloat &&
         step.type == program.result_type && IsDenseOp(step.op) &&
         std::all_of(program.input_types, program.input_types + program.inputs,
                     [&](uint8_t input) { return input == program.result_type; });
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
    default:
      compute([](float l, float r) { return l / r; });
      break;
  }
  StoreFloats<T, kVector>(y, step.y, piece);
}

// Of `size` elements, in pieces of four where all tensors come in such. repeats(i): input i has one element.
template <class Repeats>
Error LaunchDenseStep(const ElementwiseParams& params, int64_t size, bool in_fours,
                      const Repeats& repeats, Stream stream) {
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
  DenseStep step{.op = program.step[0].op, .y = params.output};
  step.a = operand(program.step[0].a);
  step.b = operand(program.step[0].b);
  step.size = static_cast<uint32_t>(in_fours ? size / 4 : size);
  const LaunchShape shape{.grid = static_cast<unsigned>(CeilDiv(step.size, kDenseThreads)),
                          .block = kDenseThreads};
  return ForFloatType(static_cast<DataType>(program.result_type), [&]<typename T>() -> Error {
    return Launch(in_fours ? DenseStepKernel<T, 4> : DenseStepKernel<T, 1>, shape, stream, step);
  });
}

}  // namespace pagefuse::cuda
