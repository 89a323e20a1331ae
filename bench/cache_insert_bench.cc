// PagedCacheInsert: bytes a second, as a share of what a plain copy of as many bytes reaches in the
// same program.
#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "op_call.h"

#include "pagefuse/ops/kernel.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse {
namespace {

constexpr int64_t kHeads = 8, kHeadSize = 128, kBlockSize = 16;

// One PagedCacheInsert of `tokens` bfloat16 tokens into a cache with twice as many slots.
class Insert {
 public:
  Insert(const std::string& mode, DataType cache_type, int64_t tokens) : tokens_(tokens) {
    const int64_t blocks = std::max<int64_t>(2 * tokens / kBlockSize, 1);
    std::vector<Value*> inputs;
    const std::vector<int64_t> source = {tokens, kHeads, kHeadSize};
    const std::vector<int64_t> cache = {blocks, kBlockSize, kHeads, kHeadSize};
    for (const char* name : {"key", "value"})
      inputs.push_back(Add(name, DataType::kBfloat16, source));
    for (const char* name : {"kc", "vc"}) inputs.push_back(Add(name, cache_type, cache));
    inputs.push_back(Add("slots", DataType::kInt64, {tokens}));
    const bool tensor_scale = mode == "fp8_per_tensor";
    const bool row_scales = mode != "none" && !tensor_scale;
    for (const char* name : {"ks", "vs"}) {
      inputs.push_back(tensor_scale ? Add(name, DataType::kFloat, {1}) : Skip());
    }
    for (const char* name : {"ksc", "vsc"}) {
      inputs.push_back(row_scales ? Add(name, DataType::kFloat, {blocks, kBlockSize, kHeads})
                                  : Skip());
    }
    std::vector<Value*> outputs;
    for (int i = 0; i < (row_scales ? 4 : 2); ++i) {
      outputs.push_back(graph_.AddValue("out" + std::to_string(i)));
    }
    node_ = graph_.AddNode("pagefuse", "PagedCacheInsert", inputs, outputs);
    node_->SetAttribute("kv_quant_mode", {mode, "", ""});
    Fill(tensor_scale);
    args_.node = node_;
    args_.opset = 1;
    args_.scratch = &scratch_;
    args_.outputs = {args_.inputs[2], args_.inputs[3]};
    if (row_scales) args_.outputs.insert(args_.outputs.end(), {args_.inputs[7], args_.inputs[8]});
  }

  void Run(const Kernel& kernel) { status_ = kernel.run(args_); }
  const absl::Status& status() const { return status_; }
  // Bytes that must be read and written.
  int64_t bytes() const {
    const int64_t values = tokens_ * kHeads * kHeadSize;
    const int64_t stored = values * BitWidth(args_.inputs[2].dtype) / 8;
    const int64_t scales = args_.outputs.size() == 4 ? tokens_ * kHeads * 4 : 0;
    return 2 * (values * 2 + stored + scales);
  }

 private:
  Value* Add(const std::string& name, DataType type, const std::vector<int64_t>& dims) {
    tensors_.push_back(*Tensor::Allocate(type, dims));
    args_.inputs.push_back({type, dims, tensors_.back().mutable_data()});
    return graph_.AddInput(name, type, Shape::FromInts(dims));
  }
  Value* Skip() {
    args_.inputs.emplace_back();
    return nullptr;
  }
  void Fill(bool tensor_scale) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(tokens_ * kHeads * kHeadSize);
    for (float& v : values) v = normal(random);
    for (int i = 0; i < 2; ++i) {
      EncodeFromFloat(DataType::kBfloat16, values.data(), static_cast<int64_t>(values.size()),
                      args_.inputs[i].data)
          .IgnoreError();  // bfloat16 is always known
    }
    // Blocks in random order, as a pool hands them out.
    const int64_t blocks = args_.inputs[2].dim(0);
    std::vector<int64_t> order(blocks);
    for (int64_t i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (int64_t t = 0; t < tokens_; ++t) {
      args_.inputs[4].as<int64_t>()[t] = order[t / kBlockSize] * kBlockSize + t % kBlockSize;
    }
    for (int i = 5; tensor_scale && i < 7; ++i) *args_.inputs[i].as<float>() = 0.01f;
  }

  int64_t tokens_;
  Graph graph_;
  Node* node_ = nullptr;
  std::vector<Tensor> tensors_;
  KernelArgs args_;
  Scratch scratch_;
  absl::Status status_;
};

void InsertTokens(benchmark::State& state, const std::string& mode, DataType cache_type,
                  const std::string& kernel_name) {
  const OpDef* op = OpRegistry::Global().Find("pagefuse", "PagedCacheInsert", 1);
  const Kernel* kernel = nullptr;
  for (const Kernel& candidate : op->kernels()) {
    if (candidate.name == kernel_name) kernel = &candidate;
  }
  Insert insert(mode, cache_type, state.range(0));
  const double copy_rate = CopyRate(insert.bytes());
  double seconds = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    insert.Run(*kernel);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds += taken.count();
  }
  if (!insert.status().ok()) {
    state.SkipWithError(std::string(insert.status().message()).c_str());
    return;
  }
  const double rate = static_cast<double>(insert.bytes() * state.iterations()) / seconds;
  state.SetBytesProcessed(insert.bytes() * state.iterations());
  state.counters["share_of_copy"] = rate / copy_rate;
}

void RegisterBenchmarks() {
  const std::pair<const char*, DataType> modes[] = {
      {"none", DataType::kBfloat16},
      {"fp8_per_tensor", DataType::kFloat8E4M3FN},
      {"int8_per_token_head", DataType::kInt8},
      {"fp8_per_token_head", DataType::kFloat8E4M3FN}};
  for (const char* kernel : {"hwy", "reference"}) {
    for (const auto& [mode, type] : modes) {
      const std::string name = std::string("PagedCacheInsert/") + kernel + "/" + mode;
      benchmark::RegisterBenchmark(
          name.c_str(), [=](benchmark::State& state) { InsertTokens(state, mode, type, kernel); })
          ->Arg(1)
          ->Arg(64)
          ->Arg(2048)
          ->UseRealTime();
    }
  }
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) {
  pagefuse::RegisterBenchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
