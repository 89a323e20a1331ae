#include "op_call.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "peaks.h"

#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"
#include "pagefuse/ops/registry.h"

namespace pagefuse {

OpCall::OpCall(std::string_view domain, std::string_view op) : domain_(domain), op_(op) {}

void* OpCall::AddTensor(DataType type, const std::vector<int64_t>& dims,
                        std::vector<TensorArg>& list) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(type, dims);
  PF_CHECK(tensor.ok());
  tensors_.push_back(*std::move(tensor));
  list.push_back({type, dims, tensors_.back().mutable_data()});
  return list.back().data;
}

void OpCall::RandomInput(DataType type, const std::vector<int64_t>& dims, float deviation) {
  // A few thousand different numbers, repeated: what is computed does not depend on them.
  constexpr int64_t kDistinct = 1 << 14;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(kDistinct);
  for (float& value : values) value = normal(random);
  auto* data = Input<uint8_t>(type, dims);
  const int64_t size = args_.inputs.back().size();
  const int64_t element_bytes = BitWidth(type) / 8;
  for (int64_t i = 0; i < size; i += kDistinct) {
    PF_CHECK(EncodeFromFloat(type, values.data(), std::min(kDistinct, size - i),
                             data + i * element_bytes)
                 .ok());
  }
}

void OpCall::Attribute(std::string_view name, decltype(pagefuse::Attribute::value) value) {
  attributes_.emplace_back(name, pagefuse::Attribute{std::move(value), "", ""});
}

void OpCall::MakeNode() {
  const auto values = [&](const char* prefix, const std::vector<TensorArg>& args) {
    std::vector<Value*> list;
    for (const TensorArg& arg : args) {
      list.push_back(graph_.AddValue(graph_.UniqueName(prefix), arg.dtype));
      list.back()->set_shape(Shape::FromInts(arg.dims));
    }
    return list;
  };
  node_ = graph_.AddNode(domain_, op_, values("in", args_.inputs), values("out", args_.outputs));
  for (const auto& [name, attribute] : attributes_) node_->SetAttribute(name, attribute);
  args_.node = node_;
  args_.opset = 1;
  args_.scratch = &scratch_;
  const OpDef* op = OpRegistry::Global().Find(domain_, op_, 1);
  PF_CHECK(op != nullptr && op->CheckValues(args_).ok());
}

const Kernel* OpCall::Find(std::string_view kernel) const {
  const OpDef* op = OpRegistry::Global().Find(domain_, op_, 1);
  PF_CHECK(op != nullptr);
  for (const Kernel& candidate : op->kernels()) {
    if (candidate.name == kernel) return &candidate;
  }
  return nullptr;
}

bool OpCall::Has(std::string_view kernel) {
  if (node_ == nullptr) MakeNode();
  const Kernel* found = Find(kernel);
  if (found == nullptr) return false;
  return !found->supports || found->supports({.node = node_, .opset = 1}).ok();
}

void OpCall::Run(std::string_view kernel) {
  if (node_ == nullptr) MakeNode();
  PF_CHECK(Find(kernel)->run(args_).ok());
}

int64_t OpCall::output_bytes(int output) const {
  const TensorArg& arg = args_.outputs[output];
  return arg.size() * BitWidth(arg.dtype) / 8;
}

double CopyRate(int64_t bytes) {
  static std::vector<std::pair<int64_t, double>> known;
  for (const auto& [size, rate] : known) {
    if (size == bytes) return rate;
  }
  std::vector<char> from(bytes / 2, 1);
  std::vector<char> to(bytes / 2);
  const int repeats = static_cast<int>(std::max<int64_t>((int64_t{1} << 30) / bytes, 5));
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const double start = Now();
    std::memcpy(to.data(), from.data(), from.size());
    // The copy is needed: another place reads it.
    asm volatile("" ::"r"(to.data()) : "memory");
    best = std::max(best, static_cast<double>(bytes) / (Now() - start));
  }
  known.emplace_back(bytes, best);
  return best;
}

}  // namespace pagefuse
