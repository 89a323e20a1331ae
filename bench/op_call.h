// One call of an op on tensors of its own, for benchmarks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pagefuse/ir/graph.h"
#include "pagefuse/ir/tensor.h"
#include "pagefuse/ops/kernel.h"

namespace pagefuse {

// Inputs first, then attributes and outputs, then Run. Ends the program on any error: a benchmark
// with wrong arguments measures nothing.
class OpCall {
 public:
  OpCall(std::string_view domain, std::string_view op);

  // Adds an input and returns its memory, unset; its number is the count of inputs before.
  template <typename T>
  T* Input(DataType type, const std::vector<int64_t>& dims) {
    return static_cast<T*>(AddTensor(type, dims, args_.inputs));
  }
  // Normal numbers, encoded as `type`.
  void RandomInput(DataType type, const std::vector<int64_t>& dims, float deviation);
  void Attribute(std::string_view name, decltype(pagefuse::Attribute::value) value);
  void Output(DataType type, const std::vector<int64_t>& dims) {
    AddTensor(type, dims, args_.outputs);
  }
  // The next output is that input.
  void AliasOutput(int input) { args_.outputs.push_back(args_.inputs[input]); }

  // Runs the kernel of that name.
  void Run(std::string_view kernel);
  // Whether the op has the kernel and it can run here.
  bool Has(std::string_view kernel);
  int64_t output_bytes(int output) const;

 private:
  void* AddTensor(DataType type, const std::vector<int64_t>& dims, std::vector<TensorArg>& list);
  const Kernel* Find(std::string_view kernel) const;
  void MakeNode();

  std::string domain_, op_;
  Graph graph_;
  Node* node_ = nullptr;
  std::vector<std::pair<std::string, pagefuse::Attribute>> attributes_;
  std::vector<Tensor> tensors_;
  KernelArgs args_;
  Scratch scratch_;
};

// Bytes a second (read and written) of a plain copy of half as many bytes, measured once a size.
double CopyRate(int64_t bytes);

}  // namespace pagefuse
