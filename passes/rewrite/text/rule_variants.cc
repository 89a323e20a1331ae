// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/rule_variants.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/graph_snapshot.h"
#include "pagefuse/passes/edit/similar_names.h"
#include "pagefuse/passes/rewrite/pattern.h"
#include "pagefuse/passes/rewrite/text/rule_text.h"

namespace pagefuse {
namespace {

constexpr std::string_view kParts = "either";  // domain of calls of parts
constexpr std::string_view kName = "pattern ";

// Marks of optional inputs become blanks, so that places stay what they are.
std::string WithoutMarks(std::string_view text) {
  std::string plain(text);
  const size_t arrow = std::min(plain.find("=>"), plain.size());
  bool in_dims = false;
  for (size_t i = 0; i < arrow; ++i) {
    if (plain[i] == '[' || plain[i] == ']') in_dims = plain[i] == '[';
    if (plain[i] == '?' && !in_dims) plain[i] = ' ';
  }
  return plain;
}

// Where the function starts: behind comments and blanks.
size_t StartOf(std::string_view text) {
  size_t at = text.find_first_not_of(" \t\r\n");
  while (at != std::string_view::npos && text[at] == '#') {
    at = text.find('\n', at);
    if (at != std::string_view::npos) at = text.find_first_not_of(" \t\r\n", at);
  }
  return std::min(at, text.size());
}

absl::StatusOr<Function> Parse(std::string_view text, const PlaceError& error) {
  const std::string_view body = text.substr(StartOf(text));
  const bool named = !body.starts_with("(") && !body.starts_with("<");
  const std::string whole = StrCat(named ? "" : kName, WithoutMarks(body));
  // A header stands before the name, which then has to be put behind it.
  absl::StatusOr<Function> parsed = body.starts_with("<")
                                        ? ParseFunction(NormaliseFunctionText(body, nullptr))
                                        : ParseFunction(whole);
  if (parsed.ok()) return parsed;
  return ParserError(StdView(parsed.status().message()), body, named ? 0 : kName.size(), error);
}

bool IsPart(const Node& node) { return node.domain() == kParts; }

struct Part {
  std::string_view name;
  std::shared_ptr<Graph> body;
};
using Parts = std::map<std::string, std::vector<Part>, std::less<>>;
using Choice = std::map<std::string, size_t, std::less<>>;

// Copies a graph with the chosen bodies in place of the calls of parts.
class Expander {
 public:
  Expander(const Parts& parts, const Choice& choice) : parts_(parts), choice_(choice) {}

  std::string Lines(const Graph& graph) {
    Graph::ValueMap map;
    for (const Value* input : graph.inputs()) {
      map[input] = to_.AddInput(input->name(), input->dtype(), input->shape());
    }
    for (const Value* value : graph.values()) {
      if (!map.contains(value)) map[value] = to_.AddValue(value->name());
    }
    for (const auto& node : graph.nodes()) {
      if (IsPart(*node)) {
        PutIn(*node, map);
      } else {
        Copy(*node, map);
      }
    }
    std::string lines;
    for (const auto& node : to_.nodes()) StrAppend(&lines, "  ", NodeLine(*node), "\n");
    return lines;
  }

 private:
  void PutIn(const Node& call, Graph::ValueMap& outer) {
    const Graph& body = *parts_.find(call.op_type())->second[choice_.at(call.op_type())].body;
    Graph::ValueMap map;
    for (int i = 0; i < static_cast<int>(body.inputs().size()); ++i) {
      map[body.inputs()[i]] = call.input(i) == nullptr ? nullptr : outer.at(call.input(i));
    }
    for (int i = 0; i < call.num_outputs(); ++i) {
      if (call.output(i) != nullptr) map[body.outputs()[i]] = outer.at(call.output(i));
    }
    const std::string prefix = call.output(0)->name();
    for (const Value* value : body.values()) {
      if (map.contains(value)) continue;
      const bool is_free = to_.FindValue(value->name()) == nullptr;
      map[value] = to_.AddValue(is_free ? std::string(value->name())
                                        : to_.UniqueName(StrCat(prefix, "_", value->name())));
    }
    for (const auto& node : body.nodes()) Copy(*node, map);
  }

  void Copy(const Node& node, Graph::ValueMap& map) {
    std::vector<Value*> inputs, outputs;
    for (const Value* input : node.inputs()) inputs.push_back(input ? map.at(input) : nullptr);
    for (const Value* output : node.outputs()) outputs.push_back(output ? map.at(output) : nullptr);
    Node* copy = to_.AddNode(node.domain(), node.op_type(), inputs, outputs);
    for (const auto& [name, attribute] : node.attributes()) {
      copy->SetAttribute(name, Graph::CloneAttribute(attribute, &to_, map));
    }
  }

  const Parts& parts_;
  const Choice& choice_;
  Graph to_;
};

class Speller {
 public:
  Speller(const RuleParts& rule, const PlaceError& error) : rule_(rule), error_(error) {}

  absl::StatusOr<std::vector<Variant>> Run() {
    PF_RETURN_IF_ERROR(ReadParts());
    if (!IsBlankText(rule_.pattern)) PF_RETURN_IF_ERROR(Add(rule_.pattern, ""));
    for (const RuleSection& section : rule_.sections) {
      if (section.kind == "or") PF_RETURN_IF_ERROR(Add(section.text, section.name));
    }
    for (const auto& [name, variants] : parts_) {
      if (used_[name] || shared_.contains(name)) continue;
      return error_(titles_.find(name)->second, StrCat("no text has either.", name));
    }
    return std::move(variants_);
  }

