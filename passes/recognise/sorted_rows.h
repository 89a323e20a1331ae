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
// The sort among the readers of ids.
std::optional<SortedIds> SortOfIds(const Value* ids, const SymbolicContents& contents);

// How many ids are at most `expert`: CumSum (ScatterElements <reduction = "add"> (zeros [E], ids, ones)),
// one element of it, behind views.
struct Offset {
  Value* ids = nullptr;
  int64_t expert = 0;
  int64_t experts = 0;
};
std::optional<Offset> OffsetOf(const Value* value, const SymbolicContents& contents);

// Whether ids are never negative, and below `experts`: places among so many.
bool AreAmong(const Value* ids, int64_t experts);

}  // namespace pagefuse
