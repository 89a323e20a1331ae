// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/passes/edit/similar_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// Letters to insert, erase or replace.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

bool Holds(std::string_view text, std::string_view part) {
  constexpr size_t kMinPart = 3;  // every name holds a letter or two of another
  return part.size() >= kMinPart && text.find(part) != std::string_view::npos;
}

bool AreAlike(std::string_view a, std::string_view b, size_t distance) {
  return 3 * distance <= std::max(a.size(), b.size()) || Holds(a, b) || Holds(b, a);
}

}  // namespace

std::string SimilarNames(std::string_view name, const std::vector<std::string>& names) {
  constexpr size_t kMaxNames = 3;
  constexpr size_t kMaxLength = 200;  // nobody misspells more, and distances cost its square
  if (name.size() > kMaxLength) return "";
  const std::string wanted = absl::AsciiStrToLower(AbslView(name));
  std::vector<std::pair<size_t, std::string>> alike;
  for (const std::string& other : names) {
    const std::string lower = absl::AsciiStrToLower(other);
    const size_t distance = EditDistance(wanted, lower);
    if (AreAlike(wanted, lower, distance)) alike.emplace_back(distance, StrCat("\"", other, "\""));
  }
  std::ranges::sort(alike);
  alike.erase(std::unique(alike.begin(), alike.end()), alike.end());
  if (alike.size() > kMaxNames) alike.resize(kMaxNames);
  if (alike.empty()) return "";
  return StrCat(
      "; similar names: ",
      absl::StrJoin(alike, ", ", [](std::string* out, const auto& at) { out->append(at.second); }));
}

}  // namespace pagefuse
