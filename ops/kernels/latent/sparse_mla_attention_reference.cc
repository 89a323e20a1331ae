// SPDX-License-Identifier: Apache-2.0
// SparseMlaAttention as it is defined: one row of the output at a time, sums in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/latent/sparse_mla_attention_problem.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Step 2: the row as attention reads it.
absl::Status DecodeLatent(const SparseMlaProblem& p, RowAddress row, std::vector<float>& x) {
  x.resize(p.head_size);
  if (p.plain) return DecodeToFloat(p.cache_type, row.data, p.head_size, x.data());
  DecodeGroupedRow(p.grouped, row, x.data());
  return RoundThrough(DataType::kBfloat16, x.data(), p.head_size);
}

class TokenAttention {
 public:
  TokenAttention(const SparseMlaProblem& p, int64_t token) : p_(p), token_(token) {}

  absl::Status Run(const std::vector<RowAddress>& rows) {
    rows_.resize(rows.size());
    for (size_t j = 0; j < rows.size(); ++j) {
      PF_RETURN_IF_ERROR(DecodeLatent(p_, rows[j], rows_[j]));
    }
    for (int64_t h = 0; h < p_.num_heads; ++h) PF_RETURN_IF_ERROR(Head(h));
    return absl::OkStatus();
  }

 private:
  // Step 3: the scores of head h.
  absl::Status Scores(int64_t h) {
    std::vector<float> q(p_.head_size);
    const int64_t bytes = p_.head_size * BitWidth(p_.query_type) / 8;
    PF_RETURN_IF_ERROR(DecodeToFloat(
        p_.query_type, static_cast<const std::byte*>(p_.q) + (token_ * p_.num_heads + h) * bytes,
        p_.head_size, q.data()));
    scores_.assign(rows_.size(), 0);
    for (size_t j = 0; j < rows_.size(); ++j) {
      for (int64_t d = 0; d < p_.head_size; ++d) {
        scores_[j] += static_cast<double>(q[d]) * rows_[j][d];
      }
      scores_[j] *= p_.scale;
    }
    return absl::OkStatus();
  }

  // Steps 3 to 5.
  absl::Status Head(int64_t h) {
    PF_RETURN_IF_ERROR(Scores(h));
    double max = -kInfinity;
    for (double s : scores_) {
      if (s > max || std::isnan(s)) max = s;  // NaN stays, and shows in the sum
    }
    std::vector<float> out(p_.value_size, 0.0f);
    double lse = kInfinity;
    if (max != -kInfinity) {
      double sum = 0;
      std::vector<double> values(p_.value_size, 0);
      for (size_t j = 0; j < rows_.size(); ++j) {
        const double e = std::exp(scores_[j] - max);
        sum += e;
        for (int64_t d = 0; d < p_.value_size; ++d) values[d] += e * rows_[j][d];
      }
      lse = max + std::log(sum);
      const double factor = p_.sink == nullptr ? 1 : 1 / (1 + std::exp(p_.sink[h] - lse));
      for (int64_t d = 0; d < p_.value_size; ++d) {
        out[d] = static_cast<float>(values[d] / sum * factor);
      }
    }
    const int64_t row = token_ * p_.num_heads + h;
    if (p_.lse != nullptr) p_.lse[row] = static_cast<float>(lse);
    const int64_t bytes = p_.value_size * BitWidth(p_.query_type) / 8;
    return EncodeFromFloat(p_.query_type, out.data(), p_.value_size,
                           static_cast<std::byte*>(p_.out) + row * bytes);
  }

  const SparseMlaProblem& p_;
  const int64_t token_;
  std::vector<std::vector<float>> rows_;
  std::vector<double> scores_;
};

}  // namespace

absl::Status RunSparseMlaReference(const SparseMlaProblem& p) {
  std::vector<RowAddress> rows;
  if (!p.dense) {
    for (int64_t t = 0; t < p.num_tokens; ++t) {
      rows.clear();
      p.AppendListed(t, 0, std::numeric_limits<int64_t>::max(), rows);
      PF_RETURN_IF_ERROR(TokenAttention(p, t).Run(rows));
    }
    return absl::OkStatus();
  }
  for (int64_t b = 0; b < p.num_sequences; ++b) {
    for (int64_t i = 0; i < p.num_queries(b); ++i) {
      rows.clear();
      p.AppendPositions(b, 0, p.VisibleRows(b, i), rows);
      PF_RETURN_IF_ERROR(TokenAttention(p, p.query_start_loc[b] + i).Run(rows));
    }
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
