// SPDX-License-Identifier: Apache-2.0
// DeepSeek V3.2: a section of calls in tags, each parameter in a tag of its own that says whether it is a string.
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/answer/call_reader.h"
#include "pagefuse/text/answer/json_scanner.h"
#include "pagefuse/text/answer/json_text.h"
#include "pagefuse/text/answer/mark_scanner.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

constexpr std::string_view kInvokeBegin = "<｜DSML｜invoke name=\"";
constexpr std::string_view kInvokeEnd = "</｜DSML｜invoke>";
constexpr std::string_view kParameterBegin = "<｜DSML｜parameter name=\"";
constexpr std::string_view kParameterEnd = "</｜DSML｜parameter>";
constexpr std::string_view kDsmlIsString = "\" string=\"true\">",
                           kDsmlIsJson = "\" string=\"false\">";

// Strings and whole lists and objects are passed on as they come; other values when they have ended,
// since one that is no JSON becomes a string.
class DsmlReader : public CallReader {
 public:
  explicit DsmlReader(bool begun) : state_(begun ? kName : kBegin) {}
  Read Add(char c, CallSink& sink) override;

 private:
  enum State {
    kBegin,
    kName,
    kNameEnd,
    kMember,
    kKey,
    kKeyEnd,
    kText,
    kJson,
    kNested,
    kScalar,
    kEnd
  };

  Read Go(State state) {
    state_ = state;
    return Read::kMore;
  }
  Read AddToLiteral(char c, CallSink& sink);
  Read EndLiteral(size_t which, CallSink& sink);
  Read AddToQuoted(char c);
  Read AddToText(char c, CallSink& sink);
  Read BeginJson(char c, CallSink& sink);
  Read AddToNested(char c, CallSink& sink);
  Read AddToScalar(char c, CallSink& sink);

  State state_;
  std::string word_;  // the name or key that is read, or the scalar
  bool has_parameters_ = false;
  MarkScanner end_{{kParameterEnd}};
  JsonScanner nested_;
};

CallReader::Read DsmlReader::Add(char c, CallSink& sink) {
  switch (state_) {
    case kName:
    case kKey:
      if (c != '"') return AddToQuoted(c);
      if (word_.empty()) return Broken(c);
      state_ = state_ == kName ? kNameEnd : kKeyEnd;
      return AddToLiteral(c, sink);
    case kText:
      return AddToText(c, sink);
    case kJson:
      return BeginJson(c, sink);
    case kNested:
      return AddToNested(c, sink);
    case kScalar:
      return AddToScalar(c, sink);
    default:
      return AddToLiteral(c, sink);
  }
}

CallReader::Read DsmlReader::AddToQuoted(char c) {
  const bool wrong = c == '<' || c == '>' || static_cast<unsigned char>(c) < 0x20;
  if (wrong || IsTooLong(word_, c)) return Broken(c);
  word_ += c;
  return Read::kMore;
}

CallReader::Read DsmlReader::AddToLiteral(char c, CallSink& sink) {
  static constexpr std::string_view kDsmlMembers[] = {kInvokeEnd, kParameterBegin};
  static constexpr std::string_view kDsmlKinds[] = {kDsmlIsString, kDsmlIsJson};
  static constexpr std::string_view kBegins[] = {kInvokeBegin}, kNameEnds[] = {"\">"},
                                    kEnds[] = {kParameterEnd};
  std::span<const std::string_view> literals = kBegins;
  if (state_ == kNameEnd) literals = kNameEnds;
  if (state_ == kMember) literals = kDsmlMembers;
  if (state_ == kKeyEnd) literals = kDsmlKinds;
  if (state_ == kEnd) literals = kEnds;
  size_t which = 0;
  const Read read = ReadLiteral(literals, c, &which);
  return read == Read::kDone ? EndLiteral(which, sink) : read;
}

CallReader::Read DsmlReader::EndLiteral(size_t which, CallSink& sink) {
  const std::string word = std::exchange(word_, std::string());
  switch (state_) {
    case kBegin:
      return Go(kName);
    case kNameEnd:
      return sink.BeginCall(word) ? Go(kMember) : Broken();
    case kMember:
      if (which == 1) return Go(kKey);
      sink.AddArguments(has_parameters_ ? "}" : "{}");
      return Read::kDone;
    case kKeyEnd:
      sink.AddArguments(StrCat(has_parameters_ ? ", " : "{", JsonQuoted(word), ": "));
      has_parameters_ = true;
      if (which == 1) return Go(kJson);
      sink.AddArguments("\"");
      return Go(kText);
    default:
      return Go(kMember);
  }
}

CallReader::Read DsmlReader::AddToText(char c, CallSink& sink) {
  std::string text;
  const bool ends = end_.Add(c, &text).has_value();
  if (!text.empty()) sink.AddArguments(JsonEscaped(text));
  if (!ends) return Read::kMore;
  sink.AddArguments("\"");
  return Go(kMember);
}

CallReader::Read DsmlReader::BeginJson(char c, CallSink& sink) {
  if (IsJsonSpace(c)) return Read::kMore;
  state_ = c == '{' || c == '[' ? kNested : kScalar;
  nested_ = JsonScanner();
  return state_ == kNested ? AddToNested(c, sink) : AddToScalar(c, sink);
}

CallReader::Read DsmlReader::AddToNested(char c, CallSink& sink) {
  const JsonScanner::Read read = nested_.Add(c);
  if (read == JsonScanner::Read::kBad) return Broken(c);
  sink.AddArguments({&c, 1});
  return read == JsonScanner::Read::kDone ? Go(kEnd) : Read::kMore;
}

CallReader::Read DsmlReader::AddToScalar(char c, CallSink& sink) {
  if (!end_.Add(c, &word_)) return Read::kMore;
  sink.AddArguments(JsonOfBareValue(TrimJsonSpace(word_)));
  word_.clear();
  return Go(kMember);
}

// Some templates put the marks together from a word.
bool FitsDsml(std::string_view source) {
  return Mentions(source, "｜DSML｜") && Mentions(source, "function_calls");
}

std::unique_ptr<CallReader> ReadDsml(bool begun) { return std::make_unique<DsmlReader>(begun); }

}  // namespace

const ToolFormat kDeepSeekV32Tools = {
    .name = "deepseek_v32",
    .section_begin = "<｜DSML｜function_calls>",
    .section_end = "</｜DSML｜function_calls>",
    .call_begin = kInvokeBegin,
    .call_end = kInvokeEnd,
    .bare_mark = "",
    .text = {.opening = "<｜DSML｜function_calls>\n",
             .before_name = kInvokeBegin,
             .before_arguments = "\">\n",
             .after_arguments = "</｜DSML｜invoke>",
             .separator = "\n",
             .closing = "\n</｜DSML｜function_calls>",
             .syntax = ArgumentSyntax::kTextParameters,
             .parameter = {.before_key = kParameterBegin,
                           .before_string = kDsmlIsString,
                           .after_string = "</｜DSML｜parameter>\n",
                           .before_value = kDsmlIsJson,
                           .after_value = "</｜DSML｜parameter>\n",
                           .separator = "",
                           .value_is_json = true,
                           .nested_string = ""}},
    .fits = FitsDsml,
    .read = ReadDsml,
};

}  // namespace pagefuse
