// SPDX-License-Identifier: Apache-2.0
// Reads expectations.
#include "pagefuse/passes/debug/expectation.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"
#include "pagefuse/passes/edit/similar_names.h"

namespace pagefuse {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string>& Keys() {
  static const auto* keys = new std::vector<std::string>{
      "model",  "options",    "page",        "rules",        "plugin",  "run",
      "expect", "expect-not", "expect-node", "expect-input", "numbers", "nodes"};
  return *keys;
}

std::string Trim(absl::string_view text) { return std::string(absl::StripAsciiWhitespace(text)); }

// The key and the value of `# key: value`; an empty key for any other line. A word with a colon at
// the start of a comment is a key.
std::pair<std::string, std::string> KeyOf(const std::string& line) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "# ")) return {};
  const size_t colon = rest.find(':');
  if (colon == absl::string_view::npos) return {};
  const std::string key(rest.substr(0, colon));
  const bool word =
      std::ranges::all_of(key, [](char c) { return (c >= 'a' && c <= 'z') || c == '-'; });
  return word ? std::make_pair(key, Trim(rest.substr(colon + 1)))
              : std::pair<std::string, std::string>();
}

bool Expects(const std::string& key) {
  return absl::StartsWith(key, "expect") || key == "numbers" || key == "nodes";
}

// `pagefuse.Op <a = 1> x5`: the count off the end.
Expectation::Op ReadOp(const std::string& text, size_t line) {
  Expectation::Op op{.text = text, .count = {}, .line = line};
  const size_t space = text.rfind(' ');
  int64_t count = 0;
  if (space == std::string::npos || text.compare(space, 2, " x") != 0 ||
      !absl::SimpleAtoi(text.substr(space + 2), &count)) {
    return op;
  }
  op.text = Trim(text.substr(0, space));
  op.count = count;
  return op;
}

class Reader {
 public:
  explicit Reader(Expectation& out) : out_(out) {}

  absl::Status Read() {
    for (size_t i = 0; i < out_.lines.size(); ++i) {
      const auto [key, value] = KeyOf(out_.lines[i]);
      if (key.empty()) continue;
      const absl::Status status = ReadKey(key, value, i);
      if (status.ok()) continue;
      return absl::InvalidArgumentError(
          StrCat(out_.path, ": line ", i + 1, ": ", StdView(status.message())));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadKey(const std::string& key, const std::string& value, size_t line) {
    if (key == "model") {
      out_.model = PathBeside(out_.path, value);
    } else if (key == "options") {
      return ReadOptions(value, out_.options.options);
    } else if (key == "page") {
      out_.options.page = value != "no";
    } else if (key == "rules") {
      PF_ASSIGN_OR_RETURN(out_.options.rules.emplace_back(), ReadRulesBeside(out_.path, value));
    } else if (key == "plugin") {
      out_.plugins.push_back(PathBeside(out_.path, value));
    } else if (key == "run") {
      for (std::string& name : ReadNames(value)) out_.options.passes.push_back(std::move(name));
    } else if (Expects(key)) {
      return ReadExpected(key, value, line);
    } else {
      return UnknownKey(key);
    }
    return absl::OkStatus();
  }

  static absl::Status UnknownKey(const std::string& key) {
    return absl::InvalidArgumentError(
        StrCat("there is no key \"", key, "\"", SimilarNames(key, Keys())));
  }

  absl::Status ReadExpected(const std::string& key, const std::string& value, size_t line) {
    if (value.empty()) return absl::InvalidArgumentError(StrCat("\"", key, "\" says nothing"));
    if (key == "expect") {
      for (const std::string& op : ReadNames(value)) out_.ops.push_back(ReadOp(op, line));
    } else if (key == "expect-not") {
      for (std::string& op : ReadNames(value)) out_.absent.push_back(std::move(op));
    } else if (key == "expect-node") {
      out_.nodes.push_back(ReadOp(value, line));
    } else if (key == "expect-input") {
      return ReadInput(value);
    } else if (key == "numbers") {
      return ReadNumbers(value);
    } else if (key == "nodes") {
      return ReadNodes(value);
    } else {
      return UnknownKey(key);
    }
    return absl::OkStatus();
  }

  absl::Status ReadInput(const std::string& value) {
    const size_t end = value.find("\" ");
    if (value[0] != '"' || end == std::string::npos) {
      return absl::InvalidArgumentError("expected \"name\" type[dims]");
    }
    out_.inputs.push_back({value.substr(1, end - 1), Trim(value.substr(end + 2))});
    return absl::OkStatus();
  }

  absl::Status ReadNumbers(const std::string& value) {
    const std::vector<std::string> words = absl::StrSplit(value, ' ');
    Expectation::Numbers numbers;
    if (words.size() != 3 || words[1] != "within" ||
        !absl::SimpleAtod(words[2], &numbers.tolerance)) {
      return absl::InvalidArgumentError("expected OUTPUT within NUMBER");
    }
    numbers.output = words[0];
    out_.numbers = numbers;
    return absl::OkStatus();
  }

  absl::Status ReadNodes(const std::string& value) {
    absl::string_view rest = value;
    int64_t most = 0;
    if (!absl::ConsumePrefix(&rest, "at most ") || !absl::SimpleAtoi(rest, &most)) {
      return absl::InvalidArgumentError("expected at most NUMBER");
    }
    out_.most_nodes = most;
    return absl::OkStatus();
  }

  Expectation& out_;
};

bool MayHold(const fs::path& path) {
  return path.extension() == ".onnxtxt" || path.extension() == ".expect";
}

}  // namespace

bool IsExpectation(const std::string& text) {
  if (IsPassCase(text)) return false;
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  return std::ranges::any_of(lines,
                             [](const std::string& line) { return Expects(KeyOf(line).first); });
}

absl::StatusOr<Expectation> ReadExpectation(const std::string& path) {
  PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  Expectation expectation;
  expectation.path = path;
  expectation.lines = absl::StrSplit(text, '\n');
  PF_RETURN_IF_ERROR(Reader(expectation).Read());
  return expectation;
}

absl::StatusOr<std::vector<std::string>> FindExpectations(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    PF_RETURN_IF_ERROR(ReadFile(path).status());
    return std::vector<std::string>{path};
  }
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    if (!entry.is_regular_file() || !MayHold(entry.path())) continue;
    PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(entry.path().string()));
    if (IsPassCase(text) || IsExpectation(text)) files.push_back(entry.path().string());
  }
  if (files.empty()) {
    return absl::NotFoundError(
        StrCat("no pass test and no expectation (.onnxtxt, .expect) below \"", path, "\""));
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace pagefuse
