// SPDX-License-Identifier: Apache-2.0
// Without a release to test in, the program says that it was skipped.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "ort_libraries.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {

std::vector<std::string> OrtLibraries() {
  const char* paths = std::getenv("PAGEFUSE_ORT_LIBS");
  if (paths == nullptr) return {};
  return absl::StrSplit(paths, ':', absl::SkipEmpty());
}

std::string CustomOpsLibrary() { return PAGEFUSE_ORT_LIBRARY; }

}  // namespace pagefuse

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  ::testing::InitGoogleTest(&argc, argv);
  if (pagefuse::OrtLibraries().empty()) {
    std::puts("skipped: PAGEFUSE_ORT_LIBS names no library of ONNX Runtime");
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
