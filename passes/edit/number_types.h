// SPDX-License-Identifier: Apache-2.0
// Which types hold all numbers of which others.
#pragma once

#include "pagefuse/base/data_type.h"

namespace pagefuse {

// True if every number of `from` is one of `to`: a cast there and anywhere else is a cast straight
// there, and a cast there and back changes nothing.
bool KeepsAllNumbers(DataType from, DataType to);

}  // namespace pagefuse
