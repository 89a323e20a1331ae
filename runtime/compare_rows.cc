// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/compare_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ops/kernels/formats/cache_choice.h"
#include "pagefuse/passes/verify/compare_models.h"
#include "pagefuse/runtime/runnable.h"

namespace pagefuse {
namespace {

// A deep float decoder adds up what its nodes round, so that more than a node's tolerance is left.
constexpr double kFloatRow = 1e-3;
// Where the best two lie closer than roundings of float do, none of them is wrong.
constexpr double kTie = 1e-5;

// Documented errors: relative L2 of logits (docs/trust.md). By bits of an element.
constexpr std::pair<int, double> kErrorOfBits[] = {{16, 0.05}, {8, 0.13}, {0, 0.35}};
constexpr double kTimes = 4;

double ErrorOfBits(int bits) {
  for (const auto& [least, error] : kErrorOfBits) {
    if (bits >= least) return error;
  }
  return 0;
}

// Of numbers in the formats of --kv-cache and --indexer-cache.
int BitsOf(const CacheChoice& choice) {
  if (choice.changes_nothing()) return 32;
  if (choice.turboquant != nullptr) {
    return std::min(choice.turboquant->key_bits, choice.turboquant->value_bits);
  }
  if (choice.grouped()) return choice.grouped_bits;
  if (choice.name.find("int4") != std::string_view::npos) return 4;
  return choice.format().is_plain() ? 16 : 8;
}

int FewestBits(std::string_view option, std::span<const CacheChoice> choices) {
  int bits = 32;
  for (const CacheChoice& choice : choices) {
    // One name, or several with = and commas between them.
    if (absl::StrContains(AbslView(option), AbslView(choice.name))) {
      bits = std::min(bits, BitsOf(choice));
    }
  }
  return bits;
}

double Largest(std::span<const float> row) {
  double largest = 0;
  for (const float logit : row) {
    if (std::isfinite(logit)) largest = std::max<double>(largest, std::abs(logit));
  }
  return largest;
}

bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::string Unequal(size_t logit, float expected, float got) {
  return StrCat("logit ", logit, ": expected ", absl::StrFormat("%.6g", expected), ", got ",
                absl::StrFormat("%.6g", got));
}

// The choice of a greedy sampler, where it is one at all: logits of 16 bits that are as far apart as
// those of one token may be are none.
std::string ChoiceDifference(std::span<const float> expected, std::span<const float> got,
                             double tolerance) {
  const auto best = std::max_element(expected.begin(), expected.end());
  const auto chosen = std::max_element(got.begin(), got.end()) - got.begin();
  const double margin = static_cast<double>(*best) - expected[chosen];
  const double tie = tolerance > kFloatRow ? tolerance : kTie;
  if (!(margin > tie * Largest(expected))) return "";
  return StrCat("expected token ", best - expected.begin(), ", got ", chosen);
}

std::string ComputedDifference(std::span<const float> expected, std::span<const float> got,
                               double tolerance) {
  const double allowed = tolerance * Largest(expected);
  bool numbers = true;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (Same(expected[i], got[i])) continue;
    const double off = std::abs(static_cast<double>(expected[i]) - got[i]);
    if (!(off <= allowed)) return Unequal(i, expected[i], got[i]);
    numbers = numbers && std::isfinite(expected[i]) && std::isfinite(got[i]);
  }
  return numbers && !expected.empty() ? ChoiceDifference(expected, got, tolerance) : "";
}

// Of all rows of a text: one of them alone may have little spread.
class StoredSums {
 public:
  // Empty, or why a row cannot be added.
  std::string Add(std::span<const float> expected, std::span<const float> got) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (Same(expected[i], got[i]) && !std::isfinite(expected[i])) continue;
      if (!std::isfinite(expected[i]) || !std::isfinite(got[i])) {
        return Unequal(i, expected[i], got[i]);
      }
      sum += expected[i];
      squares += static_cast<double>(expected[i]) * expected[i];
      off_ += std::pow(static_cast<double>(expected[i]) - got[i], 2);
    }
    spread_ += squares - sum * sum / std::max<double>(1, static_cast<double>(expected.size()));
    return "";
  }

  std::string Difference(double tolerance) const {
    if (off_ <= tolerance * tolerance * std::max(spread_, 0.0)) return "";
    return StrCat("logits are off by ", absl::StrFormat("%.3g", std::sqrt(off_ / spread_)),
                  " of their spread, more than ", absl::StrFormat("%.3g", tolerance));
  }

 private:
  double off_ = 0, spread_ = 0;
};

}  // namespace

RowTolerance ComputedTolerance(const Model& model) {
  return {.largest = ModelTolerance(model, kFloatRow)};
}

std::optional<RowTolerance> StoredTolerance(const EngineOptions& options) {
  const auto& passes = options.session.pipeline.options;
  double error = 0;
  const auto add = [&](int bits) {
    if (bits < 32) error += ErrorOfBits(bits);
  };
  const auto option = [&](const char* name) {
    const auto found = passes.find(name);
    return found == passes.end() ? std::string() : found->second;
  };
  add(FewestBits(options.kv_cache.value_or(option("kv_cache")), CacheChoices()));
  add(FewestBits(option("indexer_cache"), IndexChoices()));
  if (const auto weights = FindWeightFormat(option("weights")); weights.ok()) add(weights->bits);
  if (error == 0) return std::nullopt;
  return RowTolerance{.l2 = kTimes * error};
}

EngineOptions StoredAsItIs(const EngineOptions& options) {
  EngineOptions plain = options;
  plain.kv_cache.reset();
  for (const char* option : kCacheOptions) plain.session.pipeline.options.erase(option);
  UseWeights({}, plain.session);
  return plain;
}

double SquaredDistance(const LogitRows& a, const LogitRows& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double sum = 0;
  for (size_t row = 0; row < a.size(); ++row) {
    if (a[row].size() != b[row].size()) return kInfinity;
    for (size_t i = 0; i < a[row].size(); ++i) {
      const float x = a[row][i], y = b[row][i];
      if (Same(x, y)) continue;
      if (!std::isfinite(x) || !std::isfinite(y)) return kInfinity;
      sum += std::pow(static_cast<double>(x) - y, 2);
    }
  }
  return sum;
}

std::string RowsDifference(const LogitRows& expected, const LogitRows& got,
                           const RowTolerance& tolerance) {
  if (expected.size() != got.size()) {
    return StrCat("expected ", expected.size(), " rows of logits, got ", got.size());
  }
  StoredSums stored;
  for (size_t row = 0; row < expected.size(); ++row) {
    std::string detail;
    if (expected[row].size() != got[row].size()) {
      detail = StrCat("expected ", expected[row].size(), " logits, got ", got[row].size());
    } else if (tolerance.l2 > 0) {
      detail = stored.Add(expected[row], got[row]);
    } else {
      detail = ComputedDifference(expected[row], got[row], tolerance.largest);
    }
    if (detail.empty()) continue;
    if (row == 0) return detail;
    return StrCat("behind ", row, row == 1 ? " more token: " : " more tokens: ", detail);
  }
  return tolerance.l2 > 0 ? stored.Difference(tolerance.l2) : "";
}

}  // namespace pagefuse
