// SPDX-License-Identifier: Apache-2.0
// text_bench TOKENIZER.JSON [TEXT]: how fast a tokenizer loads, encodes prose (the file TEXT, by default the project's documents)
// and one word of a million letters, and streams text.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>

#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/text/tokenizer/tokenizer.h"

namespace {

using pagefuse::Tokenizer;

// The least of several runs, in seconds of the processor: all of it is one thread, and the machine may be busy.
template <typename Run>
double Seconds(int runs, const Run& run) {
  double best = 1e30;
  for (int i = 0; i < runs; ++i) {
    const std::clock_t start = std::clock();
    run();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

std::string Prose(const char* path) {
  if (path != nullptr) return pagefuse::ReadFile(path).value_or("");
  std::string text;
  for (const char* name :
       {"README.md", "docs/architecture.md", "docs/passes.md", "docs/kv_cache.md"}) {
    text += pagefuse::ReadFile(std::string(PAGEFUSE_SOURCE_DIR "/") + name).value_or("");
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "text_bench TOKENIZER.JSON [TEXT]\n";
    return 1;
  }
  auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  std::printf("load: %.3f s\n", Seconds(3, [&] { tokenizer = Tokenizer::Load(argv[1]); }));
  const std::string prose = Prose(argc > 2 ? argv[2] : nullptr);
  std::vector<int64_t> ids;
  const double encode = Seconds(5, [&] { ids = *(*tokenizer)->Encode(prose); });
  std::printf("prose: %zu bytes, %zu tokens, %.1f MB/s\n", prose.size(), ids.size(),
              static_cast<double>(prose.size()) / encode / 1e6);
  const double decode = Seconds(5, [&] { (*tokenizer)->Decode(ids); });
  std::printf("stream: %.2f us a token\n", decode / static_cast<double>(ids.size()) * 1e6);
  std::string word;
  for (uint32_t i = 0, draw = 1; i < 1'000'000; ++i) {
    draw = draw * 1664525 + 1013904223;
    word.push_back(static_cast<char>('a' + (draw >> 24) % 26));
  }
  std::printf("a word of 10^6 letters: %.3f s\n",
              Seconds(3, [&] { (void)*(*tokenizer)->Encode(word); }));
  return 0;
}
