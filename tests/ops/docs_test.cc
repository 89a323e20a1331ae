// SPDX-License-Identifier: Apache-2.0
// The generated reference.
#include "pagefuse/ops/registry/docs.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paths.h"

namespace pagefuse {
namespace {

constexpr char kHowToUpdate[] = " is stale: run with PAGEFUSE_UPDATE_TESTS=1";

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(OpsReference, PagesInDocsAreUpToDate) {
  const bool update = std::getenv("PAGEFUSE_UPDATE_TESTS") != nullptr;
  for (const ReferencePage& page : OpsReference()) {
    const std::string path = SourcePath("docs/" + page.path);
    if (update) std::ofstream(path) << page.text;
    EXPECT_TRUE(FileText(path) == page.text) << path << kHowToUpdate;
  }
}

TEST(OpsReference, DocsHoldNoOtherPages) {
  std::set<std::string> expected;
  for (const ReferencePage& page : OpsReference()) expected.insert(SourcePath("docs/" + page.path));
  const bool update = std::getenv("PAGEFUSE_UPDATE_TESTS") != nullptr;
  for (const auto& file : std::filesystem::directory_iterator(SourcePath("docs/ops"))) {
    if (expected.count(file.path().string()) > 0) continue;
    if (update) std::filesystem::remove(file.path());
    EXPECT_TRUE(update) << file.path() << kHowToUpdate;
  }
}

TEST(OpsReference, PagesHaveAtMostAThousandLines) {
  for (const ReferencePage& page : OpsReference()) {
    EXPECT_LE(std::count(page.text.begin(), page.text.end(), '\n'), 1000)
        << page.path << ": divide it by a further PF_OP_PAGE in ops/registry/ops.inc";
  }
}

TEST(OpsReference, NamesEveryPart) {
  OpRegistry registry;
  ASSERT_TRUE(registry
                  .Add(OpDef("test", "Scale", 2)
                           .Doc("Multiplies x.")
                           .Input("x", "T", "[N]")
                           .Output("y", "T", "[N]")
                           .Attr("by", 2.0f, "the factor")
                           .Types("T", {DataType::kFloat})
                           .InPlace(0, 0)
                           .Decomposition("Scale (x) => (y) { y = Add (x, x) }")
                           .AddKernel({.name = "reference"}))
                  .ok());
  const std::vector<ReferencePage> pages = OpsReference(registry);
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0].path, "ops.md");
  EXPECT_THAT(pages[0].text,
              testing::HasSubstr("| [test](ops/test.md) | [Scale](ops/test.md#scale) |"));
  EXPECT_EQ(pages[1].path, "ops/test.md");
  for (const char* part :
       {"# Ops of test", "## Scale", "Multiplies x. Since version 2 of test.",
        "| `x` | T | `[N]` |", "| `by` | 2 | the factor |", "T: float.",
        "`y` may be written over `x`.", "Kernels: `reference`.", "y = Add (x, x)"}) {
    EXPECT_THAT(pages[1].text, testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace pagefuse
