// SPDX-License-Identifier: Apache-2.0
// What the help says of each command besides its options: its group and two examples.
#include <algorithm>
#include <iterator>

#include "tools/cli/command_info.h"

namespace pagefuse::tools {
namespace {

struct Entry {
  const char* name;
  const char* group;
  std::vector<ExampleInfo> examples;
};

constexpr const char* kModels = "Models";
constexpr const char* kRewrites = "Passes and rules";
constexpr const char* kProgram = "The program";

// In the order of the help. FOLDER is a model's folder; tests run the examples with one.
const std::vector<Entry>& Entries() {
  static const auto& entries = *new std::vector<Entry>{
      {"inspect",
       kModels,
       {{"pagefuse inspect FOLDER",
         "what the model holds, what of it would fuse, and why not more"},
        {"pagefuse inspect FOLDER --kv-cache fp8_per_token_head --json",
         "the same over a quantised cache, as JSON"}}},
      {"generate",
       kModels,
       {{"pagefuse generate FOLDER --prompt 'What is a block table?'",
         "an answer on the output, as it comes"},
        {"echo 'One more question' | pagefuse generate FOLDER --kv-cache fp8_per_token_head",
         "a prompt from a pipe, over a cache in fp8"}}},
      {"chat",
       kModels,
       {{"pagefuse chat FOLDER", "a conversation with a model in this process"},
        {"pagefuse chat --url http://127.0.0.1:8080 --system 'Be brief.'",
         "with the one that a server has, which is told something first"}}},
      {"serve",
       kModels,
       {{"pagefuse serve FOLDER --port 8080",
         "OpenAI's and Anthropic's APIs at http://127.0.0.1:8080"},
        {"pagefuse serve FOLDER --port 0 --kv-cache fp8_per_token_head --api-key-file KEYS",
         "at a free port, over a cache in fp8, for those who have a key"}}},
      {"batch",
       kModels,
       {{"pagefuse batch FOLDER REQUESTS -o answers.jsonl",
         "answers all requests; the same again goes on where it was ended"},
        {"pagefuse batch FOLDER REQUESTS -o answers.0.jsonl --shard 0/4",
         "every fourth line, as one of four jobs"}}},
      {"tokenize",
       kModels,
       {{"pagefuse tokenize FOLDER 'Hello'", "the ids of a text"},
        {"echo 'Hello' | pagefuse tokenize FOLDER --json", "the same from a pipe, with pieces"}}},
      {"detokenize",
       kModels,
       {{"pagefuse detokenize FOLDER 1,2,3", "the text of ids"},
        {"echo 1,2,3 | pagefuse detokenize FOLDER --json", "the same from a pipe, with pieces"}}},
      {"bench",
       kModels,
       {{"pagefuse bench FOLDER -p 64 -n 16", "tokens a second, reading 64 and generating 16"},
        {"pagefuse bench FOLDER -p 0 -n 8 -d 0,64 -b 1,2 --kv-cache none,fp8_per_token_head -r 1",
         "by depth of the context, batch and format of the cache"}}},
      {"run",
       kModels,
       {{"pagefuse run GRAPH -i x=X.pb", "runs a graph once, with one input from a file"},
        {"pagefuse run GRAPH -i x=X.pb --iterations 3 --profile",
         "three times, and the time by op and kernel"}}},
      {"opt",
       kModels,
       {{"pagefuse opt FOLDER", "the fused graph as text"},
        {"pagefuse opt FOLDER --kv-cache fp8_per_token_head -o fused.onnx",
         "the same over a quantised cache, as a file that ONNX Runtime runs too"}}},
      {"calibrate",
       kModels,
       {{"pagefuse calibrate FOLDER --prompts PROMPTS", "scales for a cache in fp8_per_tensor"},
        {"pagefuse calibrate FOLDER --prompts PROMPTS -o scales.json",
         "the same as a file for --kv-cache-scales"}}},
      {"check",
       kModels,
       {{"pagefuse check --fuse FOLDER", "whether the paged graph gives the logits of the export"},
        {"pagefuse check CASES --json", "runs test cases of ONNX's layout, results as JSON"}}},
      {"ort",
       kModels,
       {{"pagefuse ort fused.onnx --ort libonnxruntime.so.1",
         "runs a fused file in ONNX Runtime and here"},
        {"pagefuse ort fused.onnx --ort libonnxruntime.so.1 --no-library",
         "without our kernels there, by the bodies of functions"}}},
      {"explain",
       kRewrites,
       {{"pagefuse explain FOLDER", "where rules came near, and what kept them"},
        {"pagefuse explain FOLDER --rule attention --all",
         "the same of one rule, all near misses"}}},
      {"verify",
       kRewrites,
       {{"pagefuse verify FOLDER", "compares numbers before and after every rewrite"},
        {"pagefuse verify FOLDER --disable-pass cse", "without one pass"}}},
      {"bisect",
       kRewrites,
       {{"pagefuse bisect FOLDER", "finds the rewrite that first breaks what a model gives"},
        {"pagefuse bisect FOLDER -o cases", "and writes a small pass test of it"}}},
      {"reduce",
       kRewrites,
       {{"pagefuse reduce GRAPH --check '! grep -q Mul {}' -o small.onnx",
         "the smallest graph of which a command still fails"},
        {"pagefuse reduce GRAPH --check 'pagefuse opt {} | grep -q Gelu'",
         "the same, of what the passes make of it"}}},
      {"diff",
       kRewrites,
       {{"pagefuse diff FOLDER FOLDER", "what two graphs do differently"},
        {"pagefuse diff GRAPH GRAPH --numbers --json", "with their numbers, as JSON"}}},
      {"expect",
       kRewrites,
       {{"pagefuse expect EXPECTATIONS", "runs pass tests and expectations below a folder"},
        {"pagefuse expect EXPECTATIONS --junit results.xml", "with results for a CI"}}},
      {"report",
       kRewrites,
       {{"pagefuse report FOLDER -o report.html", "what the passes made of a model, on one page"},
        {"pagefuse report FOLDER --json --no-times", "the data of the page"}}},
      {"ops",
       kProgram,
       {{"pagefuse ops", "all ops and their kernels"}, {"pagefuse ops PagedAttention", "one op"}}},
      {"plugin",
       kProgram,
       {{"pagefuse plugin libmine.so", "what a plug-in adds"},
        {"PAGEFUSE_PLUGINS=libmine.so pagefuse ops", "the same plug-in in every command"}}},
      {"completion",
       kProgram,
       {{"pagefuse completion bash > pagefuse.bash", "source the file, or install it"},
        {"pagefuse completion fish", "for fish; zsh is the third"}}},
      {"man",
       kProgram,
       {{"pagefuse man generate", "a page for man -l -"},
        {"pagefuse man -o man1", "all pages, as files"}}},
  };
  return entries;
}

}  // namespace

std::vector<ExampleInfo> ExamplesOf(const std::string& command) {
  if (command == "pagefuse") {
    return {{"pagefuse inspect FOLDER", "can this model be paged?"},
            {"pagefuse generate FOLDER --prompt 'Hello'", "an answer"}};
  }
  for (const Entry& entry : Entries()) {
    if (entry.name == command) return entry.examples;
  }
  return {};
}

std::string GroupOf(const std::string& command) {
  for (const Entry& entry : Entries()) {
    if (entry.name == command) return entry.group;
  }
  return kProgram;
}

size_t PlaceOf(const std::string& command) {
  const auto found =
      std::ranges::find_if(Entries(), [&](const Entry& entry) { return entry.name == command; });
  return static_cast<size_t>(std::distance(Entries().begin(), found));
}

std::string ProgramFooter() {
  return "Exit status:\n"
         "  0    done\n"
         "  1    the input or the command line is wrong, a check failed, or two things differ\n"
         "  2    a fault of pagefuse itself\n"
         "  128+N  ended by signal N; 130 by Ctrl-C\n"
         "\n"
         "Environment:\n"
         "  PAGEFUSE_PLUGINS  plug-ins to load, with colons between them\n"
         "  NO_COLOR          no dim text on terminals\n"
         "\n"
         "A FOLDER is a model as people download it: config.json, tokenizer.json, and the graph as "
         "model.onnx or in onnx/. `pagefuse COMMAND --help` tells of a command.";
}

}  // namespace pagefuse::tools
