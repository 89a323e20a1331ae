// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/pattern.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/text/text.h"
#include "pagefuse/passes/edit/op_types.h"
#include "pagefuse/passes/rewrite/canonical_pattern.h"

namespace pagefuse {
namespace {

// The opset of patterns that name none: the vocabulary that graphs are canonicalized to.
const OpsetImports& DefaultImports() {
  static const auto* imports =
      new OpsetImports{{"", kCanonicalOpset}, {"pagefuse", 1}, {"com.microsoft", 1}};
  return *imports;
}

// The end of the `<...>` header at the start of `text`, 0 if there is none. Strings may hold
// brackets.
size_t HeaderEnd(std::string_view text) {
  if (!text.starts_with("<")) return 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && quoted) {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (text[i] == '>' && !quoted) {
      return i + 1;
    }
  }
  return 0;
}

std::string_view SkipBlanks(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string_view::npos ? "" : text.substr(start);
}

// Comments and the white space after them off the front.
std::string_view SkipComments(std::string_view text) {
  text = SkipBlanks(text);
  while (text.starts_with("#")) {
    const size_t end = text.find('\n');
    text = end == std::string_view::npos ? "" : SkipBlanks(text.substr(end));
  }
  return text;
}

bool IsAttributeConstant(const Node& node) { return node.Is("Constant") && HasAttributeRef(node); }

// Ops whose result the inputs do not decide.
bool IsRandom(const Node& node) {
  return node.op_type().starts_with("Random") || node.Is("Multinomial") || node.Is("Bernoulli");
}

class Classifier {
 public:
  explicit Classifier(Pattern& pattern, const PatternSource& source,
                      const std::vector<std::string>& optional)
      : pattern_(pattern), source_(source), optional_(optional) {}

  void Run() {
    const Graph& graph = *pattern_.model.graph;
    for (const Value* input : graph.inputs()) AddInput(input);
    for (const Value* value : graph.initializers()) {
      if (!value->is_input())
        Add({.value = value, .kind = PatternKind::kConstant, .metadata = true});
    }
    for (const auto& node : graph.nodes()) AddNode(*node);
    for (const Value* output : graph.outputs()) pattern_.outputs.push_back(pattern_.id(output));
    for (const int output : pattern_.outputs) Need(output);
    Sort(pattern_.needed_types);
  }

 private:
  void Add(PatternValue value) {
    pattern_.ids[value.value] = static_cast<int>(pattern_.values.size());
    pattern_.values.push_back(std::move(value));
  }

  void AddInput(const Value* input) {
    Add({.value = input,
         .kind = PatternKind::kInput,
         .metadata = absl::c_linear_search(source_.metadata_inputs, input->name()),
         .optional = absl::c_linear_search(optional_, input->name())});
  }

  void AddNode(const Node& node) {
    PatternValue value;
    if (IsAttributeConstant(node)) {
      value.kind = PatternKind::kAttribute;
      value.metadata = true;
      value.attribute = std::get<AttributeRef>(node.attributes().front().second.value).name;
    } else {
      const bool shape = node.Is("Shape") || node.Is("Size");
      bool derived = !node.inputs().empty() && !IsRandom(node);
      value.metadata = derived;
      for (const Value* input : node.inputs()) {
        if (input == nullptr) continue;
        const PatternValue& known = pattern_.values[pattern_.id(input)];
        derived = derived && known.kind != PatternKind::kInput && known.kind != PatternKind::kNode;
        value.metadata = value.metadata && known.metadata;
      }
      value.kind = shape || derived ? PatternKind::kDerived : PatternKind::kNode;
      value.metadata = value.metadata || shape;
      if (value.kind == PatternKind::kNode) pattern_.nodes.push_back(&node);
    }
    for (const Value* output : node.outputs()) {
      if (output == nullptr) continue;
      value.value = output;
      Add(value);
    }
  }

