// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/normalizer.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include <utf8proc.h>

#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/tokenizer/growth.h"
#include "pagefuse/text/tokenizer/unicode_classes.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

struct Form {
  std::string_view name;
  int options;
};
constexpr Form kForms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

bool IsAscii(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

absl::StatusOr<std::string> NormalForm(std::string text, int options) {
  if (IsAscii(text)) return text;
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result,
                                             static_cast<utf8proc_option_t>(options));
  if (size < 0) {
    return absl::InvalidArgumentError(StrCat("no normal form: ", utf8proc_errmsg(size)));
  }
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> freed(result, &std::free);
  return std::string(reinterpret_cast<const char*>(result), size);
}

// Without white space at its ends.
std::string Strip(std::string_view text, bool left, bool right) {
  size_t first = 0, end = text.size(), kept = 0;
  bool begun = !left;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const bool space = WhiteSpace().Contains(NextCodePoint(text, at));
    if (!begun && !space) first = start;
    begun = begun || !space;
    if (!space) kept = at;
  }
  if (!begun) first = text.size();
  if (right) end = std::max(first, kept);
  return std::string(text.substr(first, end - first));
}

}  // namespace

absl::StatusOr<Normalizer::Step> Normalizer::ReadStep(const JsonFields& part) {
  PF_ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
  for (const Form& form : kForms) {
    if (type == form.name) return Step{.kind = Step::kNormalForm, .form = form.options};
  }
  Step step{};
  if (type == "Replace") {
    step.kind = Step::kReplace;
    PF_ASSIGN_OR_RETURN(const JsonFields pattern, part.Object("pattern"));
    PF_ASSIGN_OR_RETURN(step.pattern, TextPattern::FromJson(pattern));
    PF_ASSIGN_OR_RETURN(step.content, part.Text("content"));
    return step;
  }
  if (type == "Prepend") {
    step.kind = Step::kPrepend;
    PF_ASSIGN_OR_RETURN(step.content, part.Text("prepend"));
    return step;
  }
  if (type == "Strip") {
    step.kind = Step::kStrip;
    PF_ASSIGN_OR_RETURN(step.left, part.Flag("strip_left", false));
    PF_ASSIGN_OR_RETURN(step.right, part.Flag("strip_right", false));
    return step;
  }
  return part.UnknownType("Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip");
}

absl::StatusOr<Normalizer> Normalizer::FromJson(const nlohmann::json& json) {
  Normalizer normalizer;
  PF_ASSIGN_OR_RETURN(const auto parts, SequenceOf(json, "normalizer", "normalizers"));
  for (const JsonFields& part : parts) {
    PF_ASSIGN_OR_RETURN(normalizer.steps_.emplace_back(), ReadStep(part));
  }
  return normalizer;
}

absl::StatusOr<std::string> Normalizer::Apply(const Step& step, std::string text, size_t most) {
  switch (step.kind) {
    case Step::kNormalForm:
      return NormalForm(std::move(text), step.form);
    case Step::kReplace:
      return step.pattern.ReplaceAll(text, step.content, most);
    case Step::kPrepend:
      return text.empty() ? text : step.content + text;
    case Step::kStrip:
      return Strip(text, step.left, step.right);
  }
  return text;
}

absl::StatusOr<std::string> Normalizer::Apply(std::string_view text) const {
  std::string out(text);
  Growth growth(text.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const std::string place = StrCat("normalizer: step ", i);
    auto next = Apply(steps_[i], std::move(out), growth.most());
    PF_RETURN_IF_ERROR(AtPlace(place, next.status()));
    out = *std::move(next);
    PF_RETURN_IF_ERROR(growth.Add(out.size(), place));
  }
  return out;
}

}  // namespace pagefuse
