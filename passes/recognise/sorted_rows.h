// SPDX-License-Identifier: Apache-2.0
// Reads rows that are sorted by the experts that they ask for, as exports of grouped products have
// them.
#pragma once

#include <optional>

#include "pagefuse/ir/graph/graph.h"
#include "pagefuse/ops/infer/infer.h"

namespace pagefuse {

// ids [N] put in order by a TopK of all of them, the smallest first.
struct SortedIds {
  Value* ids = nullptr;
  Value* sorted = nullptr;  // [N], the ids in order
  Value* order = nullptr;   // [N], where each of them stood
};

// The sort that gives the value, as its ids or as their places.
std::optional<SortedIds> SortOf(const Value* value, const SymbolicContents& contents);
// The sort among the readers of ids, or of all of them in one row.
std::optional<SortedIds> SortOfIds(const Value* ids, const SymbolicContents& contents);

// How many ids there are of each expert [E]: ScatterElements <reduction = "add"> (zeros [E], ids, ones),
// or the sum over rows of ones that are written where a TopK chose.
struct Counts {
  Value* ids = nullptr;
  int64_t experts = 0;
};
std::optional<Counts> CountsOf(const Value* value, const SymbolicContents& contents);

// One element of a list, behind views.
struct Place {
  const Value* list = nullptr;
  int64_t at = 0;
};
std::optional<Place> PlaceOf(const Value* value, const SymbolicContents& contents);

// How many ids are at most `expert`: one element of CumSum (counts).
struct Offset {
  Value* ids = nullptr;
  int64_t expert = 0;
  int64_t experts = 0;
};
std::optional<Offset> OffsetOf(const Value* value, const SymbolicContents& contents);
// The ids whose counts are this list, as they are or put together of their elements.
std::optional<Counts> JoinedCountsOf(const Value* list, const SymbolicContents& contents);

// The number that an order of N is divided by to give which of N / k rows each stood for; nullopt if it
// is not.
std::optional<int64_t> RowsQuotient(const Value* index, const SortedIds& sort,
                                    const SymbolicContents& contents);
// All elements are that number, as a constant or filled in.
bool IsAll(const Value* value, double number);

// Whether ids are never negative, and below `experts`: places among so many.
bool AreAmong(const Value* ids, int64_t experts);

}  // namespace pagefuse
