// SPDX-License-Identifier: Apache-2.0
// An application outside the source tree: loads a model given by path, generates four tokens,
// prints them.
#include <cstdio>

#include "pagefuse/runtime/engine.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  pagefuse::EngineOptions options;
  options.kv_cache = "int8_per_token_head";
  auto engine = pagefuse::Engine::Load(argv[1], options);
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    return 1;
  }
  pagefuse::Request request;
  request.prompt = {1, 2, 3};
  request.max_new_tokens = 4;
  auto completions = (*engine)->Generate({request});
  if (!completions.ok()) return 1;
  for (int64_t token : (*completions)[0].tokens)
    std::printf("%lld\n", static_cast<long long>(token));
  return (*completions)[0].tokens.size() == 4 ? 0 : 1;
}
