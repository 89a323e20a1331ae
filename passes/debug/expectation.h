// SPDX-License-Identifier: Apache-2.0
// Expectations of whole models in files: which ops the passes leave, how many nodes, which inputs,
// and that the numbers stay. Pass tests (pass_case.h) are the other kind of file that `expect` runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pagefuse/passes/debug/pass_case.h"
#include "pagefuse/passes/pipeline/pipeline.h"

namespace pagefuse {

// A file <name>.onnxtxt, or <name>.expect where it holds no graph:
//
//   # What this is about.
//   # model: ../models/m/model.onnx      (beside the file; else the graph stands in the file)
//   # options: kv_cache=none             (optional)
//   # page: no                           (optional: stages canonicalize, recognise and fuse only)
//   # rules: mine.rules.txt              (optional, beside the file)
//   # plugin: acme.txt                   (optional, beside the file)
//   # expect: pagefuse.PagedAttention x6, pagefuse.GatedLinear     (without a count: at least one)
//   # expect-not: Softmax, Concat
//   # expect-node: pagefuse.PagedAttention <sliding_window = 16> x5
//   # expect-input: "kv_cache.0.key" float8e4m3fn[?, 16, 1, 32]
//   # numbers: logits within 1e-4        (of the graph before)
//   # nodes: at most 140
struct Expectation {
  struct Op {
    std::string text;  // as written, without its count: `pagefuse.PagedAttention <scale = 1.0>`
    std::optional<int64_t> count;
    size_t line = 0;
  };
  struct Input {
    std::string name;
    std::string type;  // `float[?, 16]`, where `?` stands for any dim
  };
  struct Numbers {
    std::string output;
    double tolerance = 0;
  };

  std::string path;
  std::vector<std::string> lines;
  std::string model;  // empty: the text of the file
  PipelineOptions options;
  std::vector<std::string> plugins;  // paths, loaded before it runs (RunExpectFile)
  std::vector<Op> ops, nodes;
  std::vector<std::string> absent;
  std::vector<Input> inputs;
  std::optional<Numbers> numbers;
  std::optional<int64_t> most_nodes;
};

// True for a text with a line `# expect...:`, `# numbers:` or `# nodes:` that is no pass test.
bool IsExpectation(const std::string& text);

// InvalidArgument with the file and line of a key that is not known or says nothing.
absl::StatusOr<Expectation> ReadExpectation(const std::string& path);

// Runs a graph before, and what the passes make of it, where they change its inputs.
using PagedComparison =
    std::function<absl::Status(const Model& before, const PipelineOptions&, double tolerance)>;

// Reads the model that a file names, without data that is not there. Null for LoadModel.
using ModelReader = std::function<absl::StatusOr<Model>(const std::string& path)>;

// Runs the passes and checks the graph that they leave. A failure of a count comes with the places
// that no fused op took up.
CaseResult RunExpectation(const Expectation& expectation, const PagedComparison& compare_paged,
                          const ModelReader& read_model = nullptr);

// The files below a folder that hold a pass test or an expectation, sorted; a file itself.
// NotFound if there are none.
absl::StatusOr<std::vector<std::string>> FindExpectations(const std::string& path);

// What the layers above do for a file.
struct ExpectHooks {
  PagedComparison compare_paged;
  // Loads a plug-in that a file names. What it adds is there for files behind it too.
  std::function<absl::Status(const std::string& path)> load_plugin;
  ModelReader read_model = nullptr;
};

// Runs one file of either kind.
CaseResult RunExpectFile(const std::string& path, const ExpectHooks& hooks);

}  // namespace pagefuse
