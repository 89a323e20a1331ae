// SPDX-License-Identifier: Apache-2.0
// What a random decoder is made of: one option of every feature of the grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace pagefuse::fuzz {

enum class Meaning {
  kTokenwise,  // tokens meet in causal attention only: can be paged
  kMixes,      // tokens meet elsewhere, or an input has no known meaning: need not be paged
  kSizes,      // declared with sizes that a packed step does not have: need not be paged
};

struct Option {
  std::string name;
  Meaning meaning = Meaning::kTokenwise;
};

struct Feature {
  std::string name;
  int percent = 50;             // of plans that take another option than the first
  std::vector<Option> options;  // the first is the plainest
};

const std::vector<Feature>& Grammar();

class Plan {
 public:
  // The first option of everything. Weights follow from the seed.
  explicit Plan(uint64_t seed) : seed_(seed), chosen_(Grammar().size(), 0) {}
  static Plan Random(uint64_t seed);
  // `seed=3 positions=range layers=2`; InvalidArgument naming what the grammar does not have.
  static absl::StatusOr<Plan> Parse(std::string_view text);

  uint64_t seed() const { return seed_; }
  // Features and options that the grammar does not have end the program.
  bool Is(std::string_view feature, std::string_view option) const;
  const std::string& Get(std::string_view feature) const;
  int64_t Number(std::string_view feature) const;
  bool Has(Meaning meaning) const;

  // True if this plan has every choice of `part` other than first options.
  bool Contains(const Plan& part) const;
  // With the first option of a feature, by number; nothing if it has that already.
  std::optional<Plan> Without(size_t feature) const;
  // With another option of a feature; what the grammar does not have ends the program.
  Plan With(std::string_view feature, std::string_view option) const;
  // First options are left out.
  std::string ToString() const;
  std::string Choices() const;  // without the seed

 private:
  size_t Find(std::string_view feature) const;

  uint64_t seed_;
  std::vector<size_t> chosen_;  // by feature
};

}  // namespace pagefuse::fuzz
