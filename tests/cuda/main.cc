// SPDX-License-Identifier: Apache-2.0
// cuda_test: every op that has a kernel for CUDA devices, and the exports, on a GPU against the CPU.
//
//   cuda_test [--device cuda:0] [--data DIR] [--report FILE] [--sanitize] [--gtest_filter=...]
//
// DIR has `models` and `test_data` (the archives of tests/, unpacked) where they do not lie where they
// were at compile time. FILE gets the tables of docs/gpu.md. --sanitize: one small case of each kernel,
// for compute-sanitizer. The same by PAGEFUSE_CUDA_REPORT and PAGEFUSE_CUDA_SANITIZE. Exit status 77
// where no GPU can be used.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "report.h"
#include "settings.h"
#include <gtest/gtest.h>

#include "pagefuse/ops/cuda/cuda.h"

namespace pagefuse {
namespace {

constexpr int kSkipped = 77;

struct CommandLine {
  std::string device = "cuda:0", data, report;
  bool sanitize = false;
};

// The value of `--name VALUE` or `--name=VALUE` at `i`, which goes on behind it; null if it is another.
const char* ValueOf(const char* name, int argc, char** argv, int& i) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argv[i], name, length) != 0) return nullptr;
  if (argv[i][length] == '=') return argv[i] + length + 1;
  return argv[i][length] == '\0' && i + 1 < argc ? argv[++i] : nullptr;
}

CommandLine Parse(int argc, char** argv) {
  CommandLine line;
  if (const char* report = std::getenv("PAGEFUSE_CUDA_REPORT")) line.report = report;
  line.sanitize = std::getenv("PAGEFUSE_CUDA_SANITIZE") != nullptr;
  for (int i = 1; i < argc; ++i) {
    if (const char* device = ValueOf("--device", argc, argv, i)) line.device = device;
    if (const char* data = ValueOf("--data", argc, argv, i)) line.data = data;
    if (const char* report = ValueOf("--report", argc, argv, i)) line.report = report;
    if (std::strcmp(argv[i], "--sanitize") == 0) line.sanitize = true;
  }
  return line;
}

int Run(int argc, char** argv) {
  const CommandLine line = Parse(argc, argv);
  if (!line.data.empty()) {
    setenv("PAGEFUSE_SOURCE_DIR", line.data.c_str(), 1);
    setenv("PAGEFUSE_TEST_DATA_DIR", (line.data + "/test_data").c_str(), 1);
  }
  ::testing::InitGoogleTest(&argc, argv);
  auto device = OpenDevice(line.device);
  if (!device.ok()) {
    std::printf("skipped: %s\n", std::string(device.status().message()).c_str());
    return kSkipped;
  }
  Settings& settings = TestSettings();
  settings.device = *std::move(device);
  settings.sanitize = line.sanitize;
  if (!line.sanitize) settings.guarded = std::make_shared<GuardedContext>(settings.device);
  std::printf("%s\n", settings.device->name().c_str());
  const int failed = RUN_ALL_TESTS();
  if (!Report::Get().empty()) std::printf("\n%s", Report::Get().Text().c_str());
  if (!line.report.empty()) std::ofstream(line.report) << Report::Get().Text();
  return failed;
}

}  // namespace
}  // namespace pagefuse

int main(int argc, char** argv) { return pagefuse::Run(argc, argv); }
