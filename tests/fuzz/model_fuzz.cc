// SPDX-License-Identifier: Apache-2.0
// model_fuzz: mutated models through import, verification, the text form, inference, all passes,
// planning and execution.
//
//   model_fuzz [--seconds=N] [--cases=N] [--seed=S] [--out=DIR] [--verbose] FOLDER...
//       cases from seed S on, made of the models in the folders, until time or cases are used up.
//       What is found is written to DIR as <ending>-<seed>.v<variant>.onnx, its log beside it. The
//       case of seed S alone: --seed=S --cases=1. --verbose says how each case ended.
//   model_fuzz --replay [--verbose] FILE_OR_FOLDER...
//       every file in every variant.
//   model_fuzz --minimise FILE.vN.onnx
//       writes FILE.vN.small.onnx, which fails in the same way.
//   model_fuzz --decoders [--seconds=N] [--cases=N] [--seed=S] [--out=DIR] [--verbose]
//   model_fuzz --decoders --replay [--verbose] FILE_OR_FOLDER...
//   model_fuzz --decoders --plan="seed=S FEATURE=OPTION..."
//       whole random decoders, as they are against what the passes make of them
//       (decoders/judge.h); --plan prints the decoder and the verdict.
//
// Every case runs in a child process with a limit of time and memory. The exit status is 1 if
// anything was found.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "child.h"
#include "decoders/decoder_fuzz.h"
#include "minimise.h"
#include "model_case.h"
#include "model_mutator.h"
#include "paths.h"

#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse::fuzz {
namespace {

namespace fs = std::filesystem;

struct Flags {
  bool replay = false, minimise = false, verbose = false, decoders = false;
  double seconds = 5;
  int64_t cases = std::numeric_limits<int64_t>::max();
  uint64_t seed = 1;
  std::string out = "model_fuzz_found";
  std::string plan;
  std::vector<std::string> paths;
};

int VariantOf(uint64_t seed) { return static_cast<int>(seed * 7 % kNumVariants); }

const std::string& BaseDir() {
  static const std::string folder = SourcePath("tests/ir/broken");
  return folder;
}

ChildResult RunAlone(Progress& progress, const std::string& bytes, int variant) {
  return RunInChild(progress, {}, [&](Progress& child) {
    child.Begin(0);
    // A copy of the exact size lets sanitizers see reads past the end.
    const std::vector<char> data(bytes.begin(), bytes.end());
    const CaseResult ended = RunModelCase({data.data(), data.size()}, variant, BaseDir());
    std::fprintf(stderr, "%s: %s\n", ReachedName(ended.reached), ended.status.ToString().c_str());
  });
}

class Fuzzer {
 public:
  explicit Fuzzer(const Flags& flags)
      : flags_(flags), seeds_(flags.paths), progress_(SharedProgress()), next_(flags.seed) {}

  int Run() {
    std::printf("%zu models, first seed %llu\n", seeds_.size(), Number(flags_.seed));
    while (!Done() && Elapsed() < flags_.seconds) {
      RunBatch();
      Report();
    }
    std::printf(
        "%lld cases in %.0f s, seeds %llu to %llu:", static_cast<long long>(progress_.done.load()),
        Elapsed(), Number(flags_.seed), Number(next_ - 1));
    for (int i = 0; i < kNumReached; ++i) {
      std::printf(" %lld %s", static_cast<long long>(progress_.counts[i].load()),
                  ReachedName(static_cast<Reached>(i)));
    }
    std::printf("\n%zu findings\n", found_.size());
    return found_.empty() ? 0 : 1;
  }

 private:
  static unsigned long long Number(uint64_t number) { return number; }
  bool Done() const { return next_ - flags_.seed >= static_cast<uint64_t>(flags_.cases); }
  double Elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // Now and then, so that a long run says that it goes on.
  void Report() {
    constexpr double kEvery = 60;
    if (Elapsed() < reported_ + kEvery) return;
    reported_ = Elapsed();
    std::printf("%lld cases, %zu findings\n", static_cast<long long>(progress_.done.load()),
                found_.size());
  }

