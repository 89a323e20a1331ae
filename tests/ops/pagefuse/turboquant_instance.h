// SPDX-License-Identifier: Apache-2.0
// Random calls of the TurboQuant ops, for tests: rows, slots, tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "paged_attention_instance.h"

#include "pagefuse/ops/kernels/formats/turboquant_format.h"

namespace pagefuse::testing {

struct TurboQuantSpec {
  int key_bits = 4, value_bits = 4;
  bool norm_correction = true;
  DataType type = DataType::kFloat;  // of query; of key and value
  int64_t heads = 4, kv_heads = 2, head_size = 64, block_size = 16;
  int64_t padding = 0;  // bytes of a slot that its format does not need
  std::vector<SequenceSpec> sequences = {{1, 40}};
  bool starts = true;  // query_start_loc is given
  bool rotation = false, centroids = false, lse = false;
  int64_t window = 0;  // 0: none
  float softcap = 0;   // 0: none
  bool sinks = false;
  uint64_t seed = 1;

  TurboQuantFormat format() const { return {key_bits, value_bits, head_size}; }
};

// Inputs of an op, with undefined tensors for what is omitted, and its attributes.
struct TurboQuantInputs {
  std::vector<Tensor> inputs;
  std::vector<std::pair<std::string, decltype(Attribute::value)>> attributes;
};

// Slots that hold no token are all ones, table entries that nothing needs -1.
TurboQuantInputs AttentionInputs(const TurboQuantSpec& spec);
TurboQuantInputs DequantInputs(const TurboQuantSpec& spec);
// One token for each query token of the sequences, the first of them skipped.
TurboQuantInputs InsertInputs(const TurboQuantSpec& spec);

// Normal numbers of a type.
Tensor NormalTensor(DataType type, std::vector<int64_t> dims, uint64_t seed);
// An orthogonal matrix [size, size].
Tensor RandomRotation(int64_t size, uint64_t seed);

// A node with these inputs; runs one kernel ("decomposition" runs that).
class TurboQuantNode {
 public:
  TurboQuantNode(const std::string& op, TurboQuantInputs inputs, int num_outputs);
  absl::StatusOr<std::vector<Tensor>> Run(const std::string& kernel) const;

 private:
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  Node* node_ = nullptr;
  std::vector<Tensor> inputs_;
};

}  // namespace pagefuse::testing
