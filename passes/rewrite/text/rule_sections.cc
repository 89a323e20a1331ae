// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/rewrite/text/rule_sections.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse {
namespace {

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
  const bool word = !key.empty() && std::ranges::all_of(key, [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || c == '-';
  });
  return word ? RuleKey{key, Trim(line.substr(colon + 1))} : RuleKey{};
}

bool StartsRule(std::string_view line) { return KeyOf(line).key == "rule"; }
bool StartsOp(std::string_view line) { return KeyOf(line).key == "op"; }
bool Starts(std::string_view line) { return StartsRule(line) || StartsOp(line); }

// The text from the start of `first` to the start of `last`, both of one text.
std::string_view Between(std::string_view first, const char* last) {
  return {first.data(), static_cast<size_t>(last - first.data())};
}

class Cutter {
 public:
  Cutter(std::string_view text, const PlaceError& error)
      : text_(text), lines_(Lines(text)), error_(error) {}

  absl::StatusOr<TextParts> Cut() {
    TextParts parts;
    size_t line = Skip(0);
    PF_RETURN_IF_ERROR(CutSharedParts(line));
    while (line < lines_.size()) {
      if (StartsOp(lines_[line])) {
        PF_ASSIGN_OR_RETURN(parts.ops.emplace_back(), CutOp(line));
      } else if (StartsRule(lines_[line])) {
        PF_ASSIGN_OR_RETURN(parts.rules.emplace_back(), CutRule(line));
      } else {
        return error_(lines_[line], "expected \"# rule: NAME\" before anything else");
      }
    }
    if (parts.ops.empty() && parts.rules.empty()) return error_(text_, "expected \"# rule: NAME\"");
    return parts;
  }

 private:
  // Past blank lines and comments that start nothing.
  size_t Skip(size_t line) const {
    while (line < lines_.size() && !Starts(lines_[line]) && !lines_[line].starts_with(kSeparator) &&
           (Trim(lines_[line]).empty() || lines_[line].starts_with("#"))) {
      ++line;
    }
    return line;
  }

  absl::Status CutSharedParts(size_t& line) {
    while (line < lines_.size() && lines_[line].starts_with(kSeparator)) {
      PF_ASSIGN_OR_RETURN(RuleSection section, CutSection(line, {"either", "or", "after"}));
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

  // The first line that starts a section, a rule or an op.
  size_t EndOfText(size_t line) const {
    while (line < lines_.size() && !lines_[line].starts_with(kSeparator) && !Starts(lines_[line])) {
      ++line;
    }
    return line;
  }

  // The keys from a line on, which becomes that of the text.
  std::vector<RuleKey> CutKeys(size_t& line) const {
    std::vector<RuleKey> keys;
    for (; line < lines_.size(); ++line) {
      if (Starts(lines_[line]) || lines_[line].starts_with(kSeparator)) break;
      const RuleKey key = KeyOf(lines_[line]);
      if (!key.key.empty()) {
        keys.push_back(key);
      } else if (!Trim(lines_[line]).empty() && !lines_[line].starts_with("#")) {
        break;
      }
    }
    return keys;
  }

  // The text from a line on, which becomes the one behind it.
  std::string_view CutFunction(size_t& line) const {
    const size_t begin = line;
    line = EndOfText(line);
    return begin < lines_.size() ? Between(lines_[begin], StartOf(line)) : std::string_view();
  }

  absl::StatusOr<OpParts> CutOp(size_t& line) {
    const std::string_view title = lines_[line];
    const std::string_view value = KeyOf(title).value;
    const size_t space = std::min(value.find_first_of(" \t"), value.size());
    OpParts op{.doc = std::string(Trim(value.substr(space))),
               .name = value.substr(0, space),
               .keys = {},
               .text = {},
               .sections = {}};
    if (op.name.empty()) return error_(title, "the op has no name");
    if (op.doc.empty()) op.doc = DescriptionAbove(line);
    op.keys = CutKeys(++line);
    op.text = CutFunction(line);
    if (IsBlankText(op.text)) return error_(title, "the op has no body");
    while (line < lines_.size() && !Starts(lines_[line])) {
      PF_ASSIGN_OR_RETURN(op.sections.emplace_back(), CutSection(line, {"without"}));
    }
    return op;
  }

  absl::StatusOr<RuleParts> CutRule(size_t& line) {
    RuleParts rule{.description = DescriptionAbove(line),
                   .name = KeyOf(lines_[line]).value,
                   .keys = {},
                   .pattern = {},
                   .sections = shared_};
    if (rule.name.empty()) return error_(lines_[line], "the rule has no name");
    rule.keys = CutKeys(++line);
    rule.pattern = CutFunction(line);
    while (line < lines_.size() && !Starts(lines_[line])) {
      PF_ASSIGN_OR_RETURN(RuleSection section, CutSection(line, {"either", "or", "after"}));
      rule.sections.push_back(section);
    }
    return rule;
  }

  absl::StatusOr<RuleSection> CutSection(size_t& line, const std::vector<std::string>& kinds) {
    const std::string_view title = lines_[line];
    RuleSection section{.title = title, .kind = {}, .part = {}, .name = {}, .text = {}};
    const std::string_view rest = Trim(title.substr(kSeparator.size()));
    const size_t colon = rest.find(':');
    section.kind = Trim(rest.substr(0, colon));
    const std::string_view names =
        colon == std::string_view::npos ? std::string_view() : Trim(rest.substr(colon + 1));
    if (std::ranges::find(kinds, section.kind) == kinds.end()) {
      return error_(title, StrCat("expected ", absl::StrJoin(kinds, ", "), "; got \"", section.kind,
                                  "\"", SimilarNames(section.kind, kinds)));
    }
    if (section.kind == "either") {
      const size_t space = names.find(' ');
      section.part = names.substr(0, space);
      if (space != std::string_view::npos) section.name = Trim(names.substr(space));
      if (section.name.empty()) return error_(title, "expected \"# ---- either: PART VARIANT\"");
    } else if (section.kind == "or" || section.kind == "without") {
      section.name = names;
    }
    section.text = CutFunction(++line);
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
  return std::ranges::all_of(lines, [](std::string_view line) {
    return Trim(line).empty() || Trim(line).starts_with("#");
  });
}

std::string_view Trim(std::string_view text) {
  return StdView(absl::StripAsciiWhitespace(AbslView(text)));
}

absl::StatusOr<TextParts> CutText(std::string_view text, const PlaceError& error) {
  return Cutter(text, error).Cut();
}

absl::StatusOr<std::vector<RuleParts>> CutRules(std::string_view text, const PlaceError& error) {
  PF_ASSIGN_OR_RETURN(TextParts parts, CutText(text, error));
  if (!parts.ops.empty()) {
    return error(parts.ops.front().name,
                 "an op is declared where rules alone are read; a file with ops is a plug-in");
  }
  return std::move(parts.rules);
}

}  // namespace pagefuse
