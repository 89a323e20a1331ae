#include "pagefuse/passes/pass.h"

namespace pagefuse {

std::string PassContext::Option(std::string_view name, std::string_view default_value) const {
  auto it = options.find(std::string(name));
  return it == options.end() ? std::string(default_value) : it->second;
}

}  // namespace pagefuse
