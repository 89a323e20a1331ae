// Parts that fusions by what is computed share: shapes of ports, the forms in which graphs hold
// cosines and sines, numbers that may be attributes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pagefuse/passes/fuse/fusion_search.h"

namespace pagefuse {

// The number of a dim counted from the end (1: the last); -1 if it is none.
int64_t BackDim(const Value& value, int from_end);
int Rank(const Value& value);  // -1 if unknown
bool IsIndexVector(const Value& value);
bool IsRowType(DataType type);  // float, float16, bfloat16

// True if the value has these last dims, and at least one before them: one or more axes of tokens.
bool EndsIn(const Value& value, const std::vector<int64_t>& tail);
// Rows of tokens that end in these dims.
FusionPort RowPort(std::string name, std::vector<int64_t> tail);
FusionPort SlotPort(std::string name = "slot_mapping");
FusionPort PositionPort(std::string name = "positions");
// A cache of the type and shape of what was written into it.
FusionPort CachePort(std::string name, const Value* written);

// One way to hold cosines and sines of the positions of tokens.
struct TableForm {
  std::vector<FusionPort> ports;
  std::string formal;   // the ports, as a text names them
  std::string prelude;  // defines `table` and `places`, a row of it for each token
  bool indexed = true;  // by positions, below the table's first dim
};
// Of one table [P, R], of two [P, R/2], and of rows that were taken from either before.
const std::vector<TableForm>& TableForms();
// The width R of the bound table; nullopt where its parts do not fit.
std::optional<int64_t> TableWidth(const TableForm& form, const BoundPorts& ports);
void SetTableLimit(const TableForm& form, const BoundPorts& ports, Draft& draft);

// Numbers of one element that products and quotients of what derives from `port` take; of a
// divisor, the reciprocal.
std::vector<float> FactorsOn(const ComputedRegion& region, const Value* port);
// Small floats that may be an epsilon, attributes of norms among them.
std::vector<float> Epsilons(const ComputedRegion& region);
// Integers of one element that quotients and remainders take, and 1.
std::vector<int64_t> Divisors(const std::vector<Node*>& nodes);

// Shapes as Reshape takes them: the dims but for one that is no number, which is -1; nullopt if
// more are none.
std::optional<std::string> ReshapeDims(const Value& value);
// A float with digits that give the same bits.
std::string FloatText(float value);
// ` <name> = Reshape (<of>, dims)` with its constant.
std::string ReshapeText(const std::string& name, const std::string& of, const std::string& dims);
// `name`: the port with one axis of tokens before the last dims.
std::string FlatText(const std::string& name, const std::string& port, const Value& value,
                     const std::vector<int64_t>& tail);
// `name`: `from` under the shape of `value`. The axes of tokens of more than one unknown length are
// those of the port `like`, before its last `tail` dims; empty where they are not.
std::string UnflatText(const std::string& name, const std::string& from, const Value& value,
                       const std::string& like, const Value& like_value, int tail);
// One way to hold the places of rows in a cache.
struct SlotForm {
  std::vector<FusionPort> ports;
  std::string formal;
  std::string text;   // defines `slots`, one axis
  std::string first;  // the port that has one element a row
};
// By slot; by block and place in the block. The cache has blocks of that many tokens.
std::vector<SlotForm> SlotForms(int64_t block_size);
void SetSlotLimits(int64_t blocks, int64_t block_size, Draft& draft);
// `name`: the port with one axis of tokens. One row is repeated for all slots where the graph may
// do so.
std::string RowsText(const std::string& name, const std::string& port, const BoundPorts& ports,
                     const SlotForm& slots, const std::vector<int64_t>& tail);

}  // namespace pagefuse
