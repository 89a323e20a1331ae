// SPDX-License-Identifier: Apache-2.0
// Attention whose heads are counted by something that is no input of it.
#pragma once

namespace pagefuse {

// Metadata of a node whose heads keep their order: what a rewrite took of it, numbers for each head,
// waits elsewhere for the op that takes them.
inline constexpr char kKeepsHeads[] = "pagefuse.keeps_heads";

}  // namespace pagefuse
