// SPDX-License-Identifier: Apache-2.0
#include "tools/check/testcase.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "nlohmann/json.hpp"
#include "tools/check/case_outputs.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/graph/compute_type.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string MetadataOf(const Model& model, std::string_view key) {
  const std::optional<std::string_view> value = FindMetadata(model.metadata, key);
  return value ? std::string(*value) : std::string();
}

absl::StatusOr<CompareRule> ParseRule(const Json& entry) {
  const auto number = [&](const char* key, double otherwise) {
    return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : otherwise;
  };
  const std::string name = entry.is_object() && entry.contains("rule") && entry["rule"].is_string()
                               ? entry["rule"].get<std::string>()
                               : "";
  const std::pair<const char*, CompareRule::Kind> kinds[] = {
      {"bytes", CompareRule::Kind::kBytes},
      {"allclose", CompareRule::Kind::kAllclose},
      {"ulp", CompareRule::Kind::kUlp},
      {"int4_scale", CompareRule::Kind::kInt4Scale},
      {"rows_as_sets", CompareRule::Kind::kRowsAsSets}};
  for (const auto& [kind_name, kind] : kinds) {
    if (name != kind_name) continue;
    CompareRule rule;
    rule.kind = kind;
    rule.rtol = number("rtol", 0);
    rule.atol = number("atol", 0);
    if (entry.contains("rel_l2")) rule.rel_l2 = number("rel_l2", 0);
    rule.finite_only = entry.contains("finite_only") && entry["finite_only"] == true;
    rule.max_ulp = static_cast<int64_t>(number("max", 0));
    rule.max_fraction = number("max_fraction", 1);
    return rule;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown rule of comparison \"", name, "\""));
}

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// input_0.pb, input_1.pb, ... as far as they go.
absl::StatusOr<std::vector<NamedTensor>> LoadTensors(const fs::path& folder, const char* kind) {
  std::vector<NamedTensor> tensors;
  while (true) {
    const fs::path file = folder / absl::StrCat(kind, "_", tensors.size(), ".pb");
    std::error_code ignored;
    if (!fs::exists(file, ignored)) return tensors;
    NamedTensor named;
    PF_ASSIGN_OR_RETURN(named.tensor, LoadTensor(file.string(), &named.name));
    tensors.push_back(std::move(named));
  }
}

// The port of each tensor: by name if all names are those of different ports, else by order.
std::vector<size_t> PortsOf(const std::vector<NamedTensor>& tensors,
                            const std::vector<Value*>& ports) {
  std::vector<size_t> by_name, by_order;
  for (const NamedTensor& named : tensors) {
    by_order.push_back(by_order.size());
    for (size_t i = 0; i < ports.size(); ++i) {
      const bool taken = std::count(by_name.begin(), by_name.end(), i) > 0;
      if (ports[i]->name() != named.name || taken) continue;
      by_name.push_back(i);
      break;
    }
  }
  return by_name.size() == tensors.size() ? by_name : by_order;
}

// A case of an old suite: files had no bfloat16 and held its bits as uint16.
absl::StatusOr<Tensor> AsDeclared(const Value& value, const Tensor& tensor) {
  if (value.dtype() != DataType::kBfloat16 || tensor.dtype() != DataType::kUint16) return tensor;
  return Tensor::View(DataType::kBfloat16, tensor.dims(), tensor.buffer(), tensor.buffer_offset());
}

absl::StatusOr<TestDataSet> LoadDataSet(const Graph& graph, const fs::path& folder) {
  TestDataSet data_set;
  data_set.name = folder.filename().string();
  PF_ASSIGN_OR_RETURN(const std::vector<NamedTensor> inputs, LoadTensors(folder, "input"));
  PF_ASSIGN_OR_RETURN(const std::vector<NamedTensor> outputs, LoadTensors(folder, "output"));
  if (inputs.size() > graph.inputs().size() || outputs.size() > graph.outputs().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder.string(), ": more tensors than the model has inputs (",
                     graph.inputs().size(), ") and outputs (", graph.outputs().size(), ")"));
  }
  const std::vector<size_t> input_ports = PortsOf(inputs, graph.inputs());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& input = *graph.inputs()[input_ports[i]];
    PF_ASSIGN_OR_RETURN(data_set.feeds[input.name()], AsDeclared(input, inputs[i].tensor));
  }
  const std::vector<size_t> output_ports = PortsOf(outputs, graph.outputs());
  for (size_t i = 0; i < outputs.size(); ++i) {
    data_set.outputs.resize(std::max(data_set.outputs.size(), output_ports[i] + 1));
    PF_ASSIGN_OR_RETURN(data_set.outputs[output_ports[i]],
                        AsDeclared(*graph.outputs()[output_ports[i]], outputs[i].tensor));
  }
  return data_set;
}

