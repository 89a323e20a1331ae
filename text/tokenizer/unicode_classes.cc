// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/tokenizer/unicode_classes.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pagefuse {
namespace {

// clang-format off
enum Category : uint8_t {
  kCc, kCf, kCn, kCo, kCs, kLl, kLm, kLo, kLt, kLu, kMc, kMe, kMn, kNd, kNl, kNo,
  kPc, kPd, kPe, kPf, kPi, kPo, kPs, kSc, kSk, kSm, kSo, kZl, kZp, kZs,
  kLuLl,  // Lu and Ll in turn
};
constexpr std::array<std::string_view, 30> kNames = {
  "Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No",
  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs",
};
struct Run {
  char32_t first;
  Category category;
};
constexpr Run kRuns[] = {
#include "pagefuse/text/tokenizer/unicode_categories.inc"
};
// clang-format on

// Other_Alphabetic outside of the categories L, M and Nl: letters in circles and squares.
constexpr CodePointSet::Range kEnclosedLetters[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
// Join_Control.
constexpr CodePointSet::Range kJoiners = {0x200C, 0x200D};

bool Belongs(std::string_view category, std::string_view name) {
  if (name == "L&") return category == "Lu" || category == "Ll" || category == "Lt";
  return category.substr(0, name.size()) == name;
}

}  // namespace

void CodePointSet::Add(char32_t first, char32_t last) {
  // The ranges that touch the new one become part of it.
  auto begin = std::ranges::find_if(
      ranges_, [&](const Range& range) { return range.last >= first || range.last + 1 == first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= last + 1; ++end) {
    first = std::min(first, end->first);
    last = std::max(last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), {first, last});
}

void CodePointSet::Add(const CodePointSet& other) {
  for (const Range& range : other.ranges_) Add(range.first, range.last);
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.ranges_.push_back({next, kLastCodePoint});
  return rest;
}

bool CodePointSet::Contains(char32_t point) const {
  auto after = std::upper_bound(ranges_.begin(), ranges_.end(), point,
                                [](char32_t p, const Range& range) { return p < range.first; });
  return after != ranges_.begin() && std::prev(after)->last >= point;
}

std::optional<CodePointSet> CategorySet(std::string_view name) {
  const bool known =
      !name.empty() && std::any_of(kNames.begin(), kNames.end(),
                                   [&](std::string_view other) { return Belongs(other, name); });
  if (!known) return std::nullopt;
  CodePointSet set;
  for (size_t i = 0; i < std::size(kRuns); ++i) {
    const Run& run = kRuns[i];
    const char32_t next = i + 1 < std::size(kRuns) ? kRuns[i + 1].first : kLastCodePoint + 1;
    const bool in_turn = run.category == kLuLl;
    const char32_t step = in_turn ? 1 : next - run.first;
    for (char32_t first = run.first; first < next; first += step) {
      const Category other = (first - run.first) % 2 == 0 ? kLu : kLl;
      if (Belongs(kNames[in_turn ? other : run.category], name)) set.Add(first, first + step - 1);
    }
  }
  return set;
}

const CodePointSet& WhiteSpace() {
  static const CodePointSet& set = *[] {
    auto* spaces = new CodePointSet(*CategorySet("Z"));
    spaces->Add(0x9, 0xD);
    spaces->Add(0x85, 0x85);
    return spaces;
  }();
  return set;
}

const CodePointSet& WordCharacters() {
  static const CodePointSet& set = *[] {
    auto* word = new CodePointSet;
    for (std::string_view name : {"L", "M", "Nd", "Nl", "Pc"}) word->Add(*CategorySet(name));
    for (const auto& range : kEnclosedLetters) word->Add(range.first, range.last);
    word->Add(kJoiners.first, kJoiners.last);
    return word;
  }();
  return set;
}

}  // namespace pagefuse
