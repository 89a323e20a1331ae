// SPDX-License-Identifier: Apache-2.0
// Tells builds of this program apart.
#pragma once

#include <string>

namespace pagefuse {

// The build id that the linker gave to the file that this code is in, in hexadecimal digits; empty if it gave none.
std::string BuildId();

}  // namespace pagefuse
