// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/ops/kernels/linalg/expert_groups.h"

#include <algorithm>
#include <cstddef>

#include "pagefuse/base/parallel.h"

namespace pagefuse {
namespace {

// Elements of a matrix from which on all workers share it.
constexpr int64_t kLargeMatrix = int64_t{1} << 16;

// Slots of the scratch memory; products use the ones below.
constexpr int kGatheredX = 14;
constexpr int kGatheredY = 15;

absl::Status RunGroup(const ExpertGroups& groups, const ExpertGroups::Group& group,
                      const ExpertRows& rows, const ExpertProduct& product, Scratch& scratch) {
  const int64_t* order = groups.order.data() + group.begin;
  const auto x_row = [&](int64_t i) { return rows.x + order[i] / rows.repeat * rows.k; };
  if (group.size() == 1) {
    return product(group.expert, {x_row(0), 1, rows.k}, {rows.y + order[0] * rows.n, rows.n},
                   scratch);
  }
  const auto floats = [&](int64_t width, int slot) {
    return static_cast<float*>(
        scratch.Get(static_cast<size_t>(group.size() * width) * sizeof(float), slot));
  };
  float* x = floats(rows.k, kGatheredX);
  float* y = floats(rows.n, kGatheredY);
  for (int64_t i = 0; i < group.size(); ++i) std::copy_n(x_row(i), rows.k, x + i * rows.k);
  const absl::Status status =
      product(group.expert, {x, group.size(), rows.k}, {y, rows.n}, scratch);
  if (!status.ok()) return status;
  for (int64_t i = 0; i < group.size(); ++i) {
    std::copy_n(y + i * rows.n, rows.n, rows.y + order[i] * rows.n);
  }
  return absl::OkStatus();
}

}  // namespace

ExpertGroups GroupByExpert(std::span<const int64_t> experts, int64_t num_experts) {
  std::vector<int64_t> starts(static_cast<size_t>(num_experts) + 1);
  for (const int64_t expert : experts) ++starts[expert + 1];
  for (int64_t e = 0; e < num_experts; ++e) starts[e + 1] += starts[e];
  ExpertGroups result;
  for (int64_t e = 0; e < num_experts; ++e) {
    if (starts[e + 1] > starts[e]) result.groups.push_back({e, starts[e], starts[e + 1]});
  }
  result.order.resize(experts.size());
  for (size_t row = 0; row < experts.size(); ++row) {
    result.order[starts[experts[row]]++] = static_cast<int64_t>(row);
  }
  return result;
}

absl::Status GroupedProduct(const ExpertGroups& groups, const ExpertRows& rows,
                            const ExpertProduct& product, Scratch& scratch) {
  if (rows.k * rows.n >= kLargeMatrix || groups.groups.size() < 2) {
    for (const ExpertGroups::Group& group : groups.groups) {
      const absl::Status status = RunGroup(groups, group, rows, product, scratch);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const auto count = static_cast<int64_t>(groups.groups.size());
  std::vector<absl::Status> statuses(static_cast<size_t>(count));
  PerWorker<Scratch> own;
  ParallelTasks(count, [&](int64_t i, int worker) {
    statuses[i] = RunGroup(groups, groups.groups[i], rows, product, own[worker]);
  });
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
