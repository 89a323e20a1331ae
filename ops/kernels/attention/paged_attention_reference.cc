// SPDX-License-Identifier: Apache-2.0
// PagedAttention as it is defined: one row at a time, step by step, sums in double.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ops/kernels/attention/paged_attention_problem.h"
#include "pagefuse/ops/kernels/numeric/convert.h"

namespace pagefuse {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What passing through type C does to values.
absl::Status RoundToComputeType(const PagedAttentionProblem& p, std::vector<float>& values) {
  if (p.compute_type != DataType::kFloat16 && p.compute_type != DataType::kBfloat16) {
    return absl::OkStatus();
  }
  return RoundThrough(p.compute_type, values.data(), static_cast<int64_t>(values.size()));
}

// x times the Sylvester-Hadamard matrix, (-1)^(number of common one bits of row and column).
std::vector<float> HadamardProduct(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (size_t row = 0; row < x.size(); ++row) {
    double sum = 0;
    for (size_t column = 0; column < x.size(); ++column) {
      sum += std::popcount(row & column) % 2 == 0 ? x[column] : -x[column];
    }
    y[row] = static_cast<float>(sum);
  }
  return y;
}

// One cached row in type C, and the factor that is applied outside of it.
struct CachedRow {
  std::vector<float> values;
  float scale = 1;
};

class RowAttention {
 public:
  RowAttention(const PagedAttentionProblem& p, int64_t b, int64_t i, int64_t h)
      : p_(p), b_(b), i_(i), h_(h), position_(p.context(b) + i) {}

  absl::Status Run() {
    PF_RETURN_IF_ERROR(LoadQuery());
    PF_RETURN_IF_ERROR(Scores());
    PF_RETURN_IF_ERROR(Values());
    return Store();
  }

 private:
  int64_t token() const { return p_.query_start_loc[b_] + i_; }
  bool transforms() const { return p_.format.needs_signs(); }
  bool f8_query() const { return p_.compute_type == DataType::kFloat8E4M3FN; }

  absl::Status LoadQuery() {
    query_.resize(p_.head_size);
    const int64_t bytes = p_.head_size * BitWidth(p_.compute_type) / 8;
    const auto* from =
        static_cast<const std::byte*>(p_.query) + (token() * p_.num_heads + h_) * bytes;
    PF_RETURN_IF_ERROR(DecodeToFloat(p_.compute_type, from, p_.head_size, query_.data()));
    if (p_.turboquant && p_.turboquant->format.has_centroids()) {
      const std::vector<float> row = query_;
      RotateTurboQuant(p_.turboquant->tables.rotation, row.data(), p_.head_size, query_.data());
    }
    if (!transforms()) return absl::OkStatus();
    for (int64_t d = 0; d < p_.head_size; ++d) query_[d] *= p_.rht_signs[d];
    query_ = HadamardProduct(query_);
    return RoundToComputeType(p_, query_);
  }

  // The key or the value of a TurboQuant slot.
  CachedRow LoadTurboQuant(const CacheRows& rows, int64_t j) const {
    const TurboQuantCache& cache = *p_.turboquant;
    CachedRow result;
    result.values.resize(p_.head_size);
    const uint8_t* slot = p_.Row(p_.keys, b_, j, h_ / p_.group()).data;
    if (&rows == &p_.values) {
      DecodeTurboQuantValue(cache.format, slot, result.values.data());
      return result;
    }
    result.scale = DecodeTurboQuantKey(cache.format, cache.tables.centroids, cache.norm_correction,
                                       slot, result.values.data());
    return result;
  }

  // Step 1.
  absl::StatusOr<CachedRow> LoadRow(const CacheRows& rows, float tensor_scale, int64_t j) const {
    if (p_.turboquant) return LoadTurboQuant(rows, j);
    CachedRow result;
    result.values.resize(p_.head_size);
    const RowParams params{.tensor_scale = f8_query() ? 1 : tensor_scale};
    result.scale = DecodeRow(p_.format, params, p_.Row(rows, b_, j, h_ / p_.group()), p_.head_size,
                             result.values.data());
    const RowOperand operand = p_.format.row().operand;
    if (operand == RowOperand::kCode) return result;
    for (float& x : result.values) x *= result.scale;
    result.scale = 1;
    if (operand == RowOperand::kNumber) PF_RETURN_IF_ERROR(RoundToComputeType(p_, result.values));
    return result;
  }

  // Step 5.
  bool IsVisible(int64_t j) const {
    const AttentionRules& a = p_.rules;
    const int64_t p = position_;
    const bool causal = p_.is_causal(b_);
    bool inside_window = true;
    if (const int64_t chunk = a.chunk_size(); chunk > 0) {
      const int64_t own = p >= 0 ? p / chunk : -1;
      inside_window = own - j / chunk <= a.chunk_lookback;
    } else if (a.sliding_window > 0) {
      inside_window = p - j < a.sliding_window && (causal || j - p < a.sliding_window);
    }
    const bool base = (!causal || j <= p) && inside_window;
    bool image = false;
    for (int64_t r = 0; r < p_.num_ranges; ++r) {
      const int64_t first = p_.ranges[(b_ * p_.num_ranges + r) * 2];
      const int64_t last = p_.ranges[(b_ * p_.num_ranges + r) * 2 + 1];
      image = image || (first < last && first <= p && p <= last && first <= j && j <= last);
    }
    if (a.mm_prefix_clamp_window) image = image && inside_window;
    return base || image;
  }

