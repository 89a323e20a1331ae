// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/template_trial.h"

#include "pagefuse/text/answer/source_words.h"

namespace pagefuse {
namespace {

using nlohmann::ordered_json;

constexpr const char* kTrialTool = "trial_tool";

ordered_json TrialTools() {
  const ordered_json properties = {{"trial_key", {{"type", "string"}, {"description", "A key."}}}};
  const ordered_json parameters = {
      {"type", "object"}, {"properties", properties}, {"required", {"trial_key"}}};
  return ordered_json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kTrialTool}, {"description", "A tool."}, {"parameters", parameters}}}}});
}

}  // namespace

TemplateTrial::TemplateTrial(std::string_view source) {
  if (source.empty()) return;
  auto parsed = ChatTemplate::Parse(source);
  if (parsed.ok()) template_ = *std::move(parsed);
}

std::string TemplateTrial::Rendered(const ordered_json& messages) const {
  if (template_ == nullptr) return "";
  const ordered_json own = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const ordered_json given = {
      {"messages", messages}, {"tools", TrialTools()}, {"add_generation_prompt", true}};
  auto rendered = template_->Render(own, given, /*now=*/0);
  return rendered.ok() ? std::move(rendered->text) : "";
}

bool TemplateTrial::TakesTools() const {
  const ordered_json user = {{"role", "user"}, {"content", "A question."}};
  const ordered_json system = {{"role", "system"}, {"content", "A rule."}};
  return Mentions(Rendered(ordered_json::array({user})), kTrialTool) ||
         Mentions(Rendered(ordered_json::array({system, user})), kTrialTool);
}

}  // namespace pagefuse
