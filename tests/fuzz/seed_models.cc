// SPDX-License-Identifier: Apache-2.0
#include "seed_models.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse::fuzz {
namespace {

constexpr size_t kLargeBytes = 64 << 10;
constexpr size_t kMaxKeptInitializer = 16 << 10;  // bytes; larger ones become inputs of a cut

std::optional<onnx::ModelProto> ReadModel(const std::filesystem::path& path) {
  std::string bytes;
  auto model = LoadModel(path.string());
  if (model.ok()) {
    // What cannot be inferred stays as it is.
    (void)InferShapes(*model);
    auto exported = ExportModel(*model);
    if (exported.ok()) bytes = *std::move(exported);
  }
  if (bytes.empty()) {
    auto raw = ReadFile(path.string());
    if (raw.ok()) bytes = *std::move(raw);
  }
  onnx::ModelProto proto;
  if (!proto.ParseFromString(bytes) || proto.graph().node().empty()) return std::nullopt;
  return proto;
}

// What is known of the names of a graph.
struct Names {
  std::map<std::string, const onnx::ValueInfoProto*> types;
  std::map<std::string, const onnx::TensorProto*> initializers;
};

Names NamesOf(const onnx::GraphProto& graph) {
  Names names;
  for (const auto* list : {&graph.input(), &graph.output(), &graph.value_info()}) {
    for (const auto& value : *list) names.types[value.name()] = &value;
  }
  for (const auto& tensor : graph.initializer()) names.initializers[tensor.name()] = &tensor;
  return names;
}

void AddTypedInput(const std::string& name, const Names& names, onnx::GraphProto& graph) {
  onnx::ValueInfoProto& input = *graph.add_input();
  if (auto type = names.types.find(name); type != names.types.end()) {
    input = *type->second;
  } else if (auto tensor = names.initializers.find(name); tensor != names.initializers.end()) {
    auto& type_proto = *input.mutable_type()->mutable_tensor_type();
    type_proto.set_elem_type(tensor->second->data_type());
    for (const int64_t dim : tensor->second->dims()) {
      type_proto.mutable_shape()->add_dim()->set_dim_value(dim);
    }
  }
  input.set_name(name);
}

// `count` nodes from `begin` on, with what they read as inputs and what nothing of them reads as
// outputs.
onnx::ModelProto Cut(const onnx::ModelProto& model, int begin, int count) {
  const onnx::GraphProto& graph = model.graph();
  const Names names = NamesOf(graph);
  onnx::ModelProto cut;
  cut.set_ir_version(model.ir_version());
  *cut.mutable_opset_import() = model.opset_import();
  *cut.mutable_functions() = model.functions();
  onnx::GraphProto& part = *cut.mutable_graph();
  part.set_name("cut");
  std::set<std::string> made, read;
  for (int i = begin; i < std::min(begin + count, graph.node_size()); ++i) {
    *part.add_node() = graph.node(i);
    for (const std::string& input : graph.node(i).input()) {
      if (input.empty() || made.contains(input) || !read.insert(input).second) continue;
      auto tensor = names.initializers.find(input);
      if (tensor != names.initializers.end() &&
          tensor->second->ByteSizeLong() <= kMaxKeptInitializer) {
        *part.add_initializer() = *tensor->second;
      } else {
        AddTypedInput(input, names, part);
      }
    }
    for (const std::string& output : graph.node(i).output()) {
      if (!output.empty()) made.insert(output);
    }
  }
  std::set<std::string> inner;
  for (const auto& node : part.node()) inner.insert(node.input().begin(), node.input().end());
  for (const std::string& name : made) {
    if (inner.contains(name)) continue;
    onnx::ValueInfoProto& output = *part.add_output();
    if (auto type = names.types.find(name); type != names.types.end()) output = *type->second;
    output.set_name(name);
  }
  return cut;
}

}  // namespace

SeedModels::SeedModels(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  for (const std::string& folder : folders) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".onnx" || extension == ".onnxtxt") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    Models small;
    for (const fs::path& path : paths) {
      auto model = ReadModel(path);
      if (!model) continue;
      const bool large = model->ByteSizeLong() > kLargeBytes;
      (large ? large_ : small).push_back(*std::move(model));
    }
    if (!small.empty()) small_.push_back(std::move(small));
  }
}

size_t SeedModels::size() const {
  size_t count = large_.size();
  for (const Models& models : small_) count += models.size();
  return count;
}

onnx::ModelProto SeedModels::Pick(Random& random) const {
  if (!large_.empty() && (small_.empty() || random.OneIn(3))) {
    const onnx::ModelProto& large = random.Pick(large_);
    if (random.OneIn(100)) return large;
    const int count = 3 + static_cast<int>(random.Below(random.OneIn(4) ? 120 : 25));
    return Cut(large, static_cast<int>(random.Below(large.graph().node_size())), count);
  }
  return random.Pick(random.Pick(small_));
}

const onnx::NodeProto* SeedModels::PickNode(Random& random) const {
  const bool large = !large_.empty() && random.OneIn(8);
  if (!large && small_.empty()) return nullptr;
  const onnx::ModelProto& model = large ? random.Pick(large_) : random.Pick(random.Pick(small_));
  return &random.Pick(model.graph().node());
}

}  // namespace pagefuse::fuzz
