// SPDX-License-Identifier: Apache-2.0
#include "tools/check/paged_batch.h"

#include <cstring>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

struct Matrix {
  std::vector<int64_t> dims;
  std::vector<int64_t> values;
};

absl::StatusOr<Matrix> ReadMatrix(const TestDataSet& data, const std::string& name) {
  const auto feed = data.feeds.find(name);
  if (feed == data.feeds.end()) {
    return NoPagedCounterpart(data, StrCat("there is no data for input \"", name, "\""));
  }
  auto values = IntegerValues(feed->second);
  if (!values.ok() || feed->second.rank() != 2) {
    return NoPagedCounterpart(
        data, StrCat("input \"", name, "\": expected integers [B, S], got ",
                     DataTypeName(feed->second.dtype()), DimsToString(feed->second.dims())));
  }
  return Matrix{feed->second.dims(), *std::move(values)};
}

// The paged path numbers the tokens that are kept, from 0.
absl::Status CheckPositions(const TestDataSet& data, const PagedBatch& batch) {
  if (!data.feeds.contains("position_ids")) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const Matrix positions, ReadMatrix(data, "position_ids"));
  if (positions.dims != std::vector<int64_t>{batch.batch, batch.length}) {
    return NoPagedCounterpart(data, StrCat("input \"position_ids\": expected the shape of ids ",
                                           DimsToString({batch.batch, batch.length}), ", got ",
                                           DimsToString(positions.dims)));
  }
  for (const PagedSequence& sequence : batch.sequences) {
    auto expected = static_cast<int64_t>(sequence.past.size());
    for (const int64_t column : sequence.columns) {
      const int64_t given = positions.values[sequence.row * batch.length + column];
      if (given == expected++) continue;
      return NoPagedCounterpart(
          data, StrCat("input \"position_ids\" at [", sequence.row, ", ", column, "]: expected ",
                       expected - 1, ", as many tokens as are before it, got ", given));
    }
  }
  return absl::OkStatus();
}

PagedSequence ReadSequence(const PagedBatch& batch, int64_t row, const Matrix& ids,
                           const Matrix& mask) {
  PagedSequence sequence{.row = row};
  const int64_t total = batch.past + batch.length;
  for (int64_t column = 0; column < total; ++column) {
    if (mask.values[row * total + column] == 0) continue;
    if (column < batch.past) {
      sequence.past.push_back(column);
      continue;
    }
    sequence.columns.push_back(column - batch.past);
    sequence.tokens.push_back(ids.values[row * batch.length + column - batch.past]);
  }
  return sequence;
}

bool IsLogitType(DataType type) {
  return type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

// Whether the logits are those of the last columns alone; Unimplemented for any other shape.
absl::StatusOr<bool> AreLastRows(const TestDataSet& data, const PagedBatch& batch,
                                 const Tensor& logits) {
  const std::vector<int64_t>& dims = logits.dims();
  const int rank = logits.rank();
  const bool of_batch = (rank == 2 || rank == 3) && dims[0] == batch.batch && dims.back() > 0;
  if (of_batch && rank == 3 && dims[1] == batch.length) return false;
  if (of_batch && (rank == 2 || dims[1] == 1)) return true;
  return NoPagedCounterpart(
      data, StrCat("the expected logits: expected [", batch.batch, ", ", batch.length,
                   ", V], or [B, 1, V] or [B, V] of last tokens, got ", DimsToString(dims)));
}

}  // namespace

absl::Status NoPagedCounterpart(const TestDataSet& data, std::string_view why) {
  return absl::UnimplementedError(StrCat("not checked through the paged cache: ", data.name,
                                         data.name.empty() ? "" : ": ", why));
}

absl::StatusOr<PagedBatch> ReadPagedBatch(const TestDataSet& data) {
  PF_ASSIGN_OR_RETURN(const Matrix ids, ReadMatrix(data, "input_ids"));
  PF_ASSIGN_OR_RETURN(const Matrix mask, ReadMatrix(data, "attention_mask"));
  if (mask.dims[0] != ids.dims[0] || mask.dims[1] < ids.dims[1]) {
    return NoPagedCounterpart(
        data, StrCat("input \"attention_mask\": expected [B, T] with T >= S ", "for ids ",
                     DimsToString(ids.dims), ", got ", DimsToString(mask.dims)));
  }
  PagedBatch batch{.batch = ids.dims[0], .length = ids.dims[1]};
  batch.past = mask.dims[1] - batch.length;
  for (int64_t row = 0; row < batch.batch; ++row) {
    PagedSequence sequence = ReadSequence(batch, row, ids, mask);
    batch.hidden += batch.length - static_cast<int64_t>(sequence.tokens.size());
    if (!sequence.tokens.empty()) batch.sequences.push_back(std::move(sequence));
  }
  if (batch.sequences.empty()) return NoPagedCounterpart(data, "all tokens are padding");
  PF_RETURN_IF_ERROR(CheckPositions(data, batch));
  return batch;
}

absl::StatusOr<PagedLogits> ReadPagedLogits(const TestDataSet& data, const PagedBatch& batch,
                                            int index) {
  const Tensor logits =
      index < static_cast<int>(data.outputs.size()) ? data.outputs[index] : Tensor();
  if (!logits.defined()) {
    return NoPagedCounterpart(data, "there are no expected logits to compare with");
  }
  if (!IsLogitType(logits.dtype())) {
    return NoPagedCounterpart(data, StrCat("the expected logits: expected float, float16 or ",
                                           "bfloat16, got ", DataTypeName(logits.dtype())));
  }
  PF_ASSIGN_OR_RETURN(const bool last, AreLastRows(data, batch, logits));
  std::vector<int64_t> sources;  // rows of the expected logits
  PagedLogits result;
  int64_t packed = 0;
  for (const PagedSequence& sequence : batch.sequences) {
    for (const int64_t column : sequence.columns) {
      const int64_t position = packed++;
      if (last && column != batch.length - 1) continue;
      sources.push_back(last ? sequence.row : sequence.row * batch.length + column);
      result.positions.push_back(position);
    }
  }
  if (sources.empty()) return NoPagedCounterpart(data, "the last token of all rows is padding");
  const int64_t columns = logits.dims().back();
  PF_ASSIGN_OR_RETURN(
      result.rows,
      Tensor::Allocate(logits.dtype(), {static_cast<int64_t>(sources.size()), columns}));
  const int64_t bytes = columns * BitWidth(logits.dtype()) / 8;
  auto* to = static_cast<std::byte*>(result.rows.mutable_data());
  for (size_t i = 0; i < sources.size(); ++i) {
    std::memcpy(to + i * bytes, static_cast<const std::byte*>(logits.data()) + sources[i] * bytes,
                bytes);
  }
  return result;
}

}  // namespace pagefuse
