// SPDX-License-Identifier: Apache-2.0
// The cache of a paged graph as its metadata and inputs describe it: cache groups, cache tensors,
// and the inputs of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "pagefuse/ir/graph/model.h"
#include "pagefuse/runtime/paged_cache.h"
#include "pagefuse/runtime/step_record.h"

namespace pagefuse {

// A paged graph carries metadata_props "pagefuse.cache_groups" (cache_groups.h) and the inputs
// input_ids [T], positions [T] (i64), query_start_loc [B+1], seq_lens [B] (i32), logit_rows [R]
// (i64), the tokens of which logits are computed, for each group
// block_table.<name> [B, M] (i32) and slot_mapping.<name> [T] (i64), and each cache [num_blocks,
// block_size, ...], or uint8 [num_blocks, S] where the rows of a block lie in S bytes. Inputs that
// the graph dropped are not fed. Inputs [T] (i64) that metadata_props "pagefuse.zero_inputs", a
// JSON list of names, lists are fed zeros: token types.
class CacheLayout {
 public:
  struct CacheTensor {
    DataType dtype = DataType::kUndefined;
    std::vector<int64_t> block_dims;  // without the first dim
  };

  // FailedPrecondition if the model has no such metadata; InvalidArgument if it does not fit the
  // inputs.
  static absl::StatusOr<CacheLayout> FromModel(const Model& model);

  const std::vector<CacheGroup>& groups() const { return groups_; }
  // By input name.
  const std::map<std::string, CacheTensor>& tensors() const { return tensors_; }
  // Inputs that are fed a zero for each token.
  const std::vector<std::string>& zero_inputs() const { return zero_inputs_; }
  // By which a sequence grows with a token: all layers that keep all rows, scales and what fills
  // blocks up included, those of which windows make one row divided among the tokens.
  int64_t bytes_per_token() const;
  // That a sequence has besides, however long it is: sliding windows and states of compressors.
  int64_t bytes_per_sequence() const;
  // Blocks that sequences of these lengths need at most when they run at once with steps of at most
  // `step_tokens`: of a group, and of all groups, each in a page.
  int64_t BlocksFor(const CacheGroup& group, const std::vector<int64_t>& lengths,
                    int64_t step_tokens) const;
  int64_t PagesFor(const std::vector<int64_t>& lengths, int64_t step_tokens) const;

  // Caches that ops read which take dense tensors only: each has a tensor of its own, with a block for
  // each page.
  void KeepApart(const std::vector<std::string>& caches) {
    apart_ = {caches.begin(), caches.end()};
  }
  const std::set<std::string>& apart() const { return apart_; }
  // Of the largest block of a group, whose caches lie one behind the other.
  int64_t page_bytes() const;
  // What a page takes, with the blocks of caches that are kept apart.
  int64_t bytes_per_page() const;
  // So many can be told apart: blocks by int32 in tables, rows of all of them by int32 in lists.
  int64_t MostPages() const;
  // Whose memory a cache lies in.
  using MemoryOf = std::function<Allocator&(std::string_view cache)>;
  // The cache tensors by input name: views of their blocks in pages that those of one memory share, but
  // for those kept apart. Zeros, of which memory of the host is taken as they are written.
  absl::StatusOr<std::map<std::string, Tensor>> Allocate(
      int64_t num_pages, const MemoryOf& memory_of = OfTheHost) const;
  // The step's packed inputs, those that the graph has, in the order above.
  absl::Status WriteRecord(const std::vector<int64_t>& input_ids, const StepMetadata& step,
                           StepRecord& record) const;
  // Of one block of the group's caches together.
  int64_t BlockBytes(const CacheGroup& group) const;

 private:
  static Allocator& OfTheHost(std::string_view) { return HostAllocator(); }

  std::vector<CacheGroup> groups_;
  std::map<std::string, CacheTensor> tensors_;
  std::set<std::string> apart_;
  std::vector<std::string> inputs_;  // names of all graph inputs
  std::vector<std::string> zero_inputs_;
};

}  // namespace pagefuse
