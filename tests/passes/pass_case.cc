#include "pass_case.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/onnx_io.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/ir/text.h"
#include "pagefuse/passes/graph_edit.h"

namespace pagefuse {
namespace {

constexpr std::string_view kSeparator = "# ---- ";

std::string Trim(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return "";
  return std::string(text.substr(start, text.find_last_not_of(" \t\r\n") - start + 1));
}

// What follows `key` on a comment line, if the line has it.
bool Take(std::string_view line, std::string_view key, std::string& rest) {
  if (!line.starts_with(key)) return false;
  rest = Trim(line.substr(key.size()));
  return true;
}

// `<rule> at "<value>": <reason>`
absl::StatusOr<PassCase::Because> ParseBecause(const std::string& text) {
  const size_t at = text.find(" at \"");
  const size_t end = text.find("\": ", at);
  if (at == std::string::npos || end == std::string::npos) {
    return absl::InvalidArgumentError("expected: # because <rule> at \"<value>\": <reason>");
  }
  return PassCase::Because{text.substr(0, at), text.substr(at + 5, end - at - 5),
                           text.substr(end + 3)};
}

absl::Status ParseHead(PassCase& test) {
  std::string rest;
  for (absl::string_view part : absl::StrSplit(test.head, '\n')) {
    const std::string_view line = StdView(part);
    if (Take(line, "# run:", rest)) {
      for (absl::string_view name : absl::StrSplit(rest, ',')) {
        test.passes.push_back(Trim(StdView(name)));
      }
    } else if (Take(line, "# options:", rest)) {
      // A comma alone belongs to a value.
      for (absl::string_view option : absl::StrSplit(rest, ", ")) {
        const std::string text = Trim(StdView(option));
        const size_t equals = text.find('=');
        if (equals == std::string::npos) return absl::InvalidArgumentError("expected name=value");
        test.options[text.substr(0, equals)] = text.substr(equals + 1);
      }
    } else if (Take(line, "# numbers: not compared, ", rest)) {
      test.compare_numbers = false;
    }
  }
  if (test.passes.empty()) return absl::InvalidArgumentError("has no line `# run: <pass>`");
  return absl::OkStatus();
}

// The `<...>` before the first graph, comments left out.
std::string HeaderOf(const std::string& text) {
  std::string kept;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!StdView(line).starts_with("#")) StrAppend(&kept, StdView(line), "\n");
  }
  kept = Trim(kept);
  if (!kept.starts_with("<")) return "";
  return kept.substr(0, kept.find('>') + 1);
}

absl::Status ParseTail(PassCase& test, const std::string& line, const std::string& tail) {
  if (Take(line, "# ---- error:", test.error)) {
    test.outcome = PassCase::Outcome::kError;
    return absl::OkStatus();
  }
  if (line == "# ---- after") {
    test.after_has_header = !HeaderOf(tail).empty();
    test.after = test.after_has_header ? tail : HeaderOf(test.head) + "\n" + tail;
    return absl::OkStatus();
  }
  if (line != "# ---- after: unchanged") {
    return absl::InvalidArgumentError(StrCat("does not know \"", line, "\""));
  }
  test.outcome = PassCase::Outcome::kUnchanged;
  std::string rest;
  for (absl::string_view part : absl::StrSplit(tail, '\n')) {
    if (!Take(StdView(part), "# because ", rest)) continue;
    PF_ASSIGN_OR_RETURN(PassCase::Because because, ParseBecause(rest));
    test.because.push_back(std::move(because));
  }
  return absl::OkStatus();
}

// Copies a graph node by node, in the order in which its outputs need them.
class Canonicaliser {
 public:
  explicit Canonicaliser(const Graph& from) : from_(from), to_(std::make_shared<Graph>()) {}
  // A subgraph of `parent`; `outer` has what the graphs around it became.
  Canonicaliser(const Graph& from, Graph* parent, Graph::ValueMap outer)
      : from_(from), to_(std::make_shared<Graph>(parent)), map_(std::move(outer)) {}

  std::shared_ptr<Graph> Run() {
    to_->name = "g";
    for (const Value* input : from_.inputs()) {
      map_[input] = to_->AddInput(input->name(), input->dtype(), input->shape());
      if (input->initializer() != nullptr) to_->SetInitializer(map_[input], *input->initializer());
    }
    for (const Value* output : from_.outputs()) Visit(output);
    for (const auto& node : from_.nodes()) Copy(*node);  // what is dead comes last
    for (const Value* output : from_.outputs()) to_->AddOutput(map_[output]);
    return std::move(to_);
  }

