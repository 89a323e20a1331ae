// SPDX-License-Identifier: Apache-2.0
// Integers of a range, digit by digit.
#include <algorithm>
#include <string>
#include <string_view>

#include "pagefuse/text/grammar/json_rules.h"

namespace pagefuse {
namespace {

ByteRange Digits(char low, char high) {
  return {static_cast<uint8_t>(low), static_cast<uint8_t>(high)};
}

class IntegerRule {
 public:
  explicit IntegerRule(RuleNfa& rule) : rule_(rule), end_(rule.AddState()) { rule.Accept(end_); }

  // Numbers from `least` to `most` from a state on, without a sign.
  void AddRange(uint32_t from, uint64_t least, uint64_t most) {
    const std::string low = std::to_string(least), high = std::to_string(most);
    for (size_t length = low.size(); length <= high.size(); ++length) {
      std::string first(length, '0');
      first[0] = length == 1 ? '0' : '1';
      if (length == low.size()) first = low;
      AddSameLength(from, first, length == high.size() ? high : std::string(length, '9'));
    }
  }

 private:
  // Any `count` digits and the end.
  uint32_t AnyDigits(size_t count) {
    if (any_.empty()) any_.push_back(end_);
    while (any_.size() <= count) {
      const uint32_t state = rule_.AddState();
      rule_.AddBytes(state, Digits('0', '9'), any_.back());
      any_.push_back(state);
    }
    return any_[count];
  }

  void AddSameLength(uint32_t from, std::string_view low, std::string_view high) {
    if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) {
      return rule_.AddEmpty(from, AnyDigits(low.size()));
    }
    const size_t rest = low.size() - 1;
    if (low[0] == high[0]) {
      const uint32_t next = rule_.AddState();
      rule_.AddBytes(from, Digits(low[0], low[0]), next);
      return AddSameLength(next, low.substr(1), high.substr(1));
    }
    const uint32_t at_low = rule_.AddState(), at_high = rule_.AddState();
    rule_.AddBytes(from, Digits(low[0], low[0]), at_low);
    rule_.AddBytes(from, Digits(high[0], high[0]), at_high);
    AddSameLength(at_low, low.substr(1), std::string(rest, '9'));
    AddSameLength(at_high, std::string(rest, '0'), high.substr(1));
    if (low[0] + 1 < high[0]) {
      rule_.AddBytes(from, Digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                     AnyDigits(rest));
    }
  }

  RuleNfa& rule_;
  uint32_t end_;
  std::vector<uint32_t> any_;
};

// Also of the least number, whose opposite has no place in 64 bits with a sign.
uint64_t Magnitude(int64_t negative) { return uint64_t{0} - static_cast<uint64_t>(negative); }

}  // namespace

RuleNfa IntegersBetween(int64_t least, int64_t most) {
  RuleNfa rule;
  IntegerRule integers(rule);
  if (most >= 0) {
    integers.AddRange(0, static_cast<uint64_t>(std::max<int64_t>(least, 0)),
                      static_cast<uint64_t>(most));
  }
  if (least < 0) {
    integers.AddRange(rule.AddText(0, "-"), Magnitude(std::min<int64_t>(most, -1)),
                      Magnitude(least));
  }
  return rule;
}

}  // namespace pagefuse
