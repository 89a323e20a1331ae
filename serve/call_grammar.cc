// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/serve/call_grammar.h"

#include <algorithm>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/grammar_row.h"
#include "pagefuse/serve/parameter_texts.h"
#include "pagefuse/text/grammar/grammar_state.h"

namespace pagefuse::serve {
namespace {

using Schema = nlohmann::ordered_json;
using GrammarOr = absl::StatusOr<Grammar::Ptr>;

// Arguments are an object, whatever else the schema would take.
GrammarOr ObjectGrammar(Schema schema) {
  const auto has = [&schema](const char* keyword) { return schema.contains(keyword); };
  const bool is_other = !schema.is_object() || has("$ref") || has("anyOf") || has("allOf");
  const bool takes_objects =
      !is_other && (!has("type") || (schema["type"].is_array() &&
                                     std::ranges::count(schema["type"], Schema("object")) > 0));
  if (takes_objects) schema["type"] = "object";
  PF_ASSIGN_OR_RETURN(Grammar::Ptr grammar, Grammar::OfJsonSchema(schema));
  if (GrammarState(grammar).NextBytes() == "'{'") return grammar;
  return absl::InvalidArgumentError("expected a schema of objects, got one of other values");
}

GrammarOr ArgumentsGrammar(const CallText& text, const ToolRules& tool) {
  const Schema none = {
      {"type", "object"}, {"properties", Schema::object()}, {"additionalProperties", false}};
  const Schema& schema = tool.parameters.is_null() ? none : tool.parameters;
  if (text.syntax == ArgumentSyntax::kTextParameters) {
    return tool.any_arguments ? AnyParametersGrammar(text.parameter)
                              : ParametersGrammar(text.parameter, schema);
  }
  return tool.any_arguments ? Grammar::OfAnyJsonObject() : ObjectGrammar(schema);
}

GrammarOr CallOf(const CallText& text, const ToolRules& tool) {
  GrammarOr arguments = ArgumentsGrammar(text, tool);
  if (!arguments.ok()) {
    return AtPlace(StrCat("tool \"", tool.name, "\""), arguments.status());
  }
  return InRow({Grammar::OfText(StrCat(text.before_name, tool.name, text.before_arguments)),
                arguments, Grammar::OfText(text.after_arguments)});
}

// One call or more behind `skipped` bytes of what opens them.
GrammarOr CallsFrom(const CallText& text, std::span<const ToolRules> tools, bool several,
                    size_t skipped) {
  std::vector<Grammar::Ptr> ways;
  for (const ToolRules& tool : tools) {
    PF_ASSIGN_OR_RETURN(ways.emplace_back(), CallOf(text, tool));
  }
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr call, Grammar::AnyOf(ways));
  PF_ASSIGN_OR_RETURN(Grammar::Ptr more, InRow({Grammar::OfText(text.separator), call}));
  PF_ASSIGN_OR_RETURN(more, Grammar::Repeat(more, 0, several ? -1 : 0));
  if (skipped <= text.opening.size()) {
    return InRow(
        {Grammar::OfText(text.opening.substr(skipped)), call, more, Grammar::OfText(text.closing)});
  }
  // The mark reaches into the call.
  skipped -= text.opening.size();
  CallText first = text;
  first.before_name = text.before_name.substr(std::min(skipped, text.before_name.size()));
  std::vector<Grammar::Ptr> firsts;
  for (const ToolRules& tool : tools) {
    PF_ASSIGN_OR_RETURN(firsts.emplace_back(), CallOf(first, tool));
  }
  return InRow({Grammar::AnyOf(firsts), more, Grammar::OfText(text.closing)});
}

}  // namespace

bool BindsArguments(const ToolFormat& format, const ToolRules& tool) {
  return ArgumentsGrammar(format.text, tool).ok();
}

absl::StatusOr<Grammar::Ptr> CallsGrammar(const ToolFormat& format,
                                          std::span<const ToolRules> tools, bool several) {
  return CallsFrom(format.text, tools, several, 0);
}

absl::StatusOr<Grammar::Ptr> TextOrCallsGrammar(const ToolFormat& format,
                                                std::span<const ToolRules> tools, bool several) {
  const std::string_view mark =
      format.section_begin.empty() ? format.call_begin : format.section_begin;
  const std::string written = StrCat(format.text.opening, format.text.before_name);
  if (mark.empty() || !written.starts_with(mark)) return Grammar::Ptr();
  PF_ASSIGN_OR_RETURN(const Grammar::Ptr text, Grammar::TextWithout(mark));
  PF_ASSIGN_OR_RETURN(
      const Grammar::Ptr calls,
      InRow({Grammar::Until(mark), CallsFrom(format.text, tools, several, mark.size())}));
  return Grammar::AnyOf({text, calls});
}

}  // namespace pagefuse::serve
