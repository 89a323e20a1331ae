// A rule of simplify-arithmetic: whole numbers divided and rounded down.
#pragma once

#include "pagefuse/passes/canonicalise/peephole.h"

namespace pagefuse {

// What exporters write for a / b rounded down, b a number above 0: the quotient that is rounded to
// zero, less one where it is negative and something is left over. Of sizes, which are not negative,
// the quotient alone; of others (a - a mod b) / b.
bool FloorDivision(Node& node, Peephole& peephole);

}  // namespace pagefuse