absl::StatusCode CodeOf(const std::string& error_class) {
  if (error_class == "SLOT_RANGE" || error_class == "BLOCK_RANGE") {
    return absl::StatusCode::kOutOfRange;
  }
  return absl::StatusCode::kInvalidArgument;
}

absl::Status CheckFailure(const TestCase& test_case, const absl::Status& status) {
  const std::string expected = absl::StrCat("expected error ", test_case.expected_error,
                                            " that names \"", test_case.error_input, "\", got ");
  if (status.ok()) return absl::InvalidArgumentError(expected + "success");
  const std::string message(status.message());
  const bool named = message.find("\"" + test_case.error_input + "\"") != std::string::npos;
  if (named && status.code() == CodeOf(test_case.expected_error)) return absl::OkStatus();
  return absl::InvalidArgumentError(expected + status.ToString());
}

absl::Status CheckDataSet(const TestCase& test_case, const TestDataSet& data_set,
                          const ModelRunner& run, std::vector<std::string>* notes) {
  std::map<std::string, Tensor> feeds;
  for (const auto& [name, tensor] : data_set.feeds) {
    if (tensor.dtype() == DataType::kString) {
      feeds[name] = tensor;
      continue;
    }
    PF_ASSIGN_OR_RETURN(feeds[name], tensor.Clone());
  }
  const absl::StatusOr<std::vector<Tensor>> outputs = run(test_case.model, feeds);
  if (test_case.expected_error.empty()) {
    PF_RETURN_IF_ERROR(outputs.status());
    return CompareOutputs(test_case, data_set, *outputs, notes);
  }
  PF_RETURN_IF_ERROR(CheckFailure(test_case, outputs.status()));
  for (const auto& [name, tensor] : data_set.feeds) {
    if (tensor.dtype() == DataType::kString || feeds[name].IdenticalTo(tensor)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(test_case.name, ": the failed call changed \"", name, "\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, CompareRule>> ParseCompareRules(const std::string& json) {
  const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return absl::InvalidArgumentError("rules of comparison: expected a JSON object by output");
  }
  std::map<std::string, CompareRule> rules;
  for (const auto& [output, entry] : document.items()) {
    PF_ASSIGN_OR_RETURN(rules[output], ParseRule(entry));
  }
  return rules;
}

namespace {

// Nodes that are no constants; a function counts by its body. More than `kMany` are not told apart.
int64_t CountComputingNodes(const Model& model, const Graph& graph, int depth = 0) {
  constexpr int64_t kMany = 2;
  constexpr int kMaxDepth = 8;
  int64_t count = 0;
  for (const auto& node : graph.nodes()) {
    if (count >= kMany || depth > kMaxDepth) return kMany;
    if (node->Is("Constant")) continue;
    const Function* function = model.FindFunction(node->domain(), node->op_type(), node->overload);
    count += function ? CountComputingNodes(model, *function->body, depth + 1) : 1;
    for (const Graph* subgraph : node->Subgraphs()) {
      count += CountComputingNodes(model, *subgraph, depth + 1);
    }
  }
  return count;
}

struct ModelFile {
  fs::path path;
  bool beside = false;  // several graphs of one model: NAME.onnx beside the folder NAME
};

// The type and the dims that are numbers are those of the declaration.
bool Fits(const Value& input, const Tensor& data) {
  if (input.dtype() != DataType::kUndefined && input.dtype() != data.dtype()) return false;
  if (!input.shape()) return true;
  if (input.shape()->rank() != data.rank()) return false;
  for (int axis = 0; axis < data.rank(); ++axis) {
    const auto number = (*input.shape())[axis].constant();
    if (number && *number != data.dims()[axis]) return false;
  }
  return true;
}

std::string Declared(const Value& input) {
  return StrCat(DataTypeName(input.dtype()), input.shape() ? input.shape()->ToString() : "[...]");
}

ModelFile FindModel(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / "model.onnx", error)) return {folder / "model.onnx"};
  return {fs::path(folder.string() + ".onnx"), true};
}

}  // namespace

