#include "paged_layer.h"

#include <cstring>
#include <utility>

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/pagefuse/paged_attention.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse {

const Kernel& BenchKernel(const std::string& op, const std::string& kernel) {
  for (const Kernel& candidate : OpRegistry::Global().Find("pagefuse", op, 1)->kernels()) {
    if (candidate.name == kernel) return candidate;
  }
  PF_CHECK(false);
}

void BenchCall::Run(const Kernel& kernel, Scratch& scratch) {
  args_.scratch = &scratch;
  PF_CHECK(kernel.run(args_).ok());
}

void* BenchCall::Bytes(size_t size) {
  memory_.push_back(std::make_unique<std::byte[]>(size + 64));
  const auto address = reinterpret_cast<uintptr_t>(memory_.back().get());
  return reinterpret_cast<void*>((address + 63) / 64 * 64);
}

void BenchCall::Set(size_t input, DataType type, std::vector<int64_t> dims, void* data) {
  if (args_.inputs.size() <= input) args_.inputs.resize(input + 1);
  args_.inputs[input] = {type, std::move(dims), data};
}

void BenchCall::Ints(size_t input, std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  void* data = Bytes(values.size() * 4);
  std::memcpy(data, values.data(), values.size() * 4);
  Set(input, DataType::kInt32, std::move(dims), data);
}

void BenchCall::Floats(size_t input, std::vector<int64_t> dims, const std::vector<float>& values) {
  void* data = Bytes(values.size() * 4);
  std::memcpy(data, values.data(), values.size() * 4);
  Set(input, DataType::kFloat, std::move(dims), data);
}

void BenchCall::Random(size_t input, DataType type, std::vector<int64_t> dims) {
  std::vector<float> values(*ElementCount(dims));
  std::normal_distribution<float> normal;
  for (float& x : values) x = normal(random_);
  void* data = Bytes(values.size() * 4);
  PF_CHECK(EncodeFromFloat(type, values.data(), static_cast<int64_t>(values.size()), data).ok());
  Set(input, type, std::move(dims), data);
}

void BenchCall::BlockTable(size_t input, int64_t blocks) {
  std::vector<int32_t> table(blocks);
  for (int64_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  std::shuffle(table.begin(), table.end(), random_);
  Ints(input, {1, blocks}, table);
}

void BenchCall::Output(DataType type, std::vector<int64_t> dims) {
  const int64_t bytes = *ElementCount(dims) * BitWidth(type) / 8;
  args_.outputs.push_back({type, std::move(dims), Bytes(static_cast<size_t>(bytes))});
}

Node* BenchCall::MakeNode(const std::string& op) {
  std::vector<Value*> inputs;
  for (const TensorArg& arg : args_.inputs) {
    inputs.push_back(arg.present() ? graph_.AddValue(graph_.UniqueName("x"), arg.dtype) : nullptr);
  }
  std::vector<Value*> outputs;
  for (const TensorArg& arg : args_.outputs) {
    outputs.push_back(graph_.AddValue(graph_.UniqueName("y"), arg.dtype));
  }
  Node* node = graph_.AddNode("pagefuse", op, inputs, outputs);
  args_.node = node;
  return node;
}

PagedLayer::PagedLayer(const ModelShape& shape, const CacheKind& kind, int64_t queries,
                       int64_t length)
    : shape_(shape), format_(*CacheFormat::Make(kind.mode, kind.type)) {
  const int64_t blocks = (length + kBenchBlockSize - 1) / kBenchBlockSize;
  const std::vector<int64_t> rows = {queries, shape.heads, shape.head_size};
  Random(kPaQuery, kind.query, rows);
  Cache(kPaKeyCache, kPaKScaleCache, kind.type, blocks);
  Cache(kPaValueCache, kPaVScaleCache, kind.type, blocks);
  Ints(kPaQueryStartLoc, {2}, {0, static_cast<int32_t>(queries)});
  Ints(kPaSeqLens, {1}, {static_cast<int32_t>(length)});
  BlockTable(kPaBlockTable, blocks);
  for (const int i : {kPaKScale, kPaVScale}) {
    if (format_.has_tensor_scale()) Floats(i, {1}, {0.02f});
  }
  if (format_.needs_signs()) {
    Floats(kPaRhtSigns, {shape.head_size}, std::vector<float>(shape.head_size, 1));
  }
  Output(kind.query, rows);
  Node* node = MakeNode("PagedAttention");
  node->SetAttribute("kv_quant_mode", Attribute{std::string(KvQuantModeName(kind.mode)), "", ""});
  node->SetAttribute("sliding_window", Attribute{shape.window, "", ""});
}

int64_t PagedLayer::VisibleBytes(int64_t length) const {
  const int64_t visible = shape_.window > 0 ? std::min(length, shape_.window) : length;
  return visible * format_.BytesPerToken(shape_.kv_heads, shape_.head_size, shape_.head_size);
}

// Rows are copies of a few random ones: what they hold does not change how long it takes.
void PagedLayer::Cache(size_t input, size_t scales, DataType type, int64_t blocks) {
  const int64_t rows = blocks * kBenchBlockSize * shape_.kv_heads;
  const int64_t row_bytes = format_.RowBytes(shape_.head_size);
  auto* data = static_cast<uint8_t*>(Bytes(rows * row_bytes));
  auto* scale = static_cast<uint8_t*>(Bytes(rows * sizeof(float)));
  const std::vector<float> signs(shape_.head_size, 1);
  std::vector<float> x(shape_.head_size);
  std::normal_distribution<float> normal;
  constexpr int64_t kDistinct = 64;
  for (int64_t row = 0; row < rows; ++row) {
    if (row >= kDistinct) {
      std::memcpy(data + row * row_bytes, data + row % kDistinct * row_bytes, row_bytes);
      std::memcpy(scale + row * 4, scale + row % kDistinct * 4, 4);
      continue;
    }
    for (float& v : x) v = normal(random_);
    EncodeRow(format_, {.tensor_scale = 0.02f, .rht_signs = signs.data()}, x.data(),
              shape_.head_size, {data + row * row_bytes, scale + row * 4});
  }
  Set(input, type,
      {blocks, kBenchBlockSize, shape_.kv_heads, format_.StoredElements(shape_.head_size)}, data);
  if (format_.has_row_scales()) {
    Set(scales, DataType::kFloat, {blocks, kBenchBlockSize, shape_.kv_heads}, scale);
  }
}

}  // namespace pagefuse
