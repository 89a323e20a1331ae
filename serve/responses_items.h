// SPDX-License-Identifier: Apache-2.0
// The input of a request of the Responses API: items, which become messages.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/serve/fields.h"

namespace pagefuse::serve {

// Messages of "instructions" and "input". BadParam naming "input[2].content[0].type".
absl::StatusOr<Json> ReadItems(Fields& fields);

}  // namespace pagefuse::serve
