// SPDX-License-Identifier: Apache-2.0
#include "tools/check/expect_case.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/schema/port_checks.h"

namespace pagefuse {
namespace {

using Json = nlohmann::json;

std::string ExpectPath(const std::string& folder) {
  return (std::filesystem::path(folder) / "expect.json").string();
}

absl::StatusOr<Json> ReadExpectation(const std::string& folder) {
  std::ifstream file(ExpectPath(folder));
  if (!file) return absl::NotFoundError(StrCat("\"", ExpectPath(folder), "\" cannot be read"));
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("verdict")) return json;
  return absl::InvalidArgumentError(StrCat("\"", ExpectPath(folder), "\" is no expectation"));
}

std::string OpName(const Node& node) { return StrCat(node.domain(), ".", node.op_type()); }

std::map<std::string, int> FusedOps(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const auto& node : graph.nodes()) {
    if (node->domain() == "pagefuse") ++counts[OpName(*node)];
  }
  return counts;
}

std::string CountsText(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [op, count] : counts) {
    StrAppend(&text, text.empty() ? "" : ", ", op.substr(op.find('.') + 1), " ", count);
  }
  return text.empty() ? "nothing" : text;
}

// --- attributes and ports ---

// The attribute, or what it is where the node names none.
Json AttributeOf(const Node& node, const std::string& name) {
  const auto value = [](const auto& variant) -> Json {
    return std::visit(
        [](const auto& held) -> Json {
          using T = std::decay_t<decltype(held)>;
          if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int64_t> ||
                        std::is_same_v<T, std::string>) {
            return held;
          } else {
            return nullptr;
          }
        },
        variant);
  };
  if (const Attribute* attribute = node.attribute(name)) return value(attribute->value);
  const OpDef* op = OpRegistry::Global().Find(node.domain(), node.op_type(), 1);
  const int place = op == nullptr ? -1 : PlaceOf(op->attributes(), name);
  return place < 0 ? nullptr : value(op->attributes()[place].default_value);
}

bool SameJson(const Json& a, const Json& b) {
  constexpr double kRelative = 1e-6;
  if (!a.is_number() || !b.is_number()) return a == b;
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= kRelative * std::max(std::abs(x), std::abs(y));
}

absl::Status CheckAttributes(const Graph& graph, const Json& expected) {
  for (const auto& node : graph.nodes()) {
    const std::string op = OpName(*node);
    if (node->domain() != "pagefuse" || !expected.contains(op)) continue;
    for (const auto& [name, value] : expected[op].items()) {
      const Json found = AttributeOf(*node, name);
      if (SameJson(found, value)) continue;
      return absl::FailedPreconditionError(StrCat(op, ": attribute \"", name, "\": expected ",
                                                  value.dump(), ", got ", found.dump()));
    }
  }
  return absl::OkStatus();
}

// The graph inputs that feed a value, through nodes of one data input.
std::set<std::string> Sources(const Value* value) {
  std::set<std::string> names;
  while (value) {
    if (value->is_input()) names.insert(value->name());
    const Node* node = value->producer();
    value = node ? node->input(0) : nullptr;
  }
  return names;
}

absl::Status CheckPorts(const Graph& graph, const Json& ports) {
  for (const auto& [port, source] : ports.items()) {
    bool found = false;
    for (const auto& node : graph.nodes()) {
      const OpDef* op = OpRegistry::Global().Find(node->domain(), node->op_type(), 1);
      if (node->domain() != "pagefuse" || !op) continue;
      for (size_t i = 0; i < op->inputs().size(); ++i) {
        if (op->inputs()[i].name != port) continue;
        found = found || Sources(node->input(static_cast<int>(i))).contains(source);
      }
    }
    if (found) continue;
    return absl::FailedPreconditionError(
        StrCat("port \"", port, "\" is not fed by input ", source.dump()));
  }
  return absl::OkStatus();
}

// --- verdicts ---

absl::Status CheckFused(const Graph& graph, const Json& expected) {
  std::map<std::string, int> wanted;
  for (const auto& [op, count] : expected["fuses_to"].items()) wanted[op] = count.get<int>();
  const std::map<std::string, int> found = FusedOps(graph);
  if (wanted != found) {
    return absl::FailedPreconditionError(
        StrCat("expected ", CountsText(wanted), ", got ", CountsText(found)));
  }
  if (expected.contains("attributes")) {
    PF_RETURN_IF_ERROR(CheckAttributes(graph, expected["attributes"]));
  }
  return expected.contains("ports") ? CheckPorts(graph, expected["ports"]) : absl::OkStatus();
}

absl::Status CheckLeft(const Graph& graph, const Json& expected) {
  const std::map<std::string, int> found = FusedOps(graph);
  for (const Json& op : expected.value("near_miss_of", Json::array())) {
    if (!found.contains(op.get<std::string>())) continue;
    return absl::FailedPreconditionError(StrCat("must not become ", op.get<std::string>()));
  }
  return absl::OkStatus();
}

// --- numbers ---

// Codes at most `max_step` apart on at most the share `max_fraction`.
absl::Status CompareCodes(const Json& rule, const Tensor& got, const Tensor& want) {
  if (got.dims() != want.dims() || got.dtype() != want.dtype() || got.byte_size() != got.size()) {
    return absl::InvalidArgumentError("codes of another type or shape");
  }
  const auto* a = static_cast<const uint8_t*>(got.data());
  const auto* b = static_cast<const uint8_t*>(want.data());
  int64_t differing = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    if (a[i] == b[i]) continue;
    ++differing;
    if (std::abs(int{a[i]} - int{b[i]}) > rule.value("max_step", 1)) {
      return absl::InvalidArgumentError(
          StrCat("code ", i, ": expected ", int{b[i]}, ", got ", int{a[i]}));
    }
  }
  const double most = rule.value("max_fraction", 0.0) * static_cast<double>(got.size());
  if (static_cast<double>(differing) <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat(differing, " of ", got.size(), " codes differ"));
}