 private:
  absl::Status ReadParts() {
    for (const RuleSection& section : rule_.sections) {
      if (section.kind != "either") continue;
      PF_ASSIGN_OR_RETURN(Function part, Parse(section.text, error_));
      std::vector<Part>& variants = parts_[std::string(section.part)];
      if (section.is_shared) shared_.emplace(section.part);
      titles_.emplace(section.part, section.title);
      const Graph& body = *part.body;
      for (const Value* output : body.outputs()) {
        if (output->producer() != nullptr) continue;
        return error_(section.text, "an output of a part that is one of its inputs");
      }
      if (!variants.empty() && (variants[0].body->inputs().size() != body.inputs().size() ||
                                variants[0].body->outputs().size() != body.outputs().size())) {
        return error_(section.text, StrCat("forms of \"", section.part,
                                           "\" have different numbers of inputs or outputs"));
      }
      variants.push_back({section.name, part.body});
    }
    return absl::OkStatus();
  }

  // The place of a call in the text.
  static std::string_view PlaceOf(std::string_view text, const Node& call) {
    const size_t at = text.find(StrCat(kParts, ".", call.op_type()));
    return at == std::string_view::npos ? text : text.substr(at);
  }

  absl::StatusOr<std::vector<std::string>> CheckCalls(std::string_view text, const Graph& graph) {
    std::vector<std::string> names, known;
    for (const auto& [name, variants] : parts_) known.push_back(name);
    for (const auto& node : graph.nodes()) {
      if (!IsPart(*node)) continue;
      const auto part = parts_.find(node->op_type());
      if (part == parts_.end()) {
        return error_(PlaceOf(text, *node), StrCat("there is no part \"", node->op_type(), "\"",
                                                   SimilarNames(node->op_type(), known)));
      }
      const Graph& body = *part->second.front().body;
      if (node->num_inputs() != static_cast<int>(body.inputs().size()) ||
          node->num_outputs() != static_cast<int>(body.outputs().size())) {
        return error_(PlaceOf(text, *node),
                      StrCat("part \"", node->op_type(), "\" has ", body.inputs().size(),
                             " inputs and ", body.outputs().size(), " outputs, the call ",
                             node->num_inputs(), " and ", node->num_outputs()));
      }
      used_[node->op_type()] = true;
      if (std::ranges::find(names, node->op_type()) == names.end()) {
        names.push_back(node->op_type());
      }
    }
    return names;
  }

  absl::Status Add(std::string_view text, std::string_view name) {
    PF_ASSIGN_OR_RETURN(const Function function, Parse(text, error_));
    PF_ASSIGN_OR_RETURN(const std::vector<std::string> names, CheckCalls(text, *function.body));
    if (names.empty()) {
      variants_.push_back({std::string(name), std::string(text), {}});
      return CheckNumber(text);
    }
    const std::string head(text.substr(0, text.find('{', text.find("=>"))));
    Choice choice;
    for (const std::string& part : names) choice[part] = 0;
    while (true) {
      Variant variant{.name = std::string(name), .text = {}, .parts = {}};
      for (const std::string& part : names) {
        const std::string_view chosen = parts_.find(part)->second[choice[part]].name;
        StrAppend(&variant.name, variant.name.empty() ? "" : " ", chosen);
        variant.parts.emplace_back(part, chosen);
      }
      variant.text = StrCat(head, "{\n", Expander(parts_, choice).Lines(*function.body), "}");
      variants_.push_back(std::move(variant));
      PF_RETURN_IF_ERROR(CheckNumber(text));
      if (!Advance(names, choice)) return absl::OkStatus();
    }
  }

  // The next choice, the last part the fastest; false behind the last one.
  bool Advance(const std::vector<std::string>& names, Choice& choice) const {
    for (auto part = names.rbegin(); part != names.rend(); ++part) {
      if (++choice[*part] < parts_.find(*part)->second.size()) return true;
      choice[*part] = 0;
    }
    return false;
  }

  absl::Status CheckNumber(std::string_view text) const {
    if (static_cast<int>(variants_.size()) <= kMaxVariants) return absl::OkStatus();
    return error_(text, StrCat("more than ", kMaxVariants, " forms"));
  }

  const RuleParts& rule_;
  const PlaceError& error_;
  Parts parts_;
  std::map<std::string, std::string_view, std::less<>> titles_;
  std::map<std::string, bool> used_;
  std::set<std::string, std::less<>> shared_;  // parts that a rule may do without
  std::vector<Variant> variants_;
};

}  // namespace

absl::StatusOr<Function> ParseFunctionText(std::string_view text, const PlaceError& error) {
  return Parse(text, error);
}

absl::Status CheckFunctionText(std::string_view text, const PlaceError& error, TextNames* names) {
  PF_ASSIGN_OR_RETURN(const Function function, Parse(text, error));
  if (names == nullptr) return absl::OkStatus();
  for (const Value* value : function.body->values()) names->values.push_back(value->name());
  for (const auto& node : function.body->nodes()) {
    for (const auto& [name, attribute] : node->attributes()) {
      const auto* reference = std::get_if<AttributeRef>(&attribute.value);
      if (reference != nullptr) names->attributes.push_back(reference->name);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Variant>> VariantsOf(const RuleParts& rule, const PlaceError& error) {
  return Speller(rule, error).Run();
}

}  // namespace pagefuse
