// SPDX-License-Identifier: Apache-2.0
// Turns of the Messages API: lists of blocks, which become messages.
#pragma once

#include "absl/status/statusor.h"

#include "pagefuse/serve/fields.h"

namespace pagefuse::serve {

// Messages of "system" and "messages". Turns of one role in a row are one turn. BadParam naming
// "messages[1].content[0].type".
absl::StatusOr<Json> ReadTurns(Fields& fields);

}  // namespace pagefuse::serve
