// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/op_text.h"

#include <algorithm>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/ops/evaluate/evaluate.h"
#include "pagefuse/ops/infer/body_inference.h"
#include "pagefuse/ops/registry/refused_ops.h"
#include "pagefuse/ops/registry/registry.h"
#include "pagefuse/ops/schema/port_checks.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/rewrite/text/op_ports.h"
#include "pagefuse/passes/rewrite/text/rule_sections.h"
#include "pagefuse/passes/rewrite/written_ops.h"

namespace pagefuse {
namespace {

const std::vector<std::string>& OpKeys() {
  static const auto* keys =
      new std::vector<std::string>{"types", "in-place", "alias", "view", "metadata", "elementwise"};
  return *keys;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (absl::string_view part : absl::StrSplit(AbslView(text), separator)) {
    parts.push_back(Trim(StdView(part)));
  }
  return parts;
}

// Domains that plug-ins have no ops in: those of the standard, ours, and the one that parts of
// patterns are called in.
bool IsTaken(std::string_view domain) {
  return domain.empty() || domain == "either" || domain == "pagefuse" ||
         domain.starts_with("pagefuse.") || domain == "ai.onnx" || domain.starts_with("ai.onnx.");
}

// One of an op's functions.
struct Form {
  std::vector<int> without;  // inputs
  Function function;
  std::string plain;      // what the text parser reads
  std::string_view text;  // as it stands in the file
};

// What stands under an op: its ports, and its functions, the main one last.
struct Bodies {
  TextHead head;
  std::vector<Form> forms;
};

absl::StatusOr<Function> ParseFunctionAt(const std::string& plain, std::string_view text,
                                         const PlaceError& error) {
  absl::StatusOr<Function> function = ParsePlainFunction(plain);
  if (function.ok()) return function;
  return ParserError(StdView(function.status().message()), text, plain.size() - text.size(), error);
}

// What a further function of the op means by the names of domains, on the line that it starts in.
std::string HeaderOf(const Function& main) {
  std::string imports;
  for (const auto& [domain, version] : main.opset_imports) {
    StrAppend(&imports, imports.empty() ? "" : ", ", "\"", domain, "\" : ", version);
  }
  return StrCat("<domain: \"", main.domain, "\", opset_import: [", imports, "]> ", main.name, " ");
}

class BodiesReader {
 public:
  BodiesReader(const OpParts& parts, const PlaceError& error) : parts_(parts), error_(error) {}

  absl::StatusOr<Bodies> Read() {
    PF_ASSIGN_OR_RETURN(bodies_.head, ReadHead(parts_.text, error_));
    Form main{.without = {}, .function = {}, .plain = bodies_.head.plain, .text = parts_.text};
    PF_ASSIGN_OR_RETURN(main.function, ParseFunctionAt(main.plain, main.text, error_));
    main.function.opset_imports.emplace("", kNewestOpset);
    for (const RuleSection& section : parts_.sections) {
      PF_ASSIGN_OR_RETURN(bodies_.forms.emplace_back(), ReadForm(section, main.function));
    }
    bodies_.forms.push_back(std::move(main));
    return std::move(bodies_);
  }

 private:
  // `# ---- without: bias`
  absl::StatusOr<Form> ReadForm(const RuleSection& section, const Function& main) const {
    Form form{.without = {}, .function = {}, .plain = {}, .text = section.text};
    for (const std::string_view name : Split(section.name, ',')) {
      const int input = PlaceOf(bodies_.head.inputs, name);
      if (input < 0 || !bodies_.head.inputs[static_cast<size_t>(input)].is_optional) {
        return error_(section.name, StrCat("there is no optional input \"", name, "\""));
      }
      form.without.push_back(input);
    }
    form.plain = StrCat(HeaderOf(main), section.text);
    PF_ASSIGN_OR_RETURN(form.function, ParseFunctionAt(form.plain, form.text, error_));
    form.function.defaults = main.defaults;
    PF_RETURN_IF_ERROR(CheckPorts(form));
    return form;
  }