 private:
  void Visit(const Value* value) {
    if (map_.contains(value)) return;
    if (value->producer() != nullptr) {
      Copy(*value->producer());
    } else if (value->initializer() != nullptr) {
      map_[value] = to_->AddInitializer(Name(*value, "c"), *value->initializer());
    }
  }

  void Copy(const Node& node) {
    if (!done_.insert(&node).second) return;
    for (const Value* value : ValuesRead(node)) {
      if (value->graph() == &from_) Visit(value);
    }
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node.inputs()) inputs.push_back(input ? map_.at(input) : nullptr);
    for (const Value* output : node.outputs()) {
      outputs.push_back(output == nullptr ? nullptr : to_->AddValue(Name(*output, "v")));
      if (output == nullptr) continue;
      map_[output] = outputs.back();
      if (output->is_output()) {
        outputs.back()->set_dtype(output->dtype());
        outputs.back()->set_shape(output->shape());
      }
    }
    Node* copy = to_->AddNode(node.domain(), node.op_type(), inputs, outputs);
    copy->overload = node.overload;
    auto attributes = node.attributes();
    std::sort(attributes.begin(), attributes.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [name, attribute] : attributes) {
      copy->SetAttribute(name, CopyAttribute(attribute));
    }
  }

  Attribute CopyAttribute(const Attribute& attribute) {
    const auto* graph = std::get_if<std::shared_ptr<Graph>>(&attribute.value);
    if (graph == nullptr) return Graph::CloneAttribute(attribute, to_.get(), map_);
    return MakeAttribute(Canonicaliser(**graph, to_.get(), map_).Run());
  }

  // Inputs and outputs of the graph keep their names.
  std::string Name(const Value& value, std::string_view kind) {
    if (value.is_output()) return value.name();
    std::string name;
    do {
      name = StrCat("%", kind, next_++);
    } while (to_->FindValueInScope(name) != nullptr);
    return name;
  }

  const Graph& from_;
  std::shared_ptr<Graph> to_;
  Graph::ValueMap map_;
  absl::flat_hash_set<const Node*> done_;
  int next_ = 0;
};

}  // namespace

absl::StatusOr<PassCase> ReadPassCase(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const auto error = [&path](const absl::Status& status) {
    return absl::InvalidArgumentError(StrCat(path, ": ", status.message()));
  };
  PassCase test;
  test.path = path;
  size_t separator = text.find(StrCat("\n", kSeparator));
  if (separator == std::string::npos) {
    return error(absl::InvalidArgumentError("has no line that starts with `# ---- `"));
  }
  ++separator;
  test.head = text.substr(0, separator);
  test.before = test.head;
  absl::Status status = ParseHead(test);
  if (!status.ok()) return error(status);
  const size_t end = std::min(text.find('\n', separator), text.size());
  status = ParseTail(test, Trim(std::string_view(text).substr(separator, end - separator)),
                     text.substr(end));
  if (!status.ok()) return error(status);
  return test;
}

std::string CanonicalText(const Model& model) {
  Model canonical;
  canonical.ir_version = model.ir_version;
  canonical.opset_imports = model.opset_imports;
  canonical.graph = Canonicaliser(*model.graph).Run();
  canonical.functions = model.functions;
  std::sort(canonical.functions.begin(), canonical.functions.end(),
            [](const Function& a, const Function& b) { return a.name < b.name; });
  return PrintModel(canonical, {.max_elements = -1, .value_infos = false});
}

std::string TextDiff(const std::string& expected, const std::string& got) {
  const std::vector<std::string> a = absl::StrSplit(expected, '\n');
  const std::vector<std::string> b = absl::StrSplit(got, '\n');
  std::string text = "expected:\n";
  for (const std::string& line : a) {
    StrAppend(&text, std::find(b.begin(), b.end(), line) == b.end() ? "- " : "  ", line, "\n");
  }
  text += "got:\n";
  for (const std::string& line : b) {
    StrAppend(&text, std::find(a.begin(), a.end(), line) == a.end() ? "+ " : "  ", line, "\n");
  }
  return text;
}

}  // namespace pagefuse
