// A rule of simplify-arithmetic: whole numbers divided and rounded down.
#pragma once

#include "pagefuse/passes/canonicalise/peephole.h"

namespace pagefuse {

// a / b rounded down, b a number above 0, by whatever an exporter writes it with: the quotient that is
// rounded to zero, less one where it is negative and something is left over, floors of floats,
// shifts. What is computed is compared with the quotient at numbers. Of sizes, which are not
// negative, it becomes the quotient alone; of others (a - a mod b) / b.
bool FloorDivision(Node& node, Peephole& peephole);

}  // namespace pagefuse
