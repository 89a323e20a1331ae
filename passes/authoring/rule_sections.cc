#include "pagefuse/passes/authoring/rule_sections.h"

#include <algorithm>

#include "absl/strings/ascii.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/similar_names.h"

namespace pagefuse {
namespace {

std::string_view Trim(std::string_view text) {
  return StdView(absl::StripAsciiWhitespace(AbslView(text)));
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

constexpr std::string_view kSeparator = "# ----";

// Key and value of a line; no key for any other.
RuleKey KeyOf(std::string_view line) {
  if (!line.starts_with("# ") || line.starts_with(kSeparator)) return {};
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return {};
  const std::string_view key = line.substr(2, colon - 2);
  const bool word = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || c == '-';
  });
  return word ? RuleKey{key, Trim(line.substr(colon + 1))} : RuleKey{};
}

bool StartsRule(std::string_view line) { return KeyOf(line).key == "rule"; }

// The text from the start of `first` to the start of `last`, both of one text.
std::string_view Between(std::string_view first, const char* last) {
  return {first.data(), static_cast<size_t>(last - first.data())};
}

class Cutter {
 public:
  Cutter(std::string_view text, const PlaceError& error)
      : text_(text), lines_(Lines(text)), error_(error) {}

  absl::StatusOr<std::vector<RuleParts>> Cut() {
    std::vector<RuleParts> rules;
    size_t line = Skip(0);
    PF_RETURN_IF_ERROR(CutSharedParts(line));
    while (line < lines_.size()) {
      if (!StartsRule(lines_[line])) {
        return error_(lines_[line], "expected \"# rule: NAME\" before anything else");
      }
      PF_ASSIGN_OR_RETURN(RuleParts rule, CutRule(line));
      rules.push_back(std::move(rule));
    }
    if (rules.empty()) return error_(text_, "expected \"# rule: NAME\"");
    return rules;
  }

 private:
  // Past blank lines and comments that are no rule and no section.
  size_t Skip(size_t line) const {
    while (line < lines_.size() && !StartsRule(lines_[line]) &&
           !lines_[line].starts_with(kSeparator) &&
           (Trim(lines_[line]).empty() || lines_[line].starts_with("#"))) {
      ++line;
    }
    return line;
  }

  absl::Status CutSharedParts(size_t& line) {
    while (line < lines_.size() && lines_[line].starts_with(kSeparator)) {
      PF_ASSIGN_OR_RETURN(RuleSection section, CutSection(line));
      if (section.kind != "either") {
        return error_(section.title, "expected \"# rule: NAME\" before anything but parts");
      }
      section.is_shared = true;
      shared_.push_back(section);
    }
    return absl::OkStatus();
  }

  // Comments right above a line.
  std::string DescriptionAbove(size_t line) const {
    size_t first = line;
    while (first > 0 && lines_[first - 1].starts_with("#") &&
           KeyOf(lines_[first - 1]).key.empty() && !lines_[first - 1].starts_with(kSeparator)) {
      --first;
    }
    std::string description;
    for (size_t i = first; i < line; ++i) {
      StrAppend(&description, description.empty() ? "" : " ", Trim(lines_[i].substr(1)));
    }
    if (description.ends_with(".")) description.pop_back();
    return description;
  }

  const char* StartOf(size_t line) const {
    return line < lines_.size() ? lines_[line].data() : text_.data() + text_.size();
  }

  // The first line that starts a section or a rule.
  size_t EndOfText(size_t line) const {
    while (line < lines_.size() && !lines_[line].starts_with(kSeparator) &&
           !StartsRule(lines_[line])) {
      ++line;
    }
    return line;
  }

  absl::StatusOr<RuleParts> CutRule(size_t& line) {
    RuleParts rule{.description = DescriptionAbove(line),
                   .name = KeyOf(lines_[line]).value,
                   .keys = {},
                   .pattern = {},
                   .sections = shared_};
    if (rule.name.empty()) return error_(lines_[line], "the rule has no name");
    for (++line; line < lines_.size(); ++line) {
      if (StartsRule(lines_[line]) || lines_[line].starts_with(kSeparator)) break;
      const RuleKey key = KeyOf(lines_[line]);
      if (!key.key.empty()) {
        rule.keys.push_back(key);
      } else if (!Trim(lines_[line]).empty() && !lines_[line].starts_with("#")) {
        break;
      }
    }
    const size_t begin = line;
    line = EndOfText(line);
    if (begin < lines_.size()) rule.pattern = Between(lines_[begin], StartOf(line));
    while (line < lines_.size() && !StartsRule(lines_[line])) {
      PF_ASSIGN_OR_RETURN(RuleSection section, CutSection(line));
      rule.sections.push_back(section);
    }
    return rule;
  }

  absl::StatusOr<RuleSection> CutSection(size_t& line) {
    const std::string_view title = lines_[line];
    RuleSection section{.title = title, .kind = {}, .part = {}, .name = {}, .text = {}};
    const std::string_view rest = Trim(title.substr(kSeparator.size()));
    const size_t colon = rest.find(':');
    section.kind = Trim(rest.substr(0, colon));
    const std::string_view names =
        colon == std::string_view::npos ? std::string_view() : Trim(rest.substr(colon + 1));
    if (section.kind == "either") {
      const size_t space = names.find(' ');
      section.part = names.substr(0, space);
      if (space != std::string_view::npos) section.name = Trim(names.substr(space));
      if (section.name.empty()) return error_(title, "expected \"# ---- either: PART SPELLING\"");
    } else if (section.kind == "or") {
      section.name = names;
    } else if (section.kind != "after") {
      return error_(title, StrCat("expected either, or, after; got \"", section.kind, "\"",
                                  SimilarNames(section.kind, {"either", "or", "after"})));
    }
    const size_t begin = line + 1;
    line = EndOfText(begin);
    if (begin < lines_.size()) section.text = Between(lines_[begin], StartOf(line));
    if (IsBlankText(section.text)) return error_(title, "no text stands under it");
    return section;
  }

  std::string_view text_;
  std::vector<std::string_view> lines_;
  const PlaceError& error_;
  std::vector<RuleSection> shared_;
};

}  // namespace

std::string_view PassDescriptionOf(std::string_view text) {
  const RuleKey key = KeyOf(text.substr(0, text.find('\n')));
  return key.key == "pass" ? key.value : std::string_view();
}

bool IsBlankText(std::string_view text) {
  const std::vector<std::string_view> lines = Lines(text);
  return std::all_of(lines.begin(), lines.end(), [](std::string_view line) {
    return Trim(line).empty() || Trim(line).starts_with("#");
  });
}

absl::StatusOr<std::vector<RuleParts>> CutRules(std::string_view text, const PlaceError& error) {
  return Cutter(text, error).Cut();
}

}  // namespace pagefuse
