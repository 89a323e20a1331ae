// SPDX-License-Identifier: Apache-2.0
// One call of an op on tensors of its own, for benchmarks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ir/tensor/tensor.h"
#include "pagefuse/ops/schema/kernel.h"
#include "pagefuse/ops/schema/op_def.h"

namespace pagefuse {

// Inputs first, in the order of the op's ports, and attributes; then Run. Outputs have the types
// and shapes that the op infers, and the memory of the inputs that they alias. Ends the program on
// any error: a benchmark with wrong arguments measures nothing.
class OpCall {
 public:
  // `op` in domain pagefuse.
  explicit OpCall(std::string_view op);
  // `op` of another domain as it is in opset `opset`.
  OpCall(std::string_view domain, std::string_view op, int64_t opset);

  // Adds an input and returns its memory, all zero, aligned to 64 bytes.
  template <typename T>
  T* Input(DataType type, const std::vector<int64_t>& dims) {
    return static_cast<T*>(AddInput(type, dims));
  }
  // The last input's memory.
  template <typename T>
  T* Last() {
    return args_.inputs.back().as<T>();
  }
  // Normal numbers, encoded as `type`.
  void Normal(DataType type, const std::vector<int64_t>& dims, float deviation = 1);
  // Evenly distributed numbers of [low, high) in an integer type or bool.
  void Uniform(DataType type, const std::vector<int64_t>& dims, int64_t low, int64_t high);
  // Makes the last input a constant of the graph, which kernels may prepare.
  void Constant() { constants_.push_back(num_inputs() - 1); }
  // Bytes of a cache: as codes and as scales numbers near 1, unless said otherwise.
  void Bytes(const std::vector<int64_t>& dims, uint8_t value = 0x3C);
  void Ints(const std::vector<int64_t>& dims, const std::vector<int32_t>& values) {
    Values(DataType::kInt32, dims, values);
  }
  void Longs(const std::vector<int64_t>& values) {
    Values(DataType::kInt64, {static_cast<int64_t>(values.size())}, values);
  }
  void Floats(const std::vector<int64_t>& dims, const std::vector<float>& values) {
    Values(DataType::kFloat, dims, values);
  }
  // A table [sequences, columns] of as many blocks, in random order as a pool hands them out.
  void BlockTable(int64_t sequences, int64_t columns);
  // int64 slots of `tokens` tokens that fill blocks in random order.
  void Slots(int64_t tokens, int64_t block_size);
  // int64 0, 1, ..., count - 1.
  void Range(int64_t count);
  void Omit();

  void Attribute(std::string_view name, decltype(pagefuse::Attribute::value) value);
  // How many outputs there are, where not just those that the op requires.
  void set_num_outputs(int count) { num_outputs_ = count; }

  // Runs the kernel of that name.
  void Run(std::string_view kernel);
  // Intermediates go there from now on, as in a session, where all nodes share them.
  void UseScratch(Scratch* scratch) { args_.scratch = scratch; }
  // Whether the op has the kernel and it can run here.
  bool Has(std::string_view kernel);
  // Name of the kernel that a session would choose.
  std::string BestKernel();

  const OpDef& op() const { return op_; }
  int64_t opset() const { return opset_; }
  bool IsConstant(int i) const {
    return std::find(constants_.begin(), constants_.end(), i) != constants_.end();
  }
  int num_inputs() const { return static_cast<int>(args_.inputs.size()); }
  // An input's tensor; undefined where it is omitted.
  const Tensor& input(int i) const { return inputs_[i]; }
  // The call with all that is inferred. Adds no inputs afterwards.
  const KernelArgs& args();
  int64_t output_bytes(int output);
  // Bytes of all inputs and outputs.
  int64_t TensorBytes();
  std::mt19937& random() { return random_; }

 private:
  void* AddInput(DataType type, const std::vector<int64_t>& dims);
  template <typename T>
  void Values(DataType type, const std::vector<int64_t>& dims, const std::vector<T>& values) {
    T* data = Input<T>(type, dims);
    PF_CHECK(static_cast<int64_t>(values.size()) == args_.inputs.back().size());
    std::copy(values.begin(), values.end(), data);
  }
  std::vector<int32_t> ShuffledBlocks(int64_t blocks);
  OpCall(const OpDef& op, int64_t opset);
  void MakeNode();
  void Prepare(const Kernel& kernel);
  void MakeOutputs();
  const Kernel* Find(std::string_view kernel) const;