  // Collects the types of the nodes that compute a value. A view, a Cast or an Expand may be
  // missing, and of a Slice's range only the contents count.
  void Need(int id) {
    if (pattern_[id].kind != PatternKind::kNode || !needed_.insert(id).second) return;
    const Node& node = *pattern_[id].value->producer();
    const bool elastic = IsElasticNode(node);
    if (!elastic) pattern_.needed_types.push_back(node.op_type());
    const int operands = elastic || node.Is("Slice") ? 1 : node.num_inputs();
    for (int i = 0; i < operands; ++i) {
      if (node.input(i) != nullptr) Need(pattern_.id(node.input(i)));
    }
  }

  static void Sort(std::vector<std::string>& types) {
    std::sort(types.begin(), types.end());
    types.erase(std::unique(types.begin(), types.end()), types.end());
  }

  Pattern& pattern_;
  const PatternSource& source_;
  const std::vector<std::string>& optional_;
  absl::flat_hash_set<int> needed_;
};

}  // namespace

bool IsViewNode(const Node& node) {
  return node.Is("Reshape") || node.Is("Squeeze") || node.Is("Unsqueeze") || node.Is("Flatten");
}

bool IsElasticNode(const Node& node) {
  return IsViewNode(node) || node.Is("Cast") || node.Is("Expand");
}

std::string NormaliseFunctionText(std::string_view text, std::vector<std::string>* optional) {
  text = SkipComments(text);
  const size_t header_end = HeaderEnd(text);
  const std::string header(text.substr(0, header_end));
  std::string_view rest = SkipComments(text.substr(header_end));
  std::string out = header;
  if (rest.starts_with("(") || rest.starts_with("<")) StrAppend(&out, " pattern ");
  const size_t arrow = std::min(rest.find("=>"), rest.size());
  std::string word;
  bool in_dims = false;  // where `?` is an unknown dim
  for (char c : rest.substr(0, arrow)) {
    if (c == '[' || c == ']') in_dims = c == '[';
    if (c == '?' && !in_dims) {
      if (optional != nullptr) optional->push_back(word);
      continue;
    }
    const bool part = absl::ascii_isalnum(c) || c == '_';
    // Blanks may stand between the name and its mark.
    if (part) {
      if (!out.empty() && !absl::ascii_isalnum(out.back()) && out.back() != '_') word.clear();
      word += c;
    }
    out += c;
  }
  StrAppend(&out, rest.substr(arrow));
  return out;
}

namespace {

absl::StatusOr<std::shared_ptr<const Pattern>> Compile(const PatternSource& source) {
  std::vector<std::string> optional;
  const std::string text = NormaliseFunctionText(source.text, &optional);
  absl::StatusOr<Function> parsed = ParseFunction(text);
  PF_RETURN_IF_ERROR(AtPlace(StrCat("pattern \"", source.name, "\""), parsed.status()));
  auto pattern = std::make_shared<Pattern>();
  pattern->name = source.name;
  pattern->model.graph = parsed->body;
  pattern->model.opset_imports = parsed->opset_imports;
  for (const auto& [domain, version] : DefaultImports()) {
    pattern->model.opset_imports.emplace(domain, version);
  }
  for (const auto& node : pattern->model.graph->nodes()) {
    if (!node->Subgraphs().empty()) {
      return absl::InvalidArgumentError(
          StrCat("pattern \"", source.name, "\": ", node->Description(), " has a subgraph"));
    }
  }
  PF_RETURN_IF_ERROR(CanonicalizePattern(pattern->model));
  Classifier(*pattern, source, optional).Run();
  return std::shared_ptr<const Pattern>(std::move(pattern));
}

// The texts of a source, as a key.
std::string KeyOf(const PatternSource& source) {
  std::string key = StrCat(source.name, "\n", source.text);
  for (const std::string& input : source.metadata_inputs) StrAppend(&key, "\n", input);
  return key;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Pattern>> CompilePattern(const PatternSource& source) {
  // Rules are made anew with every pipeline; their texts stay the same.
  static auto* mutex = new std::mutex;
  static auto* cache = new std::map<std::string, std::shared_ptr<const Pattern>>;
  const std::string key = KeyOf(source);
  const std::lock_guard lock(*mutex);
  const auto it = cache->find(key);
  if (it != cache->end()) return it->second;
  PF_ASSIGN_OR_RETURN(std::shared_ptr<const Pattern> pattern, Compile(source));
  return cache->emplace(key, std::move(pattern)).first->second;
}

}  // namespace pagefuse
