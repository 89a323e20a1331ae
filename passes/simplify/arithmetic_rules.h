// SPDX-License-Identifier: Apache-2.0
// Declares the rules of simplify-arithmetic, by the file that defines them.
#pragma once

#include "pagefuse/passes/simplify/peephole.h"

namespace pagefuse {

// --- choice_rules.cc: what exporters write as choices and powers ---
bool PowToSqrt(Node& node, Peephole& peephole);    // x ^ 0.5, x ^ -0.5, x ^ -1
bool MaxToAbs(Node& node, Peephole& peephole);     // max (x, -x)
bool WhereToMax(Node& node, Peephole& peephole);   // a < b ? b : a, of integers
bool WhereToCast(Node& node, Peephole& peephole);  // c ? 1 : 0

// --- floor_division.cc ---
// a / b rounded down, b a number above 0, by whatever an exporter writes it with: the quotient that is
// rounded to zero, less one where it is negative and something is left over, floors of floats,
// shifts. What is computed is compared with the quotient at numbers. Of sizes, which are not
// negative, it becomes the quotient alone; of others (a - a mod b) / b.
bool FloorDivision(Node& node, Peephole& peephole);

}  // namespace pagefuse