  absl::Status CheckPorts(const Form& form) const {
    const Graph& body = *form.function.body;
    for (const Value* input : body.inputs()) {
      const int port = PlaceOf(bodies_.head.inputs, input->name());
      const bool left_out = std::ranges::find(form.without, port) != form.without.end();
      if (port >= 0 && !left_out) continue;
      return error_(form.text, StrCat("\"", input->name(), "\" is ",
                                      left_out ? "left out" : "no input of the op"));
    }
    bool all = body.outputs().size() == bodies_.head.outputs.size();
    for (const Value* output : body.outputs()) {
      all = all && PlaceOf(bodies_.head.outputs, output->name()) >= 0;
    }
    return all ? absl::OkStatus() : error_(form.text, "expected the outputs of the op");
  }

  const OpParts& parts_;
  const PlaceError& error_;
  Bodies bodies_;
};

bool LeavesOut(const Form& form, const Node& call) {
  return std::ranges::all_of(form.without,
                             [&call](int input) { return call.input(input) == nullptr; });
}

// One op of a file.
class Builder {
 public:
  Builder(const OpParts& parts, const PlaceError& error) : parts_(parts), error_(error) {}

  absl::StatusOr<TextOp> Build() {
    PF_ASSIGN_OR_RETURN(Bodies bodies, BodiesReader(parts_, error_).Read());
    head_ = std::move(bodies.head);
    const Function& function = bodies.forms.back().function;
    PF_ASSIGN_OR_RETURN(const std::string domain, Domain(function));
    TextOp op{.def = OpDef(domain, function.name, /*since=*/1)};
    op.def.Doc(parts_.doc);
    for (const RuleKey& key : parts_.keys) PF_RETURN_IF_ERROR(AddKey(key, op));
    PF_RETURN_IF_ERROR(AddPorts(op.def));
    PF_RETURN_IF_ERROR(AddAttributes(function, op.def));
    AddBodies(std::move(bodies.forms), op.def);
    const absl::Status compiled = op.def.Compile();
    if (!compiled.ok()) return error_(parts_.name, StdView(compiled.message()));
    return op;
  }

 private:
  // Checks the op's name.
  absl::StatusOr<std::string> Domain(const Function& function) const {
    const size_t dot = parts_.name.rfind('.');
    if (dot == std::string_view::npos) {
      return error_(parts_.name, "expected the op's domain before its name, as in acme.Scale");
    }
    const std::string domain(parts_.name.substr(0, dot));
    if (IsTaken(domain)) {
      return error_(parts_.name,
                    StrCat("domain \"", domain, "\" is not one that plug-ins may add ops to"));
    }
    if (function.name != parts_.name.substr(dot + 1)) {
      return error_(parts_.name, StrCat("the function below is called \"", function.name, "\""));
    }
    if (!function.domain.empty() && function.domain != domain) {
      return error_(parts_.name,
                    StrCat("the function below is of domain \"", function.domain, "\""));
    }
    return domain;
  }

  absl::Status AddKey(const RuleKey& key, TextOp& op) const {
    if (key.key == "types") return AddTypes(key.value, op.def);
    if (key.key == "elementwise") {
      op.elementwise = true;
      return CheckElementwise(key);
    }
    if (key.key == "metadata") return CheckMetadata(key.value);
    if (key.key == "in-place" || key.key == "alias" || key.key == "view") {
      return AddSharedMemory(key, op.def);
    }
    return error_(key.key,
                  StrCat("there is no key \"", key.key, "\"", SimilarNames(key.key, OpKeys())));
  }

  // IsMetadata reads it.
  absl::Status CheckMetadata(std::string_view value) const {
    for (const std::string_view name : Split(value, ',')) {
      PF_RETURN_IF_ERROR(Port(head_.inputs, "input", name).status());
    }
    return absl::OkStatus();
  }