  // Step 6.
  float Bias(int64_t j) const {
    float bias = 0;
    const int64_t relative = j - p_.context(b_);
    if (p_.alibi_slopes != nullptr) {
      const float slope = p_.alibi_slopes[h_];
      if (!p_.rules.use_alibi_sqrt) {
        bias += slope * static_cast<float>(relative);
      } else if (j <= position_) {
        bias -= slope * std::sqrt(static_cast<float>(position_ - j));
      }
    }
    if (relative >= 0 && relative < p_.qq_size) bias += p_.qq_bias[i_ * p_.qq_size + relative];
    return bias;
  }

  // Steps 2 to 6.
  absl::Status Scores() {
    const float cap = p_.rules.softcap;
    for (int64_t j = 0; j < p_.length(b_); ++j) {
      if (!IsVisible(j)) continue;
      PF_ASSIGN_OR_RETURN(const CachedRow key, LoadRow(p_.keys, p_.k_scale, j));
      double dot = 0;
      for (int64_t d = 0; d < p_.head_size; ++d) {
        dot += static_cast<double>(query_[d]) * key.values[d];
      }
      float factor = p_.scale * key.scale;
      if (f8_query()) factor = p_.scale * p_.q_scale * p_.k_scale;
      if (transforms()) factor = p_.scale / static_cast<float>(p_.head_size);
      float s = static_cast<float>(dot) * factor;
      if (cap > 0) s = cap * std::tanh(s / cap);
      keys_.push_back(j);
      scores_.push_back(s + Bias(j));
    }
    return absl::OkStatus();
  }

  // Steps 7 and 8.
  absl::Status Values() {
    float sink = -kInfinity;
    if (p_.head_sink != nullptr) {
      const int64_t bytes = BitWidth(p_.sink_type) / 8;
      PF_RETURN_IF_ERROR(DecodeToFloat(
          p_.sink_type, static_cast<const std::byte*>(p_.head_sink) + h_ * bytes, 1, &sink));
    }
    double max = sink;
    for (float s : scores_) max = std::max<double>(max, s);
    if (std::isinf(max)) max = 0;
    double sum = std::exp(sink - max);
    std::vector<double> values(p_.head_size, 0);
    for (size_t k = 0; k < keys_.size(); ++k) {
      const double e = std::exp(scores_[k] - max);
      sum += e;
      PF_ASSIGN_OR_RETURN(const CachedRow value, LoadRow(p_.values, p_.v_scale, keys_[k]));
      for (int64_t d = 0; d < p_.head_size; ++d) values[d] += e * value.scale * value.values[d];
    }
    output_.assign(p_.head_size, 0);
    lse_ = -kInfinity;
    if (sum == 0) return absl::OkStatus();
    lse_ = static_cast<float>(max + std::log(sum));
    for (int64_t d = 0; d < p_.head_size; ++d) output_[d] = static_cast<float>(values[d] / sum);
    return absl::OkStatus();
  }

  // Steps 9 and 10.
  absl::Status Store() {
    if (f8_query()) {
      for (float& o : output_) o *= p_.v_scale;
    }
    if (transforms()) {
      PF_RETURN_IF_ERROR(RoundToComputeType(p_, output_));
      output_ = HadamardProduct(output_);
      for (int64_t d = 0; d < p_.head_size; ++d) {
        output_[d] = output_[d] * p_.rht_signs[d] / static_cast<float>(p_.head_size);
      }
      PF_RETURN_IF_ERROR(RoundToComputeType(p_, output_));
    }
    if (p_.output_scale != nullptr) {
      const float inverse = 1.0f / *p_.output_scale;
      for (float& o : output_) o *= inverse;
    }
    for (float& o : output_) o = p_.rules.ResultOf(o);
    if (p_.lse != nullptr) p_.lse[h_ * p_.num_tokens + token()] = lse_;
    // A uint8 output is the twin of float8e4m3fn; encoding to that saturates at 448.
    const DataType type =
        p_.output_type == DataType::kUint8 ? DataType::kFloat8E4M3FN : p_.output_type;
    const int64_t bytes = p_.head_size * BitWidth(type) / 8;
    auto* to = static_cast<std::byte*>(p_.output) + (token() * p_.num_heads + h_) * bytes;
    return EncodeFromFloat(type, output_.data(), p_.head_size, to);
  }

  const PagedAttentionProblem& p_;
  const int64_t b_, i_, h_;
  const int64_t position_;
  std::vector<float> query_, scores_, output_;
  std::vector<int64_t> keys_;
  float lse_ = 0;
};

absl::Status RunSequence(const PagedAttentionProblem& problem, int64_t b) {
  for (int64_t i = 0; i < problem.num_queries(b); ++i) {
    for (int64_t h = 0; h < problem.num_heads; ++h) {
      PF_RETURN_IF_ERROR(RowAttention(problem, b, i, h).Run());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPagedAttentionReference(const PagedAttentionProblem& problem) {
  for (int64_t b = 0; b < problem.num_sequences; ++b) {
    PF_RETURN_IF_ERROR(RunSequence(problem, b));
  }
  return absl::OkStatus();
}

}  // namespace pagefuse
