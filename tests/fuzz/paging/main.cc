// SPDX-License-Identifier: Apache-2.0
// paging_fuzz: decoders that mean something else in one place, with pages against as they are.
//
//   paging_fuzz [--seconds N] [--seed S] [--count K] [--out DIR] [--unchanged] [--no-shrink]
//               [--verbose] [MODEL_OR_FOLDER...]
//       cases from seed S on, until time or cases are used up: random decoders, and those in the
//       files. What is found is made plain and written to DIR. Exit status 1 if anything was found.
//       --unchanged: decoders as they are.
//   paging_fuzz --show --seed S [--unchanged] [MODEL_OR_FOLDER...]
//       the case of a seed, and its verdict.
//   paging_fuzz --replay [--verbose] MODEL_OR_FOLDER...
//       every decoder there, in several runs.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "paging_fuzz.h"

namespace pagefuse::fuzz {
namespace {

struct Flags {
  PagingFuzzOptions options;
  bool replay = false, show = false;
};

// Reads `--name value` or `--name=value`; null if it is another flag, or the value is missing.
const char* ValueOf(int argc, char** argv, int& i, const std::string& name) {
  const std::string flag = argv[i];
  if (flag.starts_with(name + "=")) return argv[i] + name.size() + 1;
  return flag == name && i + 1 < argc ? argv[++i] : nullptr;
}

bool ParseSwitch(const std::string& flag, Flags& flags) {
  const std::pair<const char*, bool*> switches[] = {{"--replay", &flags.replay},
                                                    {"--show", &flags.show},
                                                    {"--unchanged", &flags.options.unchanged},
                                                    {"--verbose", &flags.options.verbose}};
  for (const auto& [name, target] : switches) {
    if (flag == name) return *target = true;
  }
  if (flag == "--no-shrink") flags.options.shrink = false;
  return flag == "--no-shrink";
}

bool Parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    if (ParseSwitch(argv[i], flags)) continue;
    if (const char* seconds = ValueOf(argc, argv, i, "--seconds")) {
      flags.options.seconds = std::atof(seconds);
    } else if (const char* seed = ValueOf(argc, argv, i, "--seed")) {
      flags.options.seed = std::strtoull(seed, nullptr, 10);
    } else if (const char* count = ValueOf(argc, argv, i, "--count")) {
      flags.options.count = std::atoll(count);
    } else if (const char* out = ValueOf(argc, argv, i, "--out")) {
      flags.options.out = out;
    } else if (argv[i][0] == '-') {
      return false;
    } else {
      flags.options.paths.emplace_back(argv[i]);
    }
  }
  return true;
}

}  // namespace
}  // namespace pagefuse::fuzz

int main(int argc, char** argv) {
  using namespace pagefuse::fuzz;       // NOLINT(google-build-using-namespace)
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a long run is watched
  Flags flags;
  if (!Parse(argc, argv, flags)) {
    std::fprintf(
        stderr,
        "usage: paging_fuzz [--seconds N] [--seed S] [--count K] [--out DIR] [--unchanged] "
        "[--no-shrink] [--verbose] [MODEL_OR_FOLDER...] | --show ... | --replay PATH...\n");
    return 2;
  }
  if (flags.replay) return ReplayPaging(flags.options.paths, flags.options.verbose);
  if (flags.show) return ShowPagingCase(flags.options);
  return FuzzPaging(flags.options);
}
