// SPDX-License-Identifier: Apache-2.0
// Case tables: what an op is tested with. One test (op_test.cc) runs all of them.
//
// For every line PF_OP(family, Op) of ops.inc there is one function
//
//   namespace pagefuse::<family>_ops { OpCases <Op>Cases(); }
//
// in tests/ops/<op>_cases.cc (families of like ops share a file), listed under pagefuse_op_cases in
// tests/ops/CMakeLists.txt:
//
//   OpCases GatherCases() {
//     return OpCases("Gather")
//         .Add("picks_rows", {Floats({3, 2}, {1, 2, 3, 4, 5, 6}), Ints({2}, {2, -3})},
//              {Floats({2, 2}, {5, 6, 1, 2})}, {{"axis", 0}})
//         .Rejects({Floats({2}, {1, 2}), Ints({1}, {2})}, "index 2 is out of range");
//   }
//   OpCases SiluMulCases() {
//     return OpCases("pagefuse.SiluMul")
//         .Exact({{0, 1, -1}, {1, 2, 3}}, {{0, 1.4621172f, -0.8068243f}})  // by hand
//         .Shapes({{0, 8}, {1, 1}, {3, 127}, {64, 1024}})
//         .Fill(Normal{0, 3})
//         .Within(DataType::kFloat16, {.rtol = 2e-3}, "exp in half loses two bits near 8");
//   }
//
// Checked for each case: the outputs are the expected ones (if given); each kernel gives what
// "reference" gives, on every SIMD target, with misaligned buffers, and in place where the op
// allows it; the reference gives what the decomposition gives; shapes inferred from symbolic dims
// are the real ones; no byte behind an output, and no input, is written. Each kernel also sees the
// inputs of every case with a wrong dim or rank: an error, or a result, but no byte outside.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"

namespace pagefuse {

// --- tensors ---
Tensor Floats(std::vector<int64_t> dims, const std::vector<float>& values);
Tensor Ints(std::vector<int64_t> dims, const std::vector<int64_t>& values);  // int64
Tensor Bools(std::vector<int64_t> dims, const std::vector<bool>& values);
template <typename T = int32_t>
Tensor Int32s(std::vector<int64_t> dims, const std::vector<T>& values) {
  return Tensor::Of<int32_t>(std::move(dims), std::vector<int32_t>(values.begin(), values.end()));
}
// The values of a float, int or bool tensor in another type, rounded as Cast does it.
Tensor As(DataType type, const Tensor& tensor);
// A tensor of that type with these bytes (packed types, codes of 8-bit floats).
Tensor Codes(DataType type, std::vector<int64_t> dims, const std::vector<uint8_t>& bytes);

// --- random fills; integers are rounded and clamped ---
struct Normal {
  double mean = 0;
  double deviation = 1;
};
struct Uniform {
  double low = 0;
  double high = 1;
};
using Filling = std::variant<Normal, Uniform>;
Tensor Random(DataType type, std::vector<int64_t> dims, const Filling& filling, uint64_t seed);
// Of mean 0 and deviation 1.
Tensor Values(std::vector<int64_t> dims, uint64_t seed, DataType type = DataType::kFloat);

// |got - want| <= atol + rtol * |want|; NaN equals NaN, infinities equal themselves.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
  // Share of the elements, at least one, that may differ at all; 0: any number.
  double share = 0;
};

using AttributeList = std::vector<std::pair<std::string, AttributeValue>>;

struct OpCase {
  std::string name = {};
  std::vector<Tensor> inputs = {};  // undefined: omitted
  AttributeList attributes = {};
  std::vector<Tensor> outputs = {};  // expected; empty: only kernels and decomposition are compared
  std::vector<int> constants = {};   // inputs that are initialisers, for kernels that pack weights
  int num_outputs = 0;               // 0: as many as `outputs`, else all that the op requires
  int64_t opset = 0;                 // of the op's domain; 0: the newest
  std::optional<Tolerance> within = {};  // of floats, in place of the table's
  // False where standard ops leave open what the decomposition gives, as a maximum of NaN.
  bool decomposes = true;
};

// The case with another input or attribute, which it need not have had.
OpCase With(OpCase op_case, size_t input, Tensor tensor);
OpCase WithAttribute(OpCase op_case, std::string_view name, AttributeValue value);

class OpCases {
 public:
  // "MatMul" (ai.onnx), "com.microsoft.RotaryEmbedding", "pagefuse.SiluMul".
  explicit OpCases(std::string_view op);
  OpCases(const OpCases&);
  OpCases(OpCases&&) noexcept;
  OpCases& operator=(const OpCases&);
  OpCases& operator=(OpCases&&) noexcept;
  ~OpCases();

  OpCases& Add(OpCase op_case);
  OpCases& Add(std::string_view name, std::vector<Tensor> inputs, std::vector<Tensor> outputs = {},
               AttributeList attributes = {});
  // Float lists as 1-d inputs and outputs.
  OpCases& Exact(const std::vector<std::vector<float>>& inputs,
                 const std::vector<std::vector<float>>& outputs);
  // Random cases: each of `shapes` for all required inputs, or one list of shapes an input, in
  // every type of the op's first type variable that has a conversion from float (or in `Types`),
  // with the attributes given before.
  OpCases& Shapes(std::vector<std::vector<int64_t>> shapes);
  OpCases& ShapeSets(std::vector<std::vector<std::vector<int64_t>>> sets);
  OpCases& Fill(Filling filling);
  OpCases& Types(std::vector<DataType> types);
  OpCases& Attributes(AttributeList attributes);
  // Another tolerance than the usual one of an output type (see DefaultTolerance), with the reason
  // for it.
  OpCases& Within(DataType type, Tolerance tolerance, std::string_view reason);
  // Inference or the op's checks must refuse these inputs with a message that contains `message`.
  OpCases& Rejects(OpCase op_case, std::string_view message);
  OpCases& Rejects(std::vector<Tensor> inputs, std::string_view message) {
    return Rejects(OpCase{.inputs = std::move(inputs)}, message);
  }
  OpCases& Rejects(std::vector<Tensor> inputs, AttributeList attributes, std::string_view message) {
    return Rejects(OpCase{.inputs = std::move(inputs), .attributes = std::move(attributes)},
                   message);
  }

  const std::string& domain() const { return domain_; }
  const std::string& op() const { return op_; }
  // All cases, random ones made.
  std::vector<OpCase> cases() const;
  const std::vector<std::pair<OpCase, std::string>>& rejected() const { return rejected_; }
  Tolerance tolerance(DataType type) const;

 private:
  struct RandomCases {
    std::vector<std::vector<std::vector<int64_t>>> shapes;  // [case][input]
    bool same_for_all = false;                              // one shape for all inputs
    AttributeList attributes;
  };
  void AppendRandom(const RandomCases& random, std::vector<OpCase>& cases) const;

  std::string domain_, op_;
  std::vector<OpCase> cases_;
  std::vector<RandomCases> random_;
  std::vector<std::pair<OpCase, std::string>> rejected_;
  std::vector<std::pair<DataType, Tolerance>> tolerances_;
  AttributeList attributes_;
  std::optional<std::vector<DataType>> types_;
  Filling filling_ = Normal{};
};

// Exact for integers and bools; some units in the last place for floats, as an output that is
// rounded once has.
Tolerance DefaultTolerance(DataType type);

}  // namespace pagefuse
