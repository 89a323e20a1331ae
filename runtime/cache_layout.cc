// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/cache_layout.h"

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

constexpr std::string_view kZeroInputsKey = "pagefuse.zero_inputs";

// The names that the metadata lists, each an input of one int64 for each token.
absl::StatusOr<std::vector<std::string>> ParseZeroInputs(const Model& model) {
  std::vector<std::string> names;
  const auto text = FindMetadata(model.metadata, kZeroInputsKey);
  if (!text) return names;
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return absl::InvalidArgumentError(
        StrCat("metadata \"", kZeroInputsKey, "\": expected a JSON list"));
  }
  for (const auto& name : json) {
    const Value* input = name.is_string() ? model.graph->FindValue(std::string(name)) : nullptr;
    if (!input || !input->is_input() || input->dtype() != DataType::kInt64 || !input->shape() ||
        input->shape()->rank() != 1) {
      return absl::InvalidArgumentError(
          StrCat("metadata \"", kZeroInputsKey, "\": expected names of inputs int64[num_tokens]"));
    }
    names.push_back(name);
  }
  return names;
}

// A cache is [num_blocks, block_size, ...], or bytes whose rows only the ops find, [num_blocks, S].
absl::StatusOr<CacheLayout::CacheTensor> ReadCache(const Graph& graph, const CacheGroup& group,
                                                   const std::string& name) {
  const Value* value = graph.FindValue(name);
  if (!value || !value->is_input() || !value->shape() || value->shape()->rank() < 2) {
    return absl::InvalidArgumentError(StrCat("cache \"", name, "\" is no input of the graph"));
  }
  const std::vector<Dim> block(value->shape()->dims().begin() + 1, value->shape()->dims().end());
  const auto dims = Shape(block).constant();
  const bool is_bytes = value->dtype() == DataType::kUint8 && block.size() == 1;
  if (dims && (is_bytes || dims->front() == group.block_size)) {
    return CacheLayout::CacheTensor{.dtype = value->dtype(), .block_dims = *dims};
  }
  return absl::InvalidArgumentError(
      StrCat("cache \"", name, "\": expected [num_blocks, ", group.block_size,
             ", ...] or bytes [num_blocks, S], got ", value->shape()->ToString()));
}

// Of a block.
int64_t BytesOf(const CacheLayout::CacheTensor& cache) {
  int64_t elements = 1;
  for (const int64_t dim : cache.block_dims) elements *= dim;
  return elements * BitWidth(cache.dtype) / 8;
}

