// Calls of paged ops with random contents, for the benchmarks of attention: one sequence over one
// layer's cache, blocks in random order, as in a model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pagefuse/ops/cache/cache_format.h"
#include "pagefuse/ops/kernel.h"

namespace pagefuse {

inline constexpr int64_t kBenchBlockSize = 16;
// Of all layers together: more than any cache of a processor holds.
inline constexpr int64_t kBenchLayerBytes = int64_t{512} << 20;

// The kernel of an op of domain pagefuse; it must exist.
const Kernel& BenchKernel(const std::string& op, const std::string& kernel);

// One call of an op, and the memory of its tensors.
class BenchCall {
 public:
  virtual ~BenchCall() = default;
  void Run(const Kernel& kernel, Scratch& scratch);

 protected:
  // Memory aligned to 64, not initialised.
  void* Bytes(size_t size);
  void Set(size_t input, DataType type, std::vector<int64_t> dims, void* data);
  void Ints(size_t input, std::vector<int64_t> dims, const std::vector<int32_t>& values);
  void Floats(size_t input, std::vector<int64_t> dims, const std::vector<float>& values);
  // Normal numbers.
  void Random(size_t input, DataType type, std::vector<int64_t> dims);
  // A table [1, blocks] of all blocks in random order.
  void BlockTable(size_t input, int64_t blocks);
  void Output(DataType type, std::vector<int64_t> dims);
  // The node, from the inputs and outputs so far. Attributes may be set on it.
  Node* MakeNode(const std::string& op);

  KernelArgs args_;
  std::mt19937 random_{1};

 private:
  Graph graph_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

struct ModelShape {
  const char* name;
  int64_t heads, kv_heads, head_size, window;
};

struct CacheKind {
  const char* name;
  KvQuantMode mode;
  DataType type;
  DataType query;
};

// PagedAttention of `queries` tokens at the end of a sequence of `length`.
class PagedLayer : public BenchCall {
 public:
  PagedLayer(const ModelShape& shape, const CacheKind& kind, int64_t queries, int64_t length);

  // Bytes of keys, values and scales that the last query token sees.
  int64_t VisibleBytes(int64_t length) const;

 private:
  void Cache(size_t input, size_t scales, DataType type, int64_t blocks);

  ModelShape shape_;
  CacheFormat format_;
};

// How many layers of so many bytes a benchmark goes through in turn.
inline int64_t NumBenchLayers(int64_t layer_bytes) {
  return std::clamp<int64_t>(kBenchLayerBytes / layer_bytes, 2, 256);
}

}  // namespace pagefuse