  void RunBatch() {
    constexpr uint64_t kBatch = 500;
    const uint64_t begin = next_;
    const uint64_t end =
        begin + std::min(kBatch, static_cast<uint64_t>(flags_.cases) - (begin - flags_.seed));
    progress_.current = begin;
    const ChildResult result = RunInChild(progress_, {}, [&](Progress& progress) {
      for (uint64_t seed = begin; seed < end && Elapsed() < flags_.seconds; ++seed) {
        progress.Begin(seed);
        const CaseResult case_result =
            RunModelCase(MakeCase(seeds_, seed), VariantOf(seed), BaseDir());
        ++progress.counts[static_cast<int>(case_result.reached)];
        if (flags_.verbose) {
          std::printf("seed %llu: %s: %s\n", Number(seed), ReachedName(case_result.reached),
                      case_result.status.ToString().c_str());
        }
        ++progress.done;
      }
    });
    next_ = progress_.current + 1;
    if (result.ending == Ending::kLeak) return FindLeak(begin, next_);
    if (result.ending != Ending::kDone) Keep(progress_.current, result);
  }

  // Which of the cases left memory behind.
  void FindLeak(uint64_t begin, uint64_t end) {
    for (uint64_t seed = begin; seed < end; ++seed) {
      Progress& alone = *alone_;
      const ChildResult result = RunAlone(alone, MakeCase(seeds_, seed), VariantOf(seed));
      if (result.ending == Ending::kLeak) return Keep(seed, result);
    }
    std::printf("a leak between seeds %llu and %llu that no case alone shows\n", Number(begin),
                Number(end - 1));
    found_["leak of several cases"]++;
  }

  void Keep(uint64_t seed, const ChildResult& result) {
    const std::string key = FindingKey(result);
    if (found_[key]++ > 0) return;
    fs::create_directories(flags_.out);
    const std::string base = std::string(EndingName(result.ending)) + "-" + std::to_string(seed) +
                             ".v" + std::to_string(VariantOf(seed));
    const fs::path path = fs::path(flags_.out) / base;
    std::ofstream(path.string() + ".onnx", std::ios::binary) << MakeCase(seeds_, seed);
    std::ofstream(path.string() + ".log") << result.log;
    std::printf("seed %llu: %s\n  written to %s.onnx\n", Number(seed), key.c_str(), path.c_str());
  }

