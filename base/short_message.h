// SPDX-License-Identifier: Apache-2.0
// Keeps messages readable: a file may hold names, attributes and lists of megabytes, and an error that quotes one is no longer than a
// screen or two all the same.
#pragma once

#include <string>
#include <string_view>

namespace pagefuse {

inline constexpr size_t kMostOfAValue = 400;     // of what a message quotes
inline constexpr size_t kMostOfAMessage = 4000;  // all in all

// The text, in which values ("quoted", [in brackets], or without a space) of more than kMostOfAValue bytes, and then the whole, are cut
// out in the middle, where it says how many bytes were left out. Not longer than kMostOfAMessage, and UTF-8 if the text is.
std::string ShortMessage(std::string_view text);

}  // namespace pagefuse
