// SPDX-License-Identifier: Apache-2.0
// standalone_driver SECONDS CORPUS_DIR...: runs LLVMFuzzerTestOneInput on the corpus, then on
// mutations of it. For compilers without libFuzzer.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxBytes = 1 << 16;

void RunOne(const std::string& bytes) {
  // A copy of the exact size lets sanitizers see reads past the end.
  const std::vector<uint8_t> data(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(data.data(), data.size());
}

std::vector<std::string> ReadCorpus(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Changes a byte, takes bytes out, repeats bytes, or puts in bytes of another file.
void Mutate(const std::vector<std::string>& corpus, std::mt19937_64& random, std::string& bytes) {
  auto below = [&random](size_t n) { return n == 0 ? 0 : random() % n; };
  const size_t at = below(bytes.size());
  const size_t length = below(std::min<size_t>(bytes.size() - at, 64) + 1);
  switch (below(5)) {
    case 0:
      if (!bytes.empty()) bytes[at] = static_cast<char>(random());
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
      break;
    case 2:
      bytes.erase(at, length);
      break;
    case 3:
      bytes.insert(at, bytes.substr(at, length));
      break;
    default: {
      const std::string& other = corpus[below(corpus.size())];
      const size_t from = below(other.size());
      bytes.insert(at, other.substr(from, below(other.size() - from + 1)));
    }
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const std::vector<std::string> corpus = ReadCorpus({argv + 2, argv + argc});
  if (corpus.empty()) {
    std::fprintf(stderr, "no seeds\n");
    return 1;
  }
  for (const std::string& bytes : corpus) RunOne(bytes);
  std::mt19937_64 random(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  int64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    std::string bytes = corpus[random() % corpus.size()];
    for (uint64_t i = 1 + random() % 4; i > 0; --i) Mutate(corpus, random, bytes);
    RunOne(bytes);
  }
  std::printf("%lld inputs\n", static_cast<long long>(runs));
  return 0;
}
