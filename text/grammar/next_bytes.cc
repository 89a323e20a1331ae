// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/grammar/next_bytes.h"

#include <bitset>

#include "absl/strings/str_format.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

std::string ByteName(int byte) {
  if (byte > 0x20 && byte < 0x7F) return StrCat("'", std::string(1, static_cast<char>(byte)), "'");
  return absl::StrFormat("0x%02X", byte);
}

}  // namespace

std::string NextBytesText(const Automaton& automaton, const GrammarPlaces& places) {
  std::bitset<257> next;
  for (const GrammarPlace& place : places.places) {
    for (const Automaton::Edge& edge : automaton.edges(place.state)) {
      for (int byte = edge.low; byte <= edge.high; ++byte) next.set(byte);
    }
  }
  std::string text;
  for (int low = 0; low < 256; ++low) {
    if (!next.test(low)) continue;
    int high = low;
    while (next.test(high + 1)) ++high;
    StrAppend(&text, text.empty() ? "" : ", ", ByteName(low));
    if (high > low) StrAppend(&text, "-", ByteName(high));
    low = high;
  }
  return text;
}

}  // namespace pagefuse
