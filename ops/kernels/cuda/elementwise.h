// SPDX-License-Identifier: Apache-2.0
// Elementwise ops on a CUDA device: a program of a few steps that runs for each element of the result. A single op
// is a program of one step, a chain one of several; between steps nothing goes through memory.
#pragma once

#include <cstdint>
#include <vector>

#include "pagefuse/base/data_type.h"
#include "pagefuse/ops/kernels/cuda/launch.h"

namespace pagefuse::cuda {

// What steps compute of a, b and c. Comparisons and tests give 0 or 1.
enum class ElementOp : uint8_t {
  // Of all types.
  kCast,   // a, in the step's type
  kWhere,  // b where a is not 0, else c
  // Of numbers.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMax,  // NaN wins
  kMin,
  kNeg,
  kAbs,
  kSign,
  kRelu,
  kPRelu,      // a, where it is negative a * b
  kClipBelow,  // b where a is less, else a
  kClipAbove,  // b where a is greater, else a
  kEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  // Of floats and doubles.
  kSqrt,
  kReciprocal,
  kIsNaN,
  kIsInf,  // of a sign that is asked for: alpha != 0 the negative one, beta != 0 the positive one
  // Of integers and bools.
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kNot,  // of bools
  // Of floats alone.
  kPow,
  kExp,
  kLog,
  kSin,
  kCos,
  kTanh,
  kErf,
  kFloor,
  kCeil,
  kRound,
  kSigmoid,
  kGelu,
  kGeluTanh,
  kSwish,  // a * sigmoid(alpha * a)
  kSoftplus,
  kMish,
  kElu,
  kLeakyRelu,
  kHardSigmoid,
  kHardSwish,
  kSoftsign,
};

// What a step computes in: narrow floats in float; integers, and bools as 0 and 1, modulo 2^64, or 2^32 where no
// type of the program is wider.
enum class ElementKind : uint8_t { kFloat, kDouble, kSigned, kUnsigned };

constexpr ElementKind ElementKindOf(DataType type) {
  switch (type) {
    case DataType::kFloat:
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return ElementKind::kFloat;
    case DataType::kDouble:
      return ElementKind::kDouble;
    case DataType::kInt8:
    case DataType::kInt16:
    case DataType::kInt32:
    case DataType::kInt64:
      return ElementKind::kSigned;
    default:
      return ElementKind::kUnsigned;
  }
}

// Bytes of an element; 0 for a type that no program has.
constexpr int ElementWidth(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kBool:
      return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kInt16:
    case DataType::kUint16:
      return 2;
    case DataType::kFloat:
    case DataType::kInt32:
    case DataType::kUint32:
      return 4;
    case DataType::kDouble:
    case DataType::kInt64:
    case DataType::kUint64:
      return 8;
    default:
      return 0;
  }
}

// One step: an operand is an input, a constant, or the result of a step before it.
struct ElementStep {
  ElementOp op = ElementOp::kCast;
  ElementKind kind = ElementKind::kFloat;  // of the operands that are computed with
  uint8_t type = 0;                        // DataType that the result is rounded to
  uint8_t to = 0;                          // register of the result
  uint8_t a = 0, b = 0, c = 0;             // registers, from kElementConstant on constants
  float alpha = 0, beta = 0;
};

inline constexpr int kMaxElementSteps = 40, kMaxElementInputs = 16, kMaxElementConstants = 24;
inline constexpr int kMaxElementRegisters = 40;
inline constexpr int kElementConstant = 128;

// Registers [0, inputs) hold the inputs' elements; the last step's register is the result.
struct ElementProgram {
  int32_t steps = 0, inputs = 0, constants = 0, registers = 0;
  uint8_t result_type = 0;  // DataType
  uint8_t input_types[kMaxElementInputs] = {};
  ElementStep step[kMaxElementSteps];
  // The bits of a constant as registers hold them: a float in the low half; integers extended by their sign.
  uint64_t constant[kMaxElementConstants] = {};
  // Whether a register has 8 bytes.
  bool wide = false;
};

struct ElementwiseParams {
  const ElementProgram* program = nullptr;
  std::vector<int64_t> dims;  // of the result
  struct Input {
    const void* data = nullptr;
    std::vector<int64_t> dims;  // repeated to those of the result
  };
  std::vector<Input> inputs;  // of the program's types
  void* output = nullptr;     // may be the memory of an input of the same size
};
Error LaunchElementwise(const ElementwiseParams& params, Stream stream);

}  // namespace pagefuse::cuda
