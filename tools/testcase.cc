#include "tools/testcase.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/status_macros.h"
#include "pagefuse/ops/numeric/convert.h"

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

// What an output without a rule is compared by. A whole decoder sums the errors of its layers: its
// tolerance is absolute, a fraction of a logit, or two quanta of a quantised cache.
CompareRule UnnamedRule(const TestCase& test_case, const Tensor& want) {
  CompareRule rule = DefaultRule(want.dtype());
  if (!test_case.whole_model) return rule;
  if (IsFloatingPoint(want.dtype())) rule.atol = std::max(rule.atol, 1e-4);
  if (want.dtype() == DataType::kInt8) {
    rule.kind = CompareRule::Kind::kAllclose;
    rule.atol = 2;
  }
  return rule;
}

// Codes of quantised caches, and how many of them are not the expected ones.
struct CodeCount {
  int64_t codes = 0;
  int64_t moved = 0;
  // Under one in a hundred: sums in another order reach the neighbouring code where a number lies
  // between two. More are an error of their own, and forgive none.
  bool few() const { return moved > 0 && moved * 100 < codes; }
};

CodeCount CountCodes(const TestCase& test_case, const TestDataSet& data_set,
                     const std::vector<Tensor>& outputs) {
  CodeCount count;
  for (size_t i = 0; test_case.whole_model && i < data_set.outputs.size(); ++i) {
    const Tensor& want = data_set.outputs[i];
    if (!want.defined() || want.dtype() != DataType::kInt8) continue;
    if (outputs[i].dtype() != want.dtype() || outputs[i].dims() != want.dims()) continue;
    const auto a = outputs[i].values<int8_t>(), b = want.values<int8_t>();
    count.codes += want.size();
    for (int64_t k = 0; k < want.size(); ++k) count.moved += a[k] != b[k] ? 1 : 0;
  }
  return count;
}

// A code that moved by one moves what is computed from it by up to one part in 127.
double QuantumOf(const Tensor& want) {
  std::vector<double> values(static_cast<size_t>(want.size()));
  if (!DecodeToDouble(want.dtype(), want.data(), want.size(), values.data()).ok()) return 0;
  double largest = 0;
  for (double value : values)
    largest = std::max(largest, std::isfinite(value) ? std::fabs(value) : 0);
  return largest / 127;
}

absl::Status CompareOutputs(const TestCase& test_case, const TestDataSet& data_set,
                            const std::vector<Tensor>& outputs, std::vector<std::string>* notes) {
  if (outputs.size() < data_set.outputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected ", data_set.outputs.size(), " outputs, got ", outputs.size()));
  }
  const CodeCount codes = CountCodes(test_case, data_set, outputs);
  if (codes.few() && notes != nullptr) {
    notes->push_back(absl::StrCat(data_set.name, ": ", codes.moved, " of ", codes.codes,
                                  " codes of the cache are not the expected ones; floats are "
                                  "compared within a 127th of their largest"));
  }
  for (size_t i = 0; i < data_set.outputs.size(); ++i) {
    const std::string& name = test_case.model.graph->outputs()[i]->name();
    const Tensor& want = data_set.outputs[i];
    if (!want.defined()) continue;
    const auto named = test_case.rules.find(name);
    CompareRule rule =
        named == test_case.rules.end() ? UnnamedRule(test_case, want) : named->second;
    if (codes.few() && named == test_case.rules.end() && IsFloatingPoint(want.dtype())) {
      rule.atol = std::max(rule.atol, QuantumOf(want));
    }
    const absl::Status status = CompareTensors(rule, outputs[i], want);
    if (status.ok()) continue;
    return absl::InvalidArgumentError(absl::StrCat(test_case.name, "/", data_set.name,
                                                   ": output \"", name, "\": ", status.message()));
  }
  return absl::OkStatus();
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

struct ModelFile {
  fs::path path;
  bool beside = false;  // several graphs of one model: NAME.onnx beside the folder NAME
};

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

absl::Status CheckTestCase(const TestCase& test_case, const ModelRunner& run,
                           std::vector<std::string>* notes) {
  for (const TestDataSet& data_set : test_case.data_sets) {
    PF_RETURN_IF_ERROR(CheckDataSet(test_case, data_set, run, notes));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