absl::StatusOr<Model> LoadCaseModel(const std::string& folder) {
  return LoadModel(FindModel(fs::path(folder).lexically_normal()).path.string());
}

absl::StatusOr<TestCase> LoadTestCase(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  TestCase test_case;
  test_case.name = path.filename().string();
  std::error_code error;
  const auto [file, beside] = FindModel(path);
  PF_ASSIGN_OR_RETURN(test_case.model, LoadModel(file.string()));
  test_case.whole_model = fs::exists((beside ? path.parent_path() : path) / "config.json", error);
  test_case.single_op = CountComputingNodes(test_case.model, *test_case.model.graph) <= 1;
  Model inferred = test_case.model.Clone();
  InferShapes(inferred).IgnoreError();  // what runs the model says what is wrong with it
  test_case.computed = ComputeType(*inferred.graph);
  const std::string compare = MetadataOf(test_case.model, "pagefuse.compare");
  if (!compare.empty()) {
    PF_ASSIGN_OR_RETURN(test_case.rules, ParseCompareRules(compare));
  }
  test_case.expected_error = MetadataOf(test_case.model, "pagefuse.expect_error");
  test_case.error_input = MetadataOf(test_case.model, "pagefuse.error_input");
  while (true) {
    const fs::path data = path / absl::StrCat("test_data_set_", test_case.data_sets.size());
    std::error_code ignored;
    if (!fs::is_directory(data, ignored)) break;
    PF_ASSIGN_OR_RETURN(TestDataSet data_set, LoadDataSet(*test_case.model.graph, data));
    test_case.data_sets.push_back(std::move(data_set));
  }
  if (test_case.data_sets.empty()) {
    return absl::NotFoundError(absl::StrCat(folder, ": no test_data_set_0"));
  }
  return test_case;
}

std::vector<std::string> FindTestCases(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code error;
  if (fs::exists(fs::path(root) / "model.onnx", error)) return {root};
  fs::recursive_directory_iterator it(root, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const fs::path& path = it->path();
    std::error_code ignored;
    const bool is_folder = fs::is_directory(path, ignored);
    if (path.filename() == "model.onnx") folders.push_back(path.parent_path().string());
    if (is_folder && fs::exists(path.string() + ".onnx", ignored)) folders.push_back(path.string());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

absl::Status CheckDataFits(const TestCase& test_case) {
  if (!test_case.expected_error.empty()) return absl::OkStatus();
  for (const TestDataSet& data_set : test_case.data_sets) {
    for (const Value* input : test_case.model.graph->inputs()) {
      const auto feed = data_set.feeds.find(input->name());
      if (feed == data_set.feeds.end() || Fits(*input, feed->second)) continue;
      return absl::UnimplementedError(absl::StrCat(
          "the case contradicts itself: input \"", input->name(), "\" is declared as ",
          Declared(*input), ", its data is ",
          StrCat(DataTypeName(feed->second.dtype()), DimsToString(feed->second.dims()))));
    }
  }
  return absl::OkStatus();
}

bool HasExpectedOutputs(const TestCase& test_case) {
  const auto has_outputs = [](const TestDataSet& data_set) {
    return std::any_of(data_set.outputs.begin(), data_set.outputs.end(),
                       [](const Tensor& tensor) { return tensor.defined(); });
  };
  return std::any_of(test_case.data_sets.begin(), test_case.data_sets.end(), has_outputs);
}

absl::Status CheckTestCase(const TestCase& test_case, const ModelRunner& run,
                           std::vector<std::string>* notes) {
  for (const TestDataSet& data_set : test_case.data_sets) {
    PF_RETURN_IF_ERROR(CheckDataSet(test_case, data_set, run, notes));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