  // "T in float, float16"
  absl::Status AddTypes(std::string_view value, OpDef& def) const {
    const size_t in = value.find(" in ");
    const std::string_view variable = Trim(value.substr(0, in));
    if (in == std::string_view::npos || variable.find(' ') != std::string_view::npos) {
      return error_(value, "expected \"VARIABLE in TYPE, TYPE, ...\"");
    }
    std::vector<DataType> types;
    for (const std::string_view name : Split(value.substr(in + 4), ',')) {
      const std::optional<DataType> type = DataTypeFromName(name);
      if (!type) return error_(name, StrCat("there is no type \"", name, "\""));
      types.push_back(*type);
    }
    def.Types(variable, std::move(types));
    return absl::OkStatus();
  }

  absl::Status CheckElementwise(const RuleKey& key) const {
    if (!key.value.empty() && key.value != "yes")
      return error_(key.value, "expected nothing, or yes");
    if (head_.outputs.size() == 1) return absl::OkStatus();
    return error_(key.key, "an elementwise op has one output");
  }

  absl::StatusOr<int> Port(const std::vector<TextPort>& ports, std::string_view what,
                           std::string_view name) const {
    const int index = PlaceOf(ports, name);
    if (index >= 0) return index;
    std::vector<std::string> names;
    for (const TextPort& port : ports) names.emplace_back(port.name);
    return error_(name, StrCat("there is no ", what, " \"", name, "\"", SimilarNames(name, names)));
  }

  // "y = x", several with commas.
  absl::Status AddSharedMemory(const RuleKey& key, OpDef& def) const {
    for (const std::string_view pair : Split(key.value, ',')) {
      const size_t equals = pair.find('=');
      if (equals == std::string_view::npos) return error_(pair, "expected \"OUTPUT = INPUT\"");
      PF_ASSIGN_OR_RETURN(const int output,
                          Port(head_.outputs, "output", Trim(pair.substr(0, equals))));
      PF_ASSIGN_OR_RETURN(const int input,
                          Port(head_.inputs, "input", Trim(pair.substr(equals + 1))));
      if (key.key == "in-place") def.InPlace(output, input);
      if (key.key == "alias") def.Alias(output, input);
      if (key.key == "view") def.View(output, input);
    }
    return absl::OkStatus();
  }

  bool IsMetadata(std::string_view name) const {
    return std::ranges::any_of(parts_.keys, [&](const RuleKey& key) {
      if (key.key != "metadata") return false;
      const std::vector<std::string_view> names = Split(key.value, ',');
      return std::ranges::find(names, name) != names.end();
    });
  }

  absl::StatusOr<pagefuse::Port> MakePort(const TextPort& port) const {
    if (port.type.empty() && !port.shape.empty()) {
      return error_(port.shape, "a port with dims has a type, as in T[N]");
    }
    return pagefuse::Port{.name = std::string(port.name),
                          .type = std::string(port.type),
                          .shape = std::string(port.shape),
                          .kind = port.is_optional ? PortKind::kOptional : PortKind::kRequired,
                          .role = IsMetadata(port.name) ? PortRole::kMetadata : PortRole::kData,
                          .is_checked = !port.type.empty()};
  }

  absl::Status AddPorts(OpDef& def) const {
    for (const TextPort& port : head_.inputs) {
      PF_ASSIGN_OR_RETURN(pagefuse::Port made, MakePort(port));
      def.Input(std::move(made));
    }
    for (const TextPort& port : head_.outputs) {
      PF_ASSIGN_OR_RETURN(pagefuse::Port made, MakePort(port));
      def.Output(std::move(made));
    }
    return absl::OkStatus();
  }

  absl::Status AddAttributes(const Function& function, OpDef& def) const {
    for (const std::string& name : function.attributes) def.RequiredAttr(name);
    for (const auto& [name, attribute] : function.defaults) {
      const std::optional<AttributeDef::Default> value = DefaultOf(attribute);
      if (!value) {
        return error_(
            parts_.name,
            StrCat("attribute \"", name, "\": expected an int, a float, a string, ints or floats"));
      }
      def.Attr(name, *value);
    }
    return absl::OkStatus();
  }

