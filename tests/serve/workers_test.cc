// SPDX-License-Identifier: Apache-2.0
// Tasks of several threads: all are done, and those of one strand one after the other.
#include "pagefuse/serve/workers.h"

#include <atomic>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pagefuse/base/str_cat.h"
#include "pagefuse/serve/log.h"

namespace pagefuse::serve {
namespace {

TEST(Workers, WhatWasPostedIsDoneAtTheEnd) {
  std::atomic<int> done = 0, more = 0;
  {
    Workers workers(3);
    for (int i = 0; i < 1000; ++i) {
      workers.Post([&, i] {
        ++done;
        if (i < 100) workers.Post([&] { ++more; });  // tasks may post
      });
    }
  }
  EXPECT_EQ(done, 1000);
  EXPECT_EQ(more, 100);
}

TEST(Workers, AStrandKeepsItsOrder) {
  constexpr int kStrands = 5, kTasks = 500;
  std::vector<std::vector<int>> order(kStrands);
  std::vector<std::atomic<int>> inside(kStrands);
  std::atomic<int> overlaps = 0;
  {
    Workers workers(4);
    std::vector<Strand> strands(kStrands, Strand(&workers));
    for (Strand& strand : strands) strand = Strand(&workers);
    for (int i = 0; i < kTasks; ++i) {
      for (int s = 0; s < kStrands; ++s) {
        strands[s].Post([&, i, s] {
          if (inside[s]++ > 0) ++overlaps;
          order[s].push_back(i);
          --inside[s];
        });
      }
    }
  }  // strands end while tasks wait
  EXPECT_EQ(overlaps, 0);
  for (const auto& tasks : order) {
    ASSERT_EQ(tasks.size(), static_cast<size_t>(kTasks));
    EXPECT_TRUE(std::ranges::is_sorted(tasks));
  }
}

TEST(Log, LinesAreJsonOfAnEventEach) {
  std::string text;
  Log log(Log::Form::kJson, [&text](std::string_view line) { text += line; });
  log.Add("a", {{"name", "line\nbreak \xff"}, {"number", 3}});
  EXPECT_EQ(std::ranges::count(text, '\n'), 1);
  const auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json["event"], "a");
  EXPECT_EQ(json["number"], 3);
  text.clear();
  Log(Log::Form::kText, [&text](std::string_view line) { text += line; }).Add("b", {{"c", "d"}});
  EXPECT_EQ(text, "b  c d\n");
}

}  // namespace
}  // namespace pagefuse::serve
