// Passes that are one function each.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "pagefuse/passes/pass.h"

namespace pagefuse {

// Does what Pass::Run says.
using PassFunction = std::function<absl::StatusOr<bool>(Model&, PassContext&)>;
std::unique_ptr<Pass> MakePass(std::string_view name, std::string_view description,
                               PassFunction run, std::vector<PassOption> options = {});

// Does what NodePass::Rewrite says.
using NodeFunction = std::function<absl::StatusOr<bool>(Graph&, Node*, const SymbolicContents&)>;
std::unique_ptr<Pass> MakeNodePass(std::string_view name, std::string_view description,
                                   NodeFunction rewrite);

}  // namespace pagefuse
