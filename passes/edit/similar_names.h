// SPDX-License-Identifier: Apache-2.0
// Suggests which name a user may have meant where the given name does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pagefuse {

// `; similar names: "a", "b"`, at most three, nearest first; nothing where no name is like `name`.
// Alike are names of which a third of the letters differ at most, and names of which one holds the
// other.
std::string SimilarNames(std::string_view name, const std::vector<std::string>& names);

}  // namespace pagefuse
