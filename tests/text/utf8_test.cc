// SPDX-License-Identifier: Apache-2.0
// UTF-8 against a plain decoder: streams, and stop strings in them.
#include "pagefuse/text/utf8.h"

#include <random>

#include "gtest/gtest.h"

#include "pagefuse/text/model/stop_match.h"

namespace pagefuse {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

// All characters, each encoded anew: the definition.
bool IsCharacter(std::string_view bytes) {
  const Utf8Part part = FrontOfUtf8(bytes);
  if (part.kind != Utf8Part::kCharacter || part.bytes != static_cast<int>(bytes.size())) {
    return false;
  }
  std::string again;
  AppendCodePoint(&again, part.point);
  return again == bytes && part.point <= 0x10FFFF && (part.point < 0xD800 || part.point > 0xDFFF);
}

// Maximal subparts by trial: the longest beginning that is a character or begins one, else a byte.
class Reference {
 public:
  Reference() {
    for (char32_t point = 0x80; point <= 0x10FFFF; point += point < 0x800 ? 1 : 0x10) {
      if (point >= 0xD800 && point < 0xE000) continue;
      std::string text;
      AppendCodePoint(&text, point);
      for (size_t size = 1; size < text.size(); ++size) beginnings_.insert(text.substr(0, size));
    }
  }

  std::string Replace(std::string_view bytes) const {
    std::string out;
    while (!bytes.empty()) {
      size_t size = std::min<size_t>(4, bytes.size());
      while (size > 0 && !IsCharacter(bytes.substr(0, size))) --size;
      if (size > 0) {
        out += bytes.substr(0, size);
      } else {
        size = std::min<size_t>(3, bytes.size());
        while (size > 1 && !beginnings_.contains(std::string(bytes.substr(0, size)))) --size;
        out += kReplacement;
      }
      bytes.remove_prefix(size);
    }
    return out;
  }

 private:
  std::set<std::string> beginnings_;
};

const Reference& TheReference() {
  static const Reference& reference = *new Reference;
  return reference;
}

std::string Streamed(std::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  for (char byte : bytes) {
    const std::string piece = stream.Add(std::string_view(&byte, 1));
    EXPECT_FALSE(FirstBrokenByte(piece));
    text += piece;
  }
  return text += stream.Finish();
}

TEST(Utf8Stream, ReplacesMaximalSubpartsInAllShortSequences) {
  for (int first = 0; first < 256; ++first) {
    for (int second = -1; second < 256; ++second) {
      std::string bytes(1, static_cast<char>(first));
      if (second >= 0) bytes.push_back(static_cast<char>(second));
      const std::string expected = TheReference().Replace(bytes);
      ASSERT_EQ(ReplaceBrokenUtf8(bytes), expected) << first << " " << second;
      ASSERT_EQ(Streamed(bytes), expected) << first << " " << second;
    }
  }
}

TEST(Utf8Stream, ReplacesMaximalSubpartsInLongerSequences) {
  std::mt19937 random(1);
  // Lead bytes and borders of ranges as often as others.
  constexpr uint8_t kEdges[] = {0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2,
                                0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0x41};
  for (int i = 0; i < 200'000; ++i) {
    std::string bytes;
    for (size_t size = 3 + random() % 2; bytes.size() < size;) {
      const uint32_t draw = random();
      bytes.push_back(static_cast<char>(draw & 1 ? draw >> 8 : kEdges[(draw >> 8) % 18]));
    }
    const std::string expected = TheReference().Replace(bytes);
    ASSERT_EQ(ReplaceBrokenUtf8(bytes), expected);
    ASSERT_EQ(Streamed(bytes), expected);
  }
}

TEST(Utf8Stream, RoundTripsEveryCodePoint) {
  for (char32_t point = 0; point <= 0x10FFFF; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    std::string text;
    AppendCodePoint(&text, point);
    size_t at = 0;
    ASSERT_EQ(NextCodePoint(text, at), point);
    ASSERT_EQ(at, text.size());
    ASSERT_FALSE(FirstBrokenByte(text));
  }
}

// What a StopMatch shows of a text that comes in two pieces, and whether it stopped.
std::pair<std::string, bool> Shown(const std::vector<std::string>& stops, std::string_view text,
                                   size_t cut) {
  StopMatch match(stops);
  std::string shown = match.Add(text.substr(0, cut));
  shown += match.Add(text.substr(cut));
  const bool stopped = match.stopped();
  return {shown + match.Finish(), stopped};
}

TEST(StopMatch, ShowsTheTextInFrontOfTheStopThatEndsFirst) {
  EXPECT_EQ(Shown({"bc", "abcd"}, "xabcd", 2), std::pair(std::string("xa"), true));
  EXPECT_EQ(Shown({"abcd", "cd"}, "xabcd", 5), std::pair(std::string("x"), true));
  EXPECT_EQ(Shown({"END"}, "no EN", 3), std::pair(std::string("no EN"), false));
  EXPECT_EQ(Shown({""}, "text", 1), std::pair(std::string("text"), false));
}

TEST(StopMatch, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatch match({"\n\n"});
  EXPECT_EQ(match.Add("a\n"), "a");
  EXPECT_EQ(match.Add("b\n"), "\nb");
  EXPECT_EQ(match.Add("\nc"), "");
  EXPECT_TRUE(match.stopped());
  EXPECT_EQ(match.stop(), "\n\n");
  EXPECT_EQ(match.Add("more"), "");
}

TEST(StopMatch, MakesNoDifferenceHowTheTextIsCut) {
  std::mt19937 random(2);
  const auto draw = [&](size_t most) {
    std::string text;
    for (size_t size = random() % (most + 1); text.size() < size;) {
      text.push_back(static_cast<char>('a' + random() % 3));
    }
    return text;
  };
  for (int i = 0; i < 5000; ++i) {
    std::vector<std::string> stops;
    for (int n = 0; n < 3; ++n) stops.push_back(draw(5));
    const std::string text = draw(30);
    // The definition: look at every end in turn.
    std::string expected = text;
    bool stopped = false;
    for (size_t end = 1; end <= text.size() && !stopped; ++end) {
      for (const std::string& stop : stops) {
        if (stop.empty() || !text.substr(0, end).ends_with(stop)) continue;
        const std::string before = text.substr(0, end - stop.size());
        if (!stopped || before.size() < expected.size()) expected = before;
        stopped = true;
      }
    }
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ASSERT_EQ(Shown(stops, text, cut), std::pair(expected, stopped)) << text << " at " << cut;
    }
  }
}

}  // namespace
}  // namespace pagefuse
