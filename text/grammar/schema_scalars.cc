// SPDX-License-Identifier: Apache-2.0
// Rules of strings and numbers of a JSON schema.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/status_place.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/json_rules.h"
#include "pagefuse/text/grammar/regex.h"
#include "pagefuse/text/grammar/schema_rules.h"

namespace pagefuse {
namespace {

// Days that the calendar has, from the year 1 on.
std::string DateRegex() {
  const std::string year = "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
  const std::string leap_year =
      "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  return StrCat("(?:", year, "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])",
                "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|", leap_year,
                "-02-29)");
}

std::string TimeRegex() {
  return "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?"
         "(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
}

std::optional<std::string> FormatRegex(std::string_view format) {
  if (format == "date") return DateRegex();
  if (format == "time") return TimeRegex();
  if (format == "date-time") return StrCat(DateRegex(), "T", TimeRegex());
  if (format == "uuid") {
    return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  }
  if (format == "ipv4") {
    const std::string part = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
    return StrCat(part, "(?:\\.", part, "){3}");
  }
  return std::nullopt;
}

// What a pattern, a format and lengths say together.
absl::StatusOr<CharDfa> StringCharacters(const SchemaNode& node, uint32_t least, uint32_t most,
                                         const GrammarBudget& budget) {
  std::optional<CharDfa> all;
  const auto intersect = [&](CharDfa dfa) -> absl::Status {
    if (all) {
      PF_ASSIGN_OR_RETURN(dfa, Intersection(*all, dfa, budget));
    }
    all = std::move(dfa);
    return absl::OkStatus();
  };
  if (node.Has("pattern")) {
    PF_ASSIGN_OR_RETURN(const std::string pattern, node.Text("pattern"));
    auto dfa = ParseRegex(pattern, RegexMatch::kAnywhere, budget);
    if (!dfa.ok()) return AtPlace(StrCat(node.pointer, "/pattern"), dfa.status());
    PF_RETURN_IF_ERROR(intersect(*std::move(dfa)));
  }
  if (node.Has("format")) {
    PF_ASSIGN_OR_RETURN(const std::string format, node.Text("format"));
    const auto regex = FormatRegex(format);
    if (!regex) return node.Wrong("format", "one of date, time, date-time, uuid, ipv4");
    PF_ASSIGN_OR_RETURN(CharDfa dfa, ParseRegex(*regex, RegexMatch::kWhole, budget));
    PF_RETURN_IF_ERROR(intersect(std::move(dfa)));
  }
  if (least > 0 || most != kUnbounded) {
    PF_ASSIGN_OR_RETURN(CharDfa dfa, TextOfLength(least, most, budget));
    PF_RETURN_IF_ERROR(intersect(std::move(dfa)));
  }
  return *std::move(all);
}

// A bound as a whole number: rounded, past 64 bits the last of them.
int64_t WholeBound(const SchemaJson& value, bool upper) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)) {
    return kMost;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const double rounded = upper ? std::floor(value.get<double>()) : std::ceil(value.get<double>());
  if (rounded >= 0x1p63) return kMost;
  return rounded < -0x1p63 ? kLeast : static_cast<int64_t>(rounded);
}

constexpr const char* kBounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};

// Narrows a range by one of these keywords. False if nothing is left.
bool Narrow(const SchemaJson& value, bool upper, bool exclusive,
            std::pair<int64_t, int64_t>& range) {
  using Limits = std::numeric_limits<int64_t>;
  int64_t bound = WholeBound(value, upper);
  const double number = value.get<double>();
  if (upper ? number < -0x1p63 : number >= 0x1p63) return false;
  const bool is_whole = value.is_number_integer() || static_cast<double>(bound) == number;
  if (exclusive && is_whole) {
    if (bound == (upper ? Limits::min() : Limits::max())) {
      return false;
    }
    bound += upper ? -1 : 1;
  }
  if (upper) {
    range.second = std::min(range.second, bound);
  } else {
    range.first = std::max(range.first, bound);
  }
  return range.first <= range.second;
}

}  // namespace

absl::StatusOr<RuleNfa> SchemaRules::String(const SchemaNode& node) {
  PF_ASSIGN_OR_RETURN(const uint32_t least, node.Count("minLength", 0));
  PF_ASSIGN_OR_RETURN(const uint32_t most, node.Count("maxLength", kUnbounded));
  if (least > most) return node.Wrong("maxLength", StrCat("minLength (", least, ") or more"));
  RuleNfa rule;
  const uint32_t begin = rule.AddText(0, "\""), closing = rule.AddState();
  if (!node.Has("pattern") && !node.Has("format")) {
    rule.AddCall(begin, set_.CalleeOf({kJsonStringRest, least, most}), closing);
    rule.Accept(closing);
    return rule;
  }
  PF_ASSIGN_OR_RETURN(const CharDfa dfa, StringCharacters(node, least, most, budget_));
  if (dfa.states.empty()) {
    return node.Wrong(node.Has("pattern") ? "pattern" : "format",
                      "that some string fits it and the other keywords");
  }
  PF_RETURN_IF_ERROR(AddCharDfa(dfa, Spelling::kInJsonString, {begin, closing}, rule, budget_));
  rule.Accept(rule.AddText(closing, "\""));
  return rule;
}

absl::StatusOr<uint32_t> SchemaRules::Number(const SchemaNode& node, Types number) {
  const bool bounded = std::any_of(std::begin(kBounds), std::end(kBounds),
                                   [&](const char* bound) { return node.Has(bound); });
  if (!bounded) return set_.CalleeOf(number != 0 ? kJsonNumber : kJsonInteger);
  if (number == 0) {
    PF_ASSIGN_OR_RETURN(RuleNfa rule, Integer(node));
    return set_.CalleeOf(set_.Add(std::move(rule)));
  }
  for (const char* bound : kBounds) {
    if (node.Has(bound))
      return node.Wrong(bound, "no bound of type \"number\", but of \"integer\"");
  }
  return set_.CalleeOf(kJsonNumber);
}

absl::StatusOr<RuleNfa> SchemaRules::Integer(const SchemaNode& node) {
  std::pair<int64_t, int64_t> range = {std::numeric_limits<int64_t>::min(),
                                       std::numeric_limits<int64_t>::max()};
  for (size_t i = 0; i < std::size(kBounds); ++i) {
    if (!node.Has(kBounds[i])) continue;
    const SchemaJson& value = node[kBounds[i]];
    if (!value.is_number()) return node.Wrong(kBounds[i], "a number");
    if (!Narrow(value, /*upper=*/i % 2 == 1, /*exclusive=*/i >= 2, range)) {
      return node.Wrong(kBounds[i], "that some integer of 64 bits lies within the bounds");
    }
  }
  return IntegersBetween(range.first, range.second);
}

}  // namespace pagefuse
