// The generated reference page.
#include "pagefuse/ops/registry/docs.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "paths.h"

namespace pagefuse {
namespace {

TEST(OpsReference, PageInDocsIsUpToDate) {
  const std::string path = SourcePath("docs/ops.md");
  const std::string page = OpsReference();
  if (std::getenv("PAGEFUSE_UPDATE_TESTS") != nullptr) std::ofstream(path) << page;
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == page) << "docs/ops.md is stale: run with PAGEFUSE_UPDATE_TESTS=1";
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
  const std::string page = OpsReference(registry);
  for (const char* part :
       {"## test", "### Scale", "Multiplies x. Since version 2.", "| `x` | T | `[N]` |",
        "| `by` | 2 | the factor |", "T: float.", "`y` may be written over `x`.",
        "Kernels: `reference`.", "y = Add (x, x)"}) {
    EXPECT_THAT(page, testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace pagefuse