  const OpDef& op_;
  const int64_t opset_;
  std::mt19937 random_{1};
  Graph graph_;
  Node* node_ = nullptr;
  int num_outputs_ = -1;
  std::vector<std::pair<std::string, pagefuse::Attribute>> attributes_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<int> constants_;
  const Kernel* prepared_ = nullptr;  // what state_ is for
  std::unique_ptr<KernelState> state_;
  KernelArgs args_;
  Scratch scratch_;
};

// An input or an attribute of a call, as rows of tables have them: what the method of the same name
// adds.
using Part = std::function<void(OpCall&)>;
using Dims = std::vector<int64_t>;
// The call of `op` in domain pagefuse that the parts make, in the order of the ports.
std::unique_ptr<OpCall> CallOf(std::string_view op, const std::vector<Part>& parts);

inline Part Normal(DataType type, Dims dims, float deviation = 1) {
  return [=](OpCall& call) { call.Normal(type, dims, deviation); };
}
inline Part Uniform(DataType type, Dims dims, int64_t low, int64_t high) {
  return [=](OpCall& call) { call.Uniform(type, dims, low, high); };
}
inline Part Bytes(Dims dims, uint8_t value = 0x3C) {
  return [=](OpCall& call) { call.Bytes(dims, value); };
}
inline Part Ints(Dims dims, std::vector<int32_t> values) {
  return [=](OpCall& call) { call.Ints(dims, values); };
}
inline Part Longs(std::vector<int64_t> values) {
  return [=](OpCall& call) { call.Longs(values); };
}
inline Part Floats(Dims dims, std::vector<float> values) {
  return [=](OpCall& call) { call.Floats(dims, values); };
}
inline Part BlockTable(int64_t sequences, int64_t columns) {
  return [=](OpCall& call) { call.BlockTable(sequences, columns); };
}
inline Part Slots(int64_t tokens, int64_t block_size) {
  return [=](OpCall& call) { call.Slots(tokens, block_size); };
}
inline Part Range(int64_t count) {
  return [=](OpCall& call) { call.Range(count); };
}
inline Part Omitted() {
  return [](OpCall& call) { call.Omit(); };
}
inline Part Outputs(int count) {
  return [=](OpCall& call) { call.set_num_outputs(count); };
}
// One int64 without dims.
inline Part Scalar(int64_t value) {
  return [=](OpCall& call) { *call.Input<int64_t>(DataType::kInt64, {}) = value; };
}
// The part as a constant of the graph.
inline Part Const(Part part) {
  return [=](OpCall& call) {
    part(call);
    call.Constant();
  };
}
// Integers are int64, texts strings.
template <class T>
Part Attr(std::string name, T value) {
  return [=](OpCall& call) {
    if constexpr (std::is_integral_v<T>) {
      call.Attribute(name, int64_t{value});
    } else if constexpr (std::is_convertible_v<T, std::string>) {
      call.Attribute(name, std::string(value));
    } else {
      call.Attribute(name, value);
    }
  };
}

using OpCalls = std::vector<std::unique_ptr<OpCall>>;

// Of all calls of a series together: more than any cache of a processor holds.
inline constexpr int64_t kSeriesBytes = int64_t{512} << 20;

inline OpCalls OneCall(std::unique_ptr<OpCall> call) {
  OpCalls calls;
  calls.push_back(std::move(call));
  return calls;
}

// How many calls over `bytes` each kSeriesBytes asks for, 2 to 256.
inline int64_t SeriesLength(int64_t bytes) {
  return std::clamp<int64_t>(kSeriesBytes / bytes, 2, 256);
}

// As many calls.
template <typename Make>
OpCalls MakeCalls(int64_t bytes, const Make& make) {
  OpCalls calls;
  const int64_t count = SeriesLength(bytes);
  for (int64_t i = 0; i < count; ++i) calls.push_back(make());
  return calls;
}

// Calls that take turns, as the layers of a model do, and the fastest of their runs.
class CallSeries {
 public:
  // Runs each call once: the first touch of its outputs' memory costs more than many kernels.
  CallSeries(OpCalls calls, std::string kernel);
  CallSeries(const CallSeries&) = delete;
  // Returns the seconds of this run.
  double RunOnce();
  double best() const { return best_; }

 private:
  OpCalls calls_;
  Scratch scratch_;  // of all calls
  std::string kernel_;
  size_t next_ = 0;
  double best_ = 1e30;
};

}  // namespace pagefuse
