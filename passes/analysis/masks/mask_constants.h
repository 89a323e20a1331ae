// Masks of constants: one number everywhere, triangles that Trilu cuts, and what a model holds.
#pragma once

#include <functional>
#include <optional>

#include "absl/status/statusor.h"

#include "pagefuse/passes/analysis/masks/constant_mask.h"
#include "pagefuse/passes/analysis/masks/mask_reader.h"

namespace pagefuse {

// The number in a constant with one element.
std::optional<double> MaskNumber(const Value* value);

// The number that a value holds everywhere: a constant of one element, repeated or not, or
// ConstantOfShape; nullopt for another value.
std::optional<double> MaskFill(const Value* value);

// Adding it hides a key: minus infinity, or so low that exp underflows beside any visible score
// (exporters who do not write the lowest float write -1e9, those of GPT-2 and BERT -1e4; e^-104 is
// 0 in float).
bool HidesKey(double value);

// What an element says of a key: by being true (not zero), or false if `negated`; by what it adds.
std::function<Sees(double)> SeesTruth(bool negated);
Sees SeesAdded(double element);

// A constant of one number, or of a band. InvalidArgument, also of the others, if `sees` makes no
// mask of it.
absl::StatusOr<MaskPredicate> ReadConstantMask(const Value* value,
                                               const std::function<Sees(double)>& sees);
// ConstantOfShape.
absl::StatusOr<MaskPredicate> ReadFilled(const Node& node, const std::function<Sees(double)>& sees);
// Trilu of one number: it stays in one triangle, 0 is in the other.
absl::StatusOr<MaskPredicate> ReadTriangle(const Node& node,
                                           const std::function<Sees(double)>& sees,
                                           const SymbolicContents& contents);

}  // namespace pagefuse