  void AddBodies(std::vector<Form> forms, OpDef& def) const {
    OpBody body;
    for (const TextPort& port : head_.inputs) body.inputs.emplace_back(port.name);
    for (const TextPort& port : head_.outputs) {
      body.outputs.emplace_back(port.name);
      body.typed.push_back(!port.type.empty());
    }
    // What graphs are looked through for: the whole one first, of which the others are parts.
    std::vector<DecompositionForm> texts;
    for (const Form& form : forms) {
      std::string name;
      for (const int input : form.without) {
        StrAppend(&name, name.empty() ? "without " : ", ", body.inputs[static_cast<size_t>(input)]);
      }
      texts.push_back({.name = std::move(name), .text = form.plain});
    }
    std::reverse(texts.begin(), texts.end());
    def.Forms(std::move(texts));
    def.Decomposition([forms](const Node& call) {
      const auto form = std::find_if(forms.begin(), forms.end() - 1,
                                     [&call](const Form& one) { return LeavesOut(one, call); });
      return form->plain;
    });
    for (Form& form : forms) {
      body.forms.push_back({std::move(form.without), std::move(form.function)});
    }
    def.InferShapes([body = std::move(body)](ShapeContext& c) { return InferByBody(body, c); });
  }

  static std::optional<AttributeDef::Default> DefaultOf(const Attribute& attribute) {
    return std::visit(
        [](const auto& value) -> std::optional<AttributeDef::Default> {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, float> ||
                        std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<int64_t>> ||
                        std::is_same_v<T, std::vector<float>>) {
            return AttributeDef::Default(value);
          } else {
            return std::nullopt;
          }
        },
        attribute.value);
  }

  const OpParts& parts_;
  const PlaceError& error_;
  TextHead head_;
};

// Checks the body of one op.
class BodyCheck {
 public:
  // `later`: ops that the body may not call, itself among them.
  BodyCheck(const Function& function, std::string_view text, std::set<std::string> later,
            const PlaceError& error)
      : function_(function), text_(text), later_(std::move(later)), error_(error) {}

  absl::Status Nodes(const Graph& graph) const {
    for (const auto& node : graph.nodes()) {
      PF_RETURN_IF_ERROR(Check(*node));
      for (const Graph* subgraph : node->Subgraphs()) PF_RETURN_IF_ERROR(Nodes(*subgraph));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Node& node) const {
    const auto import = function_.opset_imports.find(node.domain());
    const int64_t opset = import == function_.opset_imports.end() ? 1 : import->second;
    const OpRegistry& ops = OpRegistry::Global();
    if (later_.contains(StrCat(node.domain(), ".", node.op_type()))) {
      return error_(PlaceOfNode(node, text_),
                    "a body may call ops that are declared above it alone");
    }
    if (ops.Find(node.domain(), node.op_type(), opset) != nullptr) return absl::OkStatus();
    return error_(PlaceOfNode(node, text_), StdView(UnknownOp(node, opset, ops).message()));
  }

  const Function& function_;
  std::string_view text_;
  std::set<std::string> later_;
  const PlaceError& error_;
};

}  // namespace

absl::StatusOr<std::vector<TextOp>> ParseOps(const RuleFile& file) {
  const PlaceError error = ErrorsIn(file.path, file.text);
  PF_ASSIGN_OR_RETURN(const TextParts parts, CutText(file.text, error));
  std::vector<TextOp> ops;
  for (const OpParts& one : parts.ops) {
    PF_ASSIGN_OR_RETURN(TextOp op, Builder(one, error).Build());
    ops.push_back(std::move(op));
  }
  return ops;
}

absl::Status CheckBodies(const RuleFile& file) {
  const PlaceError error = ErrorsIn(file.path, file.text);
  PF_ASSIGN_OR_RETURN(const TextParts parts, CutText(file.text, error));
  std::set<std::string> later;
  for (const OpParts& one : parts.ops) later.emplace(one.name);
  for (const OpParts& one : parts.ops) {
    PF_ASSIGN_OR_RETURN(const Bodies bodies, BodiesReader(one, error).Read());
    for (const Form& form : bodies.forms) {
      const BodyCheck check(form.function, form.text, later, error);
      PF_RETURN_IF_ERROR(check.Nodes(*form.function.body));
    }
    later.erase(std::string(one.name));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