// Blocks begin at cache lines.
int64_t RoundUpToLine(int64_t bytes) {
  constexpr int64_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

absl::StatusOr<CacheLayout> CacheLayout::FromModel(const Model& model) {
  auto groups = ReadCacheGroups(model);
  if (groups.status().code() == absl::StatusCode::kNotFound) {
    return absl::FailedPreconditionError(
        "the graph has no paged cache: insert-paged-cache did not rewrite it");
  }
  PF_RETURN_IF_ERROR(groups.status());
  CacheLayout layout;
  layout.groups_ = *std::move(groups);
  PF_ASSIGN_OR_RETURN(layout.zero_inputs_, ParseZeroInputs(model));
  for (const Value* input : model.graph->inputs()) layout.inputs_.push_back(input->name());
  for (const CacheGroup& group : layout.groups_) {
    for (const std::string& name : group.caches) {
      PF_ASSIGN_OR_RETURN(layout.tensors_[name], ReadCache(*model.graph, group, name));
    }
  }
  return layout;
}

int64_t CacheLayout::BlockBytes(const CacheGroup& group) const {
  int64_t bytes = 0;
  for (const std::string& name : group.caches) bytes += BytesOf(tensors_.at(name));
  return bytes;
}

int64_t CacheLayout::bytes_per_token() const {
  double bytes = 0;
  for (const CacheGroup& group : groups_) {
    if (group.sliding_window > 0) continue;
    const int64_t block_tokens = group.block_size * group.tokens_per_row();
    bytes += static_cast<double>(BlockBytes(group)) / static_cast<double>(block_tokens);
  }
  return std::llround(bytes);
}

int64_t CacheLayout::bytes_per_sequence() const {
  double bytes = 0;
  for (const CacheGroup& group : groups_) {
    const double blocks =
        static_cast<double>(group.sliding_window) / static_cast<double>(group.block_size);
    bytes += static_cast<double>(BlockBytes(group)) * blocks;
  }
  return std::llround(bytes);
}

int64_t CacheLayout::BlocksFor(const CacheGroup& group, const std::vector<int64_t>& lengths,
                               int64_t step_tokens) const {
  int64_t blocks = 0;
  for (int64_t length : lengths) {
    int64_t needed = BlocksOfRows(group.RowsOf(length), group.block_size);
    const int64_t outside = length - group.sliding_window;
    if (group.sliding_window > 0 && step_tokens < outside) {
      // The window, the step's own tokens, and one block cut at either end.
      needed =
          std::min(needed, BlocksOfRows(group.sliding_window + step_tokens, group.block_size) + 2);
    }
    blocks += needed;
  }
  return blocks;
}

int64_t CacheLayout::PagesFor(const std::vector<int64_t>& lengths, int64_t step_tokens) const {
  int64_t pages = 0;
  for (const CacheGroup& group : groups_) pages += BlocksFor(group, lengths, step_tokens);
  return pages;
}

int64_t CacheLayout::page_bytes() const {
  int64_t bytes = 0;
  for (const CacheGroup& group : groups_) {
    int64_t block = 0;
    for (const std::string& name : group.caches) {
      if (!apart_.contains(name)) block += RoundUpToLine(BytesOf(tensors_.at(name)));
    }
    bytes = std::max(bytes, block);
  }
  return bytes;
}

int64_t CacheLayout::bytes_per_page() const {
  int64_t bytes = page_bytes();
  for (const std::string& name : apart_) bytes += BytesOf(tensors_.at(name));
  return bytes;
}

int64_t CacheLayout::MostPages() const {
  int64_t rows = 1;
  for (const CacheGroup& group : groups_) rows = std::max(rows, group.block_size);
  return PagePool::kMaxPages / rows;
}

absl::StatusOr<std::map<std::string, Tensor>> CacheLayout::Allocate(
    int64_t num_pages, const MemoryOf& memory_of) const {
  const int64_t stride = page_bytes();
  const auto bytes = CheckedMul(num_pages, stride);
  if (!bytes) {
    return absl::ResourceExhaustedError(
        StrCat("expected bytes in 64 bits, got ", num_pages, " pages of ", stride));
  }
  std::map<Allocator*, std::shared_ptr<Buffer>> pools;
  std::map<std::string, Tensor> tensors;
  for (const CacheGroup& group : groups_) {
    int64_t offset = 0;
    for (const std::string& name : group.caches) {
      const CacheTensor& cache = tensors_.at(name);
      std::vector<int64_t> dims = {num_pages};
      dims.insert(dims.end(), cache.block_dims.begin(), cache.block_dims.end());
      Allocator& memory = memory_of(name);
      if (apart_.contains(name)) {
        PF_ASSIGN_OR_RETURN(tensors[name], Tensor::Allocate(cache.dtype, std::move(dims), memory));
        continue;
      }
      std::shared_ptr<Buffer>& pages = pools[&memory];
      if (pages == nullptr) {
        PF_ASSIGN_OR_RETURN(pages, Buffer::Allocate(*bytes, memory));
      }
      PF_ASSIGN_OR_RETURN(tensors[name],
                          Tensor::Blocks(cache.dtype, std::move(dims), pages, offset, stride));
      offset += RoundUpToLine(BytesOf(cache));
    }
  }
  return tensors;
}

absl::Status CacheLayout::WriteRecord(const std::vector<int64_t>& input_ids,
                                      const StepMetadata& step, StepRecord& record) const {
  const auto tokens = static_cast<int64_t>(input_ids.size());
  const auto sequences = static_cast<int64_t>(step.seq_lens.size());
  const auto rows = static_cast<int64_t>(step.logit_rows.size());
  const auto add = [&](std::string_view name, std::vector<int64_t> dims,
                       const auto& values) -> absl::Status {
    if (std::ranges::count(inputs_, name) == 0) return absl::OkStatus();
    return record.Add(name, std::move(dims), std::span(values));
  };
  record.Clear();
  PF_RETURN_IF_ERROR(add("input_ids", {tokens}, input_ids));
  PF_RETURN_IF_ERROR(add("positions", {tokens}, step.positions));
  PF_RETURN_IF_ERROR(add("query_start_loc", {sequences + 1}, step.query_start_loc));
  PF_RETURN_IF_ERROR(add("seq_lens", {sequences}, step.seq_lens));
  PF_RETURN_IF_ERROR(add("logit_rows", {rows}, step.logit_rows));
  for (size_t g = 0; g < groups_.size(); ++g) {
    const StepMetadata::Group& group = step.groups[g];
    PF_RETURN_IF_ERROR(add(StrCat("block_table.", groups_[g].name), {sequences, group.max_blocks},
                           group.block_table));
    PF_RETURN_IF_ERROR(add(StrCat("slot_mapping.", groups_[g].name), {tokens}, group.slot_mapping));
  }
  const std::vector<int64_t> zeros(zero_inputs_.empty() ? 0 : input_ids.size(), 0);
  for (const std::string& name : zero_inputs_) PF_RETURN_IF_ERROR(add(name, {tokens}, zeros));
  return absl::OkStatus();
}

}  // namespace pagefuse
