// pagefuse ort: runs a file in ONNX Runtime and here, and compares.
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/ort_host.h"
#include "tools/ort_steps.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/kernels/numeric/convert.h"
#include "pagefuse/runtime/session.h"

namespace pagefuse::tools {
namespace {

struct Flags {
  std::string model, library;
  bool no_bind = false;
  int threads = 1, repeat = 1;
};

// Share of bytes of codes that may be the neighbour of what they are here.
constexpr double kRoundedApart = 1e-3;
// Of floats; where a code is a step apart; and of graphs that compute in 16 bits.
constexpr double kTolerance = 1e-5;
constexpr double kToleranceOfRounding = 5e-3;
constexpr double kToleranceOfHalf = 1e-2;

// The largest differences between outputs: floats, relative to the largest of them above 1, and
// elements of other types that differ at all.
struct Comparison {
  int outputs = 0;
  double largest = 0;
  std::string worst;
  int64_t code_bytes = 0, different_codes = 0;
  bool is_half = false;  // some are of 16 bits, and so are what they were computed of

  absl::Status Add(const std::string& name, const Tensor& ours, const Tensor& theirs);
};

absl::Status Comparison::Add(const std::string& name, const Tensor& ours, const Tensor& theirs) {
  if (ours.dtype() != theirs.dtype() || ours.dims() != theirs.dims()) {
    return absl::InvalidArgumentError(StrCat(
        "output \"", name, "\": expected ", DataTypeName(ours.dtype()), DimsToString(ours.dims()),
        ", got ", DataTypeName(theirs.dtype()), DimsToString(theirs.dims())));
  }
  ++outputs;
  if (!IsFloatingPoint(ours.dtype()) || IsFloat8(ours.dtype())) {
    code_bytes += ours.byte_size();
    const auto* a = static_cast<const uint8_t*>(ours.data());
    const auto* b = static_cast<const uint8_t*>(theirs.data());
    for (int64_t i = 0; i < ours.byte_size(); ++i) different_codes += a[i] != b[i] ? 1 : 0;
    return absl::OkStatus();
  }
  std::vector<double> numbers(ours.size()), others(ours.size());
  PF_RETURN_IF_ERROR(DecodeToDouble(ours.dtype(), ours.data(), ours.size(), numbers.data()));
  PF_RETURN_IF_ERROR(DecodeToDouble(ours.dtype(), theirs.data(), ours.size(), others.data()));
  double scale = 1;
  for (const double x : numbers) scale = std::max(scale, std::abs(x));
  is_half = is_half || ours.dtype() != DataType::kFloat;
  for (int64_t i = 0; i < ours.size(); ++i) {
    const double a = numbers[i], b = others[i];
    const double difference = std::isnan(a) && std::isnan(b) ? 0 : std::abs(a - b) / scale;
    if (difference <= largest) continue;
    largest = std::isnan(difference) ? INFINITY : difference;
    worst = name;
  }
  return absl::OkStatus();
}

struct Result {
  std::string version;
  Comparison comparison;
  int steps = 0;
  double microseconds = 0;  // of a step, the fastest
};

absl::StatusOr<Result> RunBoth(const Flags& flags) {
  PF_ASSIGN_OR_RETURN(std::shared_ptr<OrtLibrary> library, OrtLibrary::Load(flags.library));
  PF_ASSIGN_OR_RETURN(auto theirs,
                      OrtSession::Create(library, flags.model, {.threads = flags.threads}));
  PF_ASSIGN_OR_RETURN(Model model, ReadModel(flags.model));
  PF_ASSIGN_OR_RETURN(std::vector<OrtStep> steps, MakeSteps(std::move(model)));
  Result result{.version = library->version(), .steps = static_cast<int>(steps.size())};
  result.microseconds = INFINITY;
  for (OrtStep& step : steps) {
    std::vector<Tensor> outputs;
    for (int i = 0; i < flags.repeat; ++i) {
      PF_ASSIGN_OR_RETURN(const StepMemory memory, MemoryOf(step, !flags.no_bind));
      const auto start = std::chrono::steady_clock::now();
      PF_ASSIGN_OR_RETURN(outputs, theirs->Run(memory.feeds, step.output_names, memory.bound));
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      result.microseconds = std::min(result.microseconds, time.count());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      PF_RETURN_IF_ERROR(result.comparison.Add(step.output_names[i], step.expected[i], outputs[i]));
    }
  }
  return result;
}

absl::Status Ort(const Flags& flags) {
  if (flags.library.empty()) {
    return absl::InvalidArgumentError(
        "ort needs --ort=LIBRARY, the path of libonnxruntime.so.1 of ONNX Runtime 1.17 or newer");
  }
  PF_ASSIGN_OR_RETURN(const Result result, RunBoth(flags));
  const Comparison& c = result.comparison;
  // Where products are summed in another order a value beside a tie is rounded the other way.
  const double tolerance = c.is_half               ? kToleranceOfHalf
                           : c.different_codes > 0 ? kToleranceOfRounding
                                                   : kTolerance;
  const bool equal = c.largest <= tolerance &&
                     static_cast<double>(c.different_codes) <= kRoundedApart * c.code_bytes;
  std::cout << "ONNX Runtime " << result.version << ", function bodies\n"
            << result.steps << " steps, " << c.outputs << " outputs"
            << (equal ? " equal" : " differ") << ": floats within " << c.largest;
  if (!equal && !c.worst.empty()) std::cout << " (\"" << c.worst << "\")";
  if (c.code_bytes > 0) {
    std::cout << ", " << c.code_bytes - c.different_codes << " of " << c.code_bytes
              << " bytes of codes identical";
  }
  std::cout << "\n" << result.microseconds << " us a step\n";
  if (equal) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("outputs differ: floats by ", c.largest, " of at most ",
                                           tolerance, ", ", c.different_codes, " bytes of codes"));
}

}  // namespace

void AddOrtCommand(Command app, Outcome& outcome) {
  auto flags = std::make_shared<Flags>();
  Command command = app.AddCommand("ort", "runs a file in ONNX Runtime and here, and compares",
                                   [flags, &outcome] { outcome.status = Ort(*flags); });
  command.AddText("model", flags->model, "ONNX model").Required();
  command.AddText("--ort", flags->library, "libonnxruntime.so.1 of release 1.17 or newer");
  command.AddFlag("--no-bind", flags->no_bind,
                  "caches are not bound to their outputs: each step copies them");
  command.AddNumber("--threads", flags->threads, {1, kMaxInt32}, "threads of ONNX Runtime")
      .ShowsDefault();
  command.AddNumber("--repeat", flags->repeat, {1, kMaxInt32}, "runs of each step").ShowsDefault();
}

}  // namespace pagefuse::tools
