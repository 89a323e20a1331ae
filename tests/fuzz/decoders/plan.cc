// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>
#include <array>

#include "../random.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

size_t FindOption(const Feature& feature, std::string_view name) {
  const auto& options = feature.options;
  return std::find_if(options.begin(), options.end(),
                      [&](const Option& option) { return option.name == name; }) -
         options.begin();
}

size_t FindFeature(std::string_view name) {
  const auto& grammar = Grammar();
  return std::find_if(grammar.begin(), grammar.end(),
                      [&](const Feature& feature) { return feature.name == name; }) -
         grammar.begin();
}

}  // namespace

Plan Plan::Random(uint64_t seed) {
  // Some decoders have little that is special, so that what they have is not hidden behind
  // something else.
  static constexpr std::array kBoldness = {15, 30, 60, 100};
  fuzz::Random random(seed);
  const int boldness = random.Pick(kBoldness);
  Plan plan(seed);
  for (size_t i = 0; i < plan.chosen_.size(); ++i) {
    const Feature& feature = Grammar()[i];
    const bool special = static_cast<int>(random.Below(10'000)) < feature.percent * boldness;
    const size_t option = 1 + random.Below(feature.options.size() - 1);
    if (special) plan.chosen_[i] = option;
  }
  return plan;
}

absl::StatusOr<Plan> Plan::Parse(std::string_view text) {
  Plan plan(1);
  for (const absl::string_view choice : absl::StrSplit(AbslView(text), ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(choice, absl::MaxSplits('=', 1));
    if (parts.first == "seed") {
      if (absl::SimpleAtoi(parts.second, &plan.seed_)) continue;
      return absl::InvalidArgumentError(
          StrCat("seed: expected a number, got \"", parts.second, "\""));
    }
    const size_t feature = FindFeature(parts.first);
    if (feature == Grammar().size()) {
      return absl::InvalidArgumentError(StrCat("there is no feature \"", parts.first, "\""));
    }
    plan.chosen_[feature] = FindOption(Grammar()[feature], parts.second);
    if (plan.chosen_[feature] == Grammar()[feature].options.size()) {
      return absl::InvalidArgumentError(
          StrCat("\"", parts.first, "\" has no option \"", parts.second, "\""));
    }
  }
  return plan;
}

size_t Plan::Find(std::string_view feature) const {
  const size_t index = FindFeature(feature);
  PF_CHECK(index < chosen_.size());
  return index;
}

bool Plan::Is(std::string_view feature, std::string_view option) const {
  const size_t index = Find(feature);
  const size_t wanted = FindOption(Grammar()[index], option);
  PF_CHECK(wanted < Grammar()[index].options.size());
  return chosen_[index] == wanted;
}

const std::string& Plan::Get(std::string_view feature) const {
  const size_t index = Find(feature);
  return Grammar()[index].options[chosen_[index]].name;
}

int64_t Plan::Number(std::string_view feature) const {
  int64_t number = 0;
  PF_CHECK(absl::SimpleAtoi(Get(feature), &number));
  return number;
}

bool Plan::Has(Meaning meaning) const {
  for (size_t i = 0; i < chosen_.size(); ++i) {
    if (Grammar()[i].options[chosen_[i]].meaning == meaning) return true;
  }
  return false;
}

bool Plan::Contains(const Plan& part) const {
  for (size_t i = 0; i < chosen_.size(); ++i) {
    if (part.chosen_[i] != 0 && part.chosen_[i] != chosen_[i]) return false;
  }
  return true;
}

std::optional<Plan> Plan::Without(size_t feature) const {
  if (chosen_[feature] == 0) return std::nullopt;
  Plan plainer = *this;
  plainer.chosen_[feature] = 0;
  return plainer;
}

Plan Plan::With(std::string_view feature, std::string_view option) const {
  const size_t index = Find(feature);
  Plan other = *this;
  other.chosen_[index] = FindOption(Grammar()[index], option);
  PF_CHECK(other.chosen_[index] < Grammar()[index].options.size());
  return other;
}

std::string Plan::Choices() const {
  std::string text;
  for (size_t i = 0; i < chosen_.size(); ++i) {
    if (chosen_[i] == 0) continue;
    const Feature& feature = Grammar()[i];
    StrAppend(&text, text.empty() ? "" : " ", feature.name, "=", feature.options[chosen_[i]].name);
  }
  return text;
}

std::string Plan::ToString() const {
  const std::string choices = Choices();
  return StrCat("seed=", seed_, choices.empty() ? "" : " ", choices);
}

}  // namespace pagefuse::fuzz
