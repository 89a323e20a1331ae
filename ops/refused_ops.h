// Why ops of the standard are not computed.
#pragma once

#include <string_view>

namespace pagefuse {

// "image geometry", "random numbers", ...: the kind of op that `op` of `domain` is, which pagefuse
// leaves out. Empty for any other op.
std::string_view WhyRefused(std::string_view domain, std::string_view op);

}  // namespace pagefuse
