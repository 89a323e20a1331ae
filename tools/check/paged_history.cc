// SPDX-License-Identifier: Apache-2.0
#include "tools/check/paged_history.h"

#include <algorithm>
#include <cstring>

namespace pagefuse {
namespace {

bool IsPast(const Tensor& feed) { return IsFloatingPoint(feed.dtype()); }

// Whether pasts [B, .., P, D] have the same bits wherever a token is kept; what stands at padding is
// anybody's choice.
bool AreSame(const Tensor& a, const Tensor& b, const PagedBatch& batch) {
  const std::vector<int64_t>& dims = b.dims();
  const bool has_tokens =
      dims.size() >= 3 && dims[0] == batch.batch && dims[dims.size() - 2] == batch.past;
  if (!a.defined() || a.dtype() != b.dtype() || a.dims() != dims || !has_tokens) return false;
  if (b.size() == 0) return true;
  const int64_t rows = b.size() / dims.back(), bytes = b.byte_size() / rows;
  const int64_t heads = rows / (batch.batch * batch.past);
  const auto* left = static_cast<const std::byte*>(a.data());
  const auto* right = static_cast<const std::byte*>(b.data());
  for (const PagedSequence& sequence : batch.sequences) {
    for (int64_t head = 0; head < heads; ++head) {
      for (const int64_t column : sequence.past) {
        const int64_t at = ((sequence.row * heads + head) * batch.past + column) * bytes;
        if (std::memcmp(left + at, right + at, bytes) != 0) return false;
      }
    }
  }
  return true;
}

bool GaveBack(const TestDataSet& earlier, const TestDataSet& later, const PagedBatch& batch) {
  bool any = false;
  for (const auto& named : later.feeds) {
    const Tensor& feed = named.second;
    if (!IsPast(feed)) continue;
    any = true;
    if (std::none_of(earlier.outputs.begin(), earlier.outputs.end(),
                     [&](const Tensor& output) { return AreSame(output, feed, batch); })) {
      return false;
    }
  }
  return any;
}

// Columns of past and new tokens that are kept.
std::vector<int64_t> Columns(const PagedBatch& batch, const PagedSequence& sequence) {
  std::vector<int64_t> columns = sequence.past;
  for (const int64_t column : sequence.columns) columns.push_back(batch.past + column);
  return columns;
}

const PagedSequence* RowOf(const PagedBatch& batch, int64_t row) {
  for (const PagedSequence& sequence : batch.sequences) {
    if (sequence.row == row) return &sequence;
  }
  return nullptr;
}

}  // namespace

std::optional<std::vector<std::vector<int64_t>>> FindHistory(const TestCase& test_case,
                                                             size_t index,
                                                             const PagedBatch& batch) {
  std::vector<std::vector<int64_t>> histories(batch.sequences.size());
  if (batch.past == 0) return histories;
  for (size_t i = 0; i < test_case.data_sets.size(); ++i) {
    const TestDataSet& earlier = test_case.data_sets[i];
    if (i == index || !GaveBack(earlier, test_case.data_sets[index], batch)) continue;
    const absl::StatusOr<PagedBatch> before = ReadPagedBatch(earlier);
    if (!before.ok() || before->past + before->length != batch.past) continue;
    const auto first = FindHistory(test_case, i, *before);
    if (!first) continue;
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const PagedSequence* source = RowOf(*before, batch.sequences[s].row);
      if (!source || Columns(*before, *source) != batch.sequences[s].past) return std::nullopt;
      histories[s] = (*first)[source - before->sequences.data()];
      histories[s].insert(histories[s].end(), source->tokens.begin(), source->tokens.end());
    }
    return histories;
  }
  return std::nullopt;
}

}  // namespace pagefuse
