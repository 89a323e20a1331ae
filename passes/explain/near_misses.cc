// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/explain/near_misses.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/short_message.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// What stands between a name and its number.
bool IsJoint(char c) { return c == '_' || c == '.' || c == '-'; }

// What misses that are alike share. Where the root alone fits, what else is there is of little
// interest.
std::string WhatFailed(const MissedMatch& miss) {
  std::string_view condition = miss.condition;
  if (miss.matched_nodes <= 1) condition = condition.substr(0, condition.find(", got "));
  return WithoutNumbers(condition);
}

// One miss a rule and place.
std::vector<MissedMatch> OnePerPlace(std::vector<MissedMatch> misses) {
  absl::flat_hash_map<std::pair<std::string, std::string>, size_t> places;
  std::vector<MissedMatch> nearest;
  for (MissedMatch& miss : misses) {
    const auto [it, added] = places.try_emplace({miss.rule, miss.at}, nearest.size());
    if (added) {
      nearest.push_back(std::move(miss));
    } else if (miss.matched_nodes > nearest[it->second].matched_nodes) {
      nearest[it->second] = std::move(miss);
    }
  }
  return nearest;
}

std::string FiredText(const AskedRule& rule) {
  std::string times;
  if (rule.times > 0) times = rule.times == 1 ? " once" : StrCat(" ", rule.times, " times");
  return StrCat(rule.name, " fired", times, ", and nothing else resembled it");
}

}  // namespace

std::string WithoutNumbers(std::string_view condition) {
  std::string text;
  bool quoted = false;
  for (const char c : condition) {
    if (c == '"') quoted = !quoted;
    if (quoted && absl::ascii_isdigit(c)) {
      while (IsJoint(text.back())) text.pop_back();
      continue;
    }
    text.push_back(c);
  }
  return text;
}

std::vector<MissedMatch> NearestMisses(std::vector<MissedMatch> misses) {
  std::vector<MissedMatch> groups;
  absl::flat_hash_map<std::string, size_t> alike;
  for (MissedMatch& miss : OnePerPlace(std::move(misses))) {
    const std::string key = StrCat(miss.rule, "\n", miss.matched_nodes, "\n", WhatFailed(miss));
    const auto [it, added] = alike.try_emplace(key, groups.size());
    if (added) {
      groups.push_back(std::move(miss));
    } else {
      groups[it->second].places += miss.places;
    }
  }
  std::ranges::stable_sort(groups, [](const MissedMatch& a, const MissedMatch& b) {
    return a.matched_nodes > b.matched_nodes;
  });
  return groups;
}

std::string MissText(const MissedMatch& miss) {
  const int others = miss.places - 1;
  std::string like;
  if (others > 0) like = StrCat(" and ", others, others == 1 ? " place" : " places", " like it");
  return ShortMessage(StrCat(miss.rule, " at \"", miss.at, "\"", like, " (", miss.matched_nodes,
                             miss.matched_nodes == 1 ? " node" : " nodes",
                             " matched): ", miss.condition));
}

std::string UnfusedText(const UnfusedPlace& place) {
  std::string text = StrCat(place.family, " at ", place.node);
  if (place.places > 1) StrAppend(&text, ", ", place.places, " of them");
  if (place.rule.empty()) return ShortMessage(text + "; no rule resembles it");
  StrAppend(&text, "; nearest is ", place.rule, ": ", place.reason);
  return ShortMessage(text);
}

std::vector<std::string> UnmissedLines(const std::vector<AskedRule>& rules,
                                       const std::vector<MissedMatch>& misses, bool briefly) {
  std::set<std::string> missed;
  for (const MissedMatch& miss : misses) missed.insert(miss.rule);
  std::vector<std::string> lines, unlike, idle;
  for (const AskedRule& rule : rules) {
    if (missed.contains(rule.name)) continue;
    if (!rule.ran) {
      idle.push_back(rule.name);
    } else if (!rule.fired) {
      unlike.push_back(rule.name);
    } else if (!briefly) {
      lines.push_back(FiredText(rule));
    }
  }
  if (!unlike.empty()) {
    lines.push_back(StrCat("nothing in the graph resembled ", absl::StrJoin(unlike, ", ")));
  }
  if (!idle.empty()) lines.push_back(StrCat("did not run: ", absl::StrJoin(idle, ", ")));
  return lines;
}

}  // namespace pagefuse