absl::Status CompareOutput(const Json& rule, const Tensor& got, const Tensor& want) {
  const std::string kind = rule.value("rule", "bytes");
  if (kind == "codes") return CompareCodes(rule, got, want);
  CompareRule compare;
  if (kind == "allclose") {
    compare.kind = CompareRule::Kind::kAllclose;
    compare.rtol = rule.value("rtol", 0.0);
    compare.atol = rule.value("atol", 0.0);
  }
  return CompareTensors(compare, got, want);
}

absl::Status CompareRun(const Model& model, const ExpectCase& expect_case) {
  for (const TestDataSet& data : expect_case.test_case.data_sets) {
    PF_ASSIGN_OR_RETURN(const std::vector<Tensor> found, EvaluateModel(model, data.feeds));
    PF_RETURN_IF_ERROR(CompareOutputs(expect_case, found, data.outputs));
  }
  return absl::OkStatus();
}

absl::Status Named(std::string_view when, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(StrCat(when, ": ", StdView(status.message())));
}

// --- report ---

struct Share {
  int right = 0, all = 0;
  void Add(bool is_right) {
    right += is_right ? 1 : 0;
    ++all;
  }
  std::string Text() const { return all == 0 ? "-" : StrCat(right, " of ", all); }
};

struct Row {
  Share recall, precision, equality;
  void Add(const ExpectResult& result) {
    if (result.verdict == "fuse") recall.Add(result.fusion.ok());
    if (result.verdict == "leave") precision.Add(result.fusion.ok());
    equality.Add(result.equality.ok());
  }
};

void AppendTable(std::string_view title, const std::map<std::string, Row>& rows,
                 std::string& text) {
  StrAppend(&text, "\n| ", title, " | recall | left alone | equal |\n|---|---|---|---|\n");
  for (const auto& [name, row] : rows) {
    StrAppend(&text, "| ", name, " | ", row.recall.Text(), " | ", row.precision.Text(), " | ",
              row.equality.Text(), " |\n");
  }
}

}  // namespace

bool HasExpectation(const std::string& folder) {
  std::error_code ignored;
  return std::filesystem::exists(ExpectPath(folder), ignored);
}

absl::StatusOr<ExpectCase> LoadExpectCase(const std::string& folder) {
  ExpectCase result;
  PF_ASSIGN_OR_RETURN(result.expected, ReadExpectation(folder));
  PF_ASSIGN_OR_RETURN(result.test_case, LoadTestCase(folder));
  return result;
}

PipelineOptions ExpectPipeline(PipelineOptions options) {
  options.page = false;
  // Chains of what is left are no fusion of the corpus.
  options.disabled.emplace_back("fuse-elementwise");
  options.options.emplace("absorb_mla", "on");
  return options;
}

absl::Status CheckVerdict(const Graph& graph, const Json& expected) {
  const std::string verdict = expected["verdict"];
  if (verdict == "fuse") return CheckFused(graph, expected);
  if (verdict == "leave") return CheckLeft(graph, expected);
  return absl::OkStatus();
}

absl::Status CompareOutputs(const ExpectCase& expect_case, const std::vector<Tensor>& got,
                            const std::vector<Tensor>& want) {
  const Json tolerance = expect_case.expected.value("tolerance", Json::object());
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string& name = expect_case.test_case.model.graph->outputs()[i]->name();
    const absl::Status same = CompareOutput(tolerance.value(name, Json::object()), got[i], want[i]);
    if (same.ok()) continue;
    return absl::InvalidArgumentError(StrCat("output \"", name, "\": ", StdView(same.message())));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpectResult> RunExpectCase(const std::string& folder, PipelineOptions options) {
  PF_ASSIGN_OR_RETURN(const ExpectCase expect_case, LoadExpectCase(folder));
  const auto& [test_case, expected] = expect_case;
  ExpectResult result;
  result.name = test_case.name;
  result.family = expected.value("family", "");
  result.exporter = expected.value("exporter", "");
  result.verdict = expected["verdict"];
  result.spelling = expected.value("spelling", std::vector<std::string>());
  options = ExpectPipeline(std::move(options));
  Model fused = test_case.model.Clone();
  PF_RETURN_IF_ERROR(RunPipeline(fused, options).status());
  result.fused = CountsText(FusedOps(*fused.graph));
  result.fusion = CheckVerdict(*fused.graph, expected);
  result.equality = Named("before", CompareRun(test_case.model, expect_case));
  if (result.equality.ok()) result.equality = Named("after", CompareRun(fused, expect_case));
  return result;
}

std::string ExpectReport(const std::vector<ExpectResult>& results) {
  std::string text;
  std::map<std::string, Row> all, families, exporters, spellings;
  for (const ExpectResult& result : results) {
    StrAppend(&text, result.fusion.ok() && result.equality.ok() ? "right " : "wrong ", result.name,
              ": ", result.verdict, ", became ", result.fused);
    if (!result.fusion.ok()) StrAppend(&text, "; ", StdView(result.fusion.message()));
    if (!result.equality.ok()) StrAppend(&text, "; ", StdView(result.equality.message()));
    StrAppend(&text, "\n");
    all["all"].Add(result);
    families[result.family].Add(result);
    exporters[result.exporter].Add(result);
    for (const std::string& tag : result.spelling) spellings[tag].Add(result);
  }
  families.merge(all);
  AppendTable("family", families, text);
  AppendTable("exporter", exporters, text);
  AppendTable("spelling", spellings, text);
  return text;
}

}  // namespace pagefuse
