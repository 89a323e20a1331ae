// SPDX-License-Identifier: Apache-2.0
// Values through other types: what wraps, rounds, or has no sign.
#include "change_parts.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/passes/edit/graph_edit.h"

namespace pagefuse::fuzz {
namespace {

constexpr DataType kTypes[] = {DataType::kBool,  DataType::kInt8,     DataType::kUint8,
                               DataType::kInt16, DataType::kInt32,    DataType::kUint32,
                               DataType::kInt64, DataType::kUint64,   DataType::kFloat16,
                               DataType::kFloat, DataType::kBfloat16, DataType::kDouble};

bool IsInteger64(const Value& value) { return testing::IsSignedInteger(&value); }
bool IsAnyFloat(const Value& value) { return testing::IsFloat(&value); }
bool IsBool(const Value& value) { return value.dtype() == DataType::kBool; }

Change Through(DataType type, const char* what, bool (*fits)(const Value&)) {
  return {"casts", StrCat(what, " through ", DataTypeName(type)),
          [type, fits](Node& node, Random& random) {
            return ReplaceInput(node, random, fits, [type](Rewriter& rewriter, Value* value) {
              return value->dtype() == type
                         ? nullptr
                         : rewriter.Cast(rewriter.Cast(value, type), value->dtype());
            });
          }};
}

// A Cast to another type, and from there to the one that is asked for.
Change CastOverAnother(DataType type) {
  return {"casts", StrCat("a Cast over ", DataTypeName(type)), [type](Node& node, Random&) {
            if (!node.Is("Cast") || !Varies(node.input(0)) || node.input(0)->dtype() == type ||
                node.output(0)->dtype() == type) {
              return false;
            }
            Rewriter rewriter(node);
            node.SetInput(0, rewriter.Cast(node.input(0), type));
            return true;
          }};
}

// Sums and comparisons of integers in another type.
Change ComputedIn(DataType type) {
  return {
      "casts", StrCat("integers computed in ", DataTypeName(type)), [type](Node& node, Random&) {
        const bool sum = testing::IsOneOf(node, {"Add", "Sub", "Mul", "Div", "Mod", "Neg"});
        const bool comparison =
            testing::IsOneOf(node, {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"});
        const DataType from =
            node.num_inputs() > 0 && node.input(0) ? node.input(0)->dtype() : DataType::kUndefined;
        const bool integers = from == DataType::kInt64 || from == DataType::kInt32;
        if (!(sum || comparison) || !integers || from == type) return false;
        Rewriter rewriter(node);
        std::vector<Value*> inputs;
        for (Value* input : node.inputs()) inputs.push_back(rewriter.Cast(input, type));
        Value* computed = rewriter.Add(node.op_type(), inputs);
        for (const auto& [name, attribute] : node.attributes()) {
          computed->producer()->SetAttribute(name, attribute);
        }
        return rewriter.ReplaceWith(sum ? rewriter.Cast(computed, from)
                                        : rewriter.Add("Identity", {computed}));
      }};
}

}  // namespace

std::vector<Change> TypeChanges() {
  std::vector<Change> changes;
  for (const DataType type : kTypes) {
    changes.push_back(Through(type, "integers", IsInteger64));
    if (type != DataType::kFloat) changes.push_back(Through(type, "floats", IsAnyFloat));
    if (type != DataType::kBool) changes.push_back(Through(type, "bools", IsBool));
    changes.push_back(CastOverAnother(type));
  }
  for (const DataType type :
       {DataType::kInt32, DataType::kUint8, DataType::kUint32, DataType::kUint64, DataType::kInt8,
        DataType::kFloat, DataType::kFloat16, DataType::kDouble}) {
    changes.push_back(ComputedIn(type));
  }
  return changes;
}

}  // namespace pagefuse::fuzz