  const Flags& flags_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  SeedModels seeds_;
  Progress& progress_;
  Progress* alone_ = &SharedProgress();
  uint64_t next_;
  double reported_ = 0;
  std::map<std::string, int> found_;  // by what it looks like
};

std::vector<fs::path> FilesOf(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      files.emplace_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".onnx" || extension == ".onnxtxt") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The bytes of a model file; text as the bytes that it stands for.
absl::StatusOr<std::string> ReadCase(const fs::path& file) {
  if (file.extension() != ".onnxtxt") return ReadFile(file.string());
  const absl::StatusOr<Model> model = LoadModel(file.string());
  return model.ok() ? ExportModel(*model) : model.status();
}

int Replay(const Flags& flags) {
  Progress& progress = SharedProgress();
  int failed = 0;
  const std::vector<fs::path> files = FilesOf(flags.paths);
  for (const fs::path& file : files) {
    const auto bytes = ReadCase(file);
    if (!bytes.ok()) {
      std::printf("%s\n", std::string(bytes.status().message()).c_str());
      return 1;
    }
    for (int variant = 0; variant < kNumVariants; ++variant) {
      const ChildResult result = RunAlone(progress, *bytes, variant);
      if (flags.verbose) {
        std::printf("%s, variant %d: %s", file.c_str(), variant, result.log.c_str());
      }
      if (result.ending == Ending::kDone) continue;
      std::printf("%s, variant %d: %s\n%s\n", file.c_str(), variant, FindingKey(result).c_str(),
                  result.log.c_str());
      ++failed;
    }
  }
  std::printf("%zu files, %d findings\n", files.size(), failed);
  return failed == 0 && !files.empty() ? 0 : 1;
}

// The N of FILE.vN.onnx.
int VariantOfFile(const fs::path& path) {
  const std::string stem = path.stem().string();
  const size_t at = stem.rfind(".v");
  int variant = 0;
  if (at != std::string::npos) {
    std::from_chars(stem.data() + at + 2, stem.data() + stem.size(), variant);
  }
  return variant;
}

int MinimiseFile(const fs::path& path) {
  Progress& progress = SharedProgress();
  const auto bytes = ReadFile(path.string());
  if (!bytes.ok()) return 1;
  const int variant = VariantOfFile(path);
  const std::string key = FindingKey(RunAlone(progress, *bytes, variant));
  const std::string small = Minimise(*bytes, [&](const std::string& candidate) {
    return FindingKey(RunAlone(progress, candidate, variant)) == key;
  });
  const fs::path out = fs::path(path).replace_extension(".small.onnx");
  std::ofstream(out, std::ios::binary) << small;
  std::printf("%s\n%zu bytes, now %zu: %s\n", key.c_str(), bytes->size(), small.size(),
              out.c_str());
  return 0;
}

bool ParseFlags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&](const std::string& name) -> const char* {
      return flag.starts_with(name + "=") ? argv[i] + name.size() + 1 : nullptr;
    };
    if (flag == "--replay") {
      flags.replay = true;
    } else if (flag == "--decoders") {
      flags.decoders = true;
    } else if (flag == "--minimise") {
      flags.minimise = true;
    } else if (flag == "--verbose") {
      flags.verbose = true;
    } else if (const char* seconds = value("--seconds")) {
      flags.seconds = std::atof(seconds);
    } else if (const char* cases = value("--cases")) {
      flags.cases = std::atoll(cases);
    } else if (const char* seed = value("--seed")) {
      flags.seed = std::strtoull(seed, nullptr, 10);
    } else if (const char* out = value("--out")) {
      flags.out = out;
    } else if (const char* plan = value("--plan")) {
      flags.plan = plan;
    } else if (flag.starts_with("--")) {
      return false;
    } else {
      flags.paths.push_back(flag);
    }
  }
  return !flags.paths.empty() || (flags.decoders && !flags.replay);
}

int Decoders(const Flags& flags) {
  if (!flags.plan.empty()) return JudgePlan(flags.plan);
  if (!flags.replay) {
    return FuzzDecoders({.seconds = flags.seconds,
                         .cases = flags.cases,
                         .seed = flags.seed,
                         .out = flags.out,
                         .verbose = flags.verbose});
  }
  std::vector<std::string> files;
  for (const fs::path& file : FilesOf(flags.paths)) files.push_back(file.string());
  return ReplayDecoders(files, flags.verbose);
}

}  // namespace
}  // namespace pagefuse::fuzz

int main(int argc, char** argv) {
  using namespace pagefuse::fuzz;       // NOLINT(google-build-using-namespace)
  setvbuf(stdout, nullptr, _IOLBF, 0);  // a long run is watched
  Flags flags;
  if (!ParseFlags(argc, argv, flags)) {
    std::fprintf(stderr,
                 "usage: model_fuzz [--seconds=N] [--cases=N] [--seed=S] [--out=DIR] "
                 "FOLDER... | --replay PATH... | --minimise FILE | --decoders ...\n");
    return 2;
  }
  if (flags.decoders) return Decoders(flags);
  if (flags.replay) return Replay(flags);
  if (flags.minimise) return MinimiseFile(flags.paths[0]);
  return Fuzzer(flags).Run();
}
