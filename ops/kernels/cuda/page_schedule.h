// SPDX-License-Identifier: Apache-2.0
// The pages that a step's sequences read, as one list that is cut evenly over the CTAs of a kernel: no number of splits to choose, and
// batches of any lengths balance. Compiles for hosts and devices.
//
// Heads come in chunks; the list has all pages of the sequences for the first chunk, then for the next one. What a CTA has of one sequence and
// chunk is a piece.
#pragma once

#include <cstdint>

#include "pagefuse/ops/kernels/attention/attention_batch.h"

namespace pagefuse::cuda {

// Keys that the one token of a sequence sees; empty where it has no token. It is the last one, so that causality hides no key from it, and lengths
// have 32 bits.
constexpr KeyInterval KeysOfToken(const AttentionBatch& batch, int64_t b) {
  const int length = batch.seq_lens[b];
  const int32_t* starts = batch.query_start_loc;
  if (length <= 0 || (starts != nullptr && starts[b + 1] <= starts[b])) return {};
  const AttentionRules& rules = batch.rules;
  int begin = 0;
  if (const int64_t chunk = rules.chunk_size(); chunk > 0) {
    const int64_t own = (length - 1) / chunk - rules.chunk_lookback;
    begin = static_cast<int>(std::max<int64_t>(0, own) * chunk);
  } else if (rules.sliding_window > 0 && rules.sliding_window < length) {
    begin = length - static_cast<int>(rules.sliding_window);
  }
  return {begin, std::min<int64_t>(length, batch.table_columns * batch.block_size)};
}

// Pages with some of these keys.
struct PageRange {
  int first = 0, count = 0;
};
constexpr PageRange PagesOf(KeyInterval keys, int page_size) {
  if (keys.empty()) return {};
  const auto size = static_cast<uint32_t>(page_size);
  const auto first = static_cast<uint32_t>(keys.begin) / size;
  const auto last = static_cast<uint32_t>(keys.end - 1) / size;
  return {static_cast<int>(first), static_cast<int>(last - first) + 1};
}

// A view of how many pages the sequences have. total() * ctas is below 2^32.
struct PageSchedule {
  // Of `ctas` CTAs as many as have `least` pages or more; one at least. The others are not the schedule's.
  static constexpr PageSchedule Of(const int32_t* starts, int sequences, int chunks, int ctas,
                                   int least) {
    PageSchedule schedule = {starts, sequences, chunks, 1};
    schedule.ctas = std::max(1, std::min(ctas, schedule.total() / least));
    return schedule;
  }

  const int32_t* starts = nullptr;  // [sequences + 1]: pages of the sequences before
  int sequences = 0;
  int chunks = 1;
  int ctas = 1;

  constexpr int pages() const { return starts[sequences]; }
  constexpr int total() const { return pages() * chunks; }
  // Entries [First(cta), First(cta + 1)) of the list are the CTA's.
  constexpr int First(int cta) const {
    return static_cast<int>(static_cast<uint32_t>(total()) * cta / static_cast<uint32_t>(ctas));
  }
  // The CTA that has an entry.
  constexpr int CtaOf(int entry) const {
    return static_cast<int>((static_cast<uint32_t>(entry + 1) * ctas - 1) /
                            static_cast<uint32_t>(total()));
  }
  // The sequence and chunk of an entry, and their entries.
  struct Place {
    int sequence, chunk;
    int first, end;
  };
  constexpr Place PlaceOf(int entry) const {
    const int chunk = chunks == 1 ? 0 : entry / pages();
    const int before = chunk * pages();
    const int page = entry - before;
    int low = 0, high = sequences;  // starts[low] <= page < starts[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (starts[middle] <= page) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return {low, chunk, before + starts[low], before + starts[low + 1]};
  }
  // Both as one number: chunk * sequences + sequence.
  constexpr int OwnerOf(int entry) const {
    const Place place = PlaceOf(entry);
    return place.chunk * sequences + place.sequence;
  }
  constexpr int FirstEntryOf(int owner) const {
    if (chunks == 1) return starts[owner];
    return owner / sequences * pages() + starts[owner % sequences];
  }
  constexpr int EndOf(int owner) const {
    if (chunks == 1) return starts[owner + 1];
    return owner / sequences * pages() + starts[owner % sequences + 1];
  }
  // Where a piece's result goes: pieces in the order of the list have ascending numbers, as either the owner or the CTA is a later one.
  constexpr int SlotOf(int owner, int cta) const { return owner + cta; }
  constexpr int num_slots() const { return sequences * chunks + ctas; }
};

}  // namespace pagefuse::cuda
