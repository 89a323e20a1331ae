// SPDX-License-Identifier: Apache-2.0
// SampleTokens: tokens by hand, and rows whose tokens each way to compute them must have alike.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "op_test.h"

namespace pagefuse::pagefuse_ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNever = -std::numeric_limits<double>::infinity();

Tensor Doubles(std::vector<int64_t> dims, const std::vector<double>& values) {
  return Tensor::Of<double>(std::move(dims), values);
}

// What one row is drawn by.
struct Row {
  std::vector<float> logits;
  std::vector<double> settings = {0, 0, 0, 1, 1, 0, 0};  // as the op lists them
  uint64_t random = 0;
  struct Edit {
    int32_t token;
    double bias;
    int32_t count = -1;
  };
  std::vector<Edit> edits = {};
};

std::vector<double> Drawn(double temperature, double top_k = 0, double min_p = 0,
                          double top_p = 1) {
  return {temperature, top_k, min_p, top_p, 1, 0, 0};
}

OpCase CaseOf(const std::string& name, const std::vector<Row>& rows,
              const std::vector<int64_t>& tokens = {}) {
  std::vector<float> logits;
  std::vector<double> settings, bias;
  std::vector<int64_t> random;
  std::vector<int32_t> starts = {0}, edited, counts;
  for (const Row& row : rows) {
    logits.insert(logits.end(), row.logits.begin(), row.logits.end());
    settings.insert(settings.end(), row.settings.begin(), row.settings.end());
    random.push_back(static_cast<int64_t>(row.random));
    for (const Row::Edit& edit : row.edits) {
      edited.push_back(edit.token);
      bias.push_back(edit.bias);
      counts.push_back(edit.count);
    }
    starts.push_back(static_cast<int32_t>(edited.size()));
  }
  const auto count = static_cast<int64_t>(rows.size());
  const auto edits = static_cast<int64_t>(edited.size());
  const auto columns = count == 0 ? 0 : static_cast<int64_t>(rows[0].logits.size());
  OpCase made{.name = name,
              .inputs = {Floats({count, columns}, logits), Doubles({count, 7}, settings),
                         Ints({count}, random), Int32s({count + 1}, starts),
                         Int32s({edits}, edited), Doubles({edits}, bias), Int32s({edits}, counts)}};
  if (!tokens.empty()) made.outputs = {Ints({count}, tokens)};
  return made;
}

std::vector<float> RandomLogits(std::mt19937_64& random, int64_t columns, float step) {
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(columns);
  // In steps, so that some are equal.
  for (float& logit : logits) logit = step * std::round(normal(random) / step);
  return logits;
}

// Every filter by itself and with others, over rows with edits and without.
OpCase RandomRows(int64_t columns, float step, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Row> rows;
  for (const double temperature : {0.0, 0.3, 1.0, 2.5}) {
    for (const auto& filters : std::vector<std::vector<double>>{
             {0, 0, 1}, {5, 0, 1}, {0, 0.05, 1}, {0, 0, 0.7}, {40, 0.01, 0.95}, {1e6, 0, 1e-3}}) {
      Row row{.logits = RandomLogits(random, columns, step),
              .settings = Drawn(temperature, filters[0], filters[1], filters[2]),
              .random = random()};
      if (rows.size() % 2 == 1) {
        row.settings[4] = 1.3, row.settings[5] = 0.4, row.settings[6] = -0.2;
        for (int32_t token = 0; token < columns; token += 1 + static_cast<int32_t>(random() % 7)) {
          row.edits.push_back({token, token % 5 == 0 ? kNever : 0.25 * (token % 3),
                               static_cast<int32_t>(random() % 4) - 1});
        }
        row.edits.push_back({static_cast<int32_t>(columns), 50.0});  // none of the row's
      }
      rows.push_back(std::move(row));
    }
  }
  return CaseOf("random_" + std::to_string(columns), rows);
}

}  // namespace

OpCases SampleTokensCases() {
  const std::vector<float> logits = {1, 3, 2, 3, 0};
  constexpr uint64_t kHalf = uint64_t{1} << 63, kLast = ~uint64_t{0};
  const OpCase good = CaseOf("edits", {{.logits = logits, .edits = {{1, -1.5}, {4, 2.75}}}}, {3});
  return OpCases("pagefuse.SampleTokens")
      .Add(CaseOf("largest", {{.logits = logits}, {.logits = {0, 0, 0, 0, 0}}}, {1, 0}))
      // Below half of the sum of two equal weights lies the first; what weighs nothing is not drawn.
      .Add(CaseOf("drawn",
                  {{.logits = {0, 0}, .settings = Drawn(1), .random = kHalf - 1},
                   {.logits = {0, 0}, .settings = Drawn(1), .random = kHalf},
                   {.logits = {0, -100}, .settings = Drawn(1), .random = kLast}},
                  {0, 1, 0}))
      .Add(CaseOf("kept",
                  {{.logits = logits, .settings = Drawn(1, 2), .random = kLast},
                   {.logits = logits, .settings = Drawn(1, 1), .random = 0},
                   {.logits = logits, .settings = Drawn(1, 0, 0.5), .random = kLast},
                   {.logits = logits, .settings = Drawn(1, 0, 0, 0.1), .random = kLast},
                   {.logits = logits, .settings = Drawn(1, 0, 0, 0.6), .random = kLast}},
                  {3, 1, 3, 1, 3}))
      .Add(good)
      .Add(CaseOf(
          "penalties",
          {{.logits = {2, 1.5, -1, -3, 0}, .settings = {0, 0, 0, 1, 2, 0, 0}, .edits = {{0, 0, 0}}},
           {.logits = {2, 1.5, -1, -3, 0},
            .settings = {0, 0, 0, 1, 1, 0.25, 0.5},
            .edits = {{0, 0, 1}, {1, 0, 0}}}},
          {1, 1}))
      .Add(CaseOf("none_can_come",
                  {{.logits = {1, std::numeric_limits<float>::quiet_NaN(), 0}},
                   {.logits = {1, kInfinity, 0}},
                   {.logits = {-kInfinity, -kInfinity, -kInfinity}},
                   {.logits = {1, 2, 3}, .edits = {{0, kNever}, {1, kNever}, {2, kNever}}},
                   {.logits = {1, -kInfinity, 0}, .settings = Drawn(0.5), .random = kLast}},
                  {-1, -1, -1, -1, 2}))
      .Add(CaseOf("no_rows", {}))
      .Add(RandomRows(1, 1, 1))
      .Add(RandomRows(37, 0.5F, 2))
      .Add(RandomRows(1000, 0.25F, 3))
      .Add(RandomRows(4099, 1e-3F, 4))
      .Add(RandomRows(33000, 0.125F, 5))
      .Rejects(With(good, 3, Int32s({2}, {0, 3})),
               "input 3 \"edit_starts\": expected 0 to 2 at 1, got 3")
      .Rejects(With(good, 3, Int32s({2}, {1, 2})),
               "input 3 \"edit_starts\": expected 0 to 0 at 0, got 1")
      .Rejects(With(good, 3, Int32s({2}, {0, 1})),
               "input 3 \"edit_starts\": expected 2 last, the number of edits, got 1");
}

}  // namespace pagefuse::pagefuse_ops
