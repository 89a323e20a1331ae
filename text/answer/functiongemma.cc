// SPDX-License-Identifier: Apache-2.0
// FunctionGemma: call:NAME{key:<escape>text<escape>,n:1} between marks. Values nest, keys are bare, strings stand between <escape>.
#include "pagefuse/base/json_depth.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/answer/call_reader.h"
#include "pagefuse/text/answer/json_text.h"
#include "pagefuse/text/answer/mark_scanner.h"
#include "pagefuse/text/answer/source_words.h"
#include "pagefuse/text/answer/tool_format.h"

namespace pagefuse {
namespace {

constexpr std::string_view kGemmaCallBegin = "<start_function_call>";
constexpr std::string_view kGemmaCallEnd = "<end_function_call>";
constexpr std::string_view kGemmaStringMark = "<escape>";

class FunctionGemmaReader : public CallReader {
 public:
  Read Add(char c, CallSink& sink) override;

 private:
  enum State { kBegin, kName, kKeyOrEnd, kKey, kValueOrEnd, kValue, kQuote, kText, kNext, kEnd };

  Read Go(State state) {
    state_ = state;
    return Read::kMore;
  }
  Read AddToName(char c, CallSink& sink);
  Read AddToKey(char c, CallSink& sink);
  Read AddToValue(char c, CallSink& sink);
  Read AddToText(char c, CallSink& sink);
  Read AddToNext(char c, CallSink& sink);
  Read Open(char c, CallSink& sink);

  State state_ = kBegin;
  std::string word_;     // the name, the key or the bare value that is read
  bool is_key_ = false;  // of the string that is read
  std::string open_;     // the brackets around, the innermost last
  MarkScanner quote_{{kGemmaStringMark}};
};

CallReader::Read FunctionGemmaReader::Add(char c, CallSink& sink) {
  Read read = Read::kMore;
  switch (state_) {
    case kBegin:
      read = ReadLiteral("call:", c);
      return read == Read::kDone ? Go(kName) : read;
    case kName:
      return AddToName(c, sink);
    case kKeyOrEnd:
    case kKey:
      return AddToKey(c, sink);
    case kValueOrEnd:
    case kValue:
      return AddToValue(c, sink);
    case kQuote:
      read = ReadLiteral(kGemmaStringMark, c);
      if (read != Read::kDone) return read;
      sink.AddArguments("\"");
      return Go(kText);
    case kText:
      return AddToText(c, sink);
    case kNext:
      return IsJsonSpace(c) ? Read::kMore : AddToNext(c, sink);
    case kEnd:
      return ReadLiteral(kGemmaCallEnd, c);
  }
  return read;
}

CallReader::Read FunctionGemmaReader::AddToName(char c, CallSink& sink) {
  const Read read = ReadWord(c, &word_);
  if (read != Read::kDone) return read;
  if (c != '{' || !sink.BeginCall(word_)) return Broken(c);
  word_.clear();
  return Open(c, sink);
}

CallReader::Read FunctionGemmaReader::Open(char c, CallSink& sink) {
  if (open_.size() >= kMaxJsonDepth) return Broken(c);
  open_ += c;
  sink.AddArguments({&c, 1});
  return Go(c == '{' ? kKeyOrEnd : kValueOrEnd);
}

CallReader::Read FunctionGemmaReader::AddToKey(char c, CallSink& sink) {
  const std::string_view key = TrimJsonSpace(word_);
  if (key.empty() && IsJsonSpace(c)) return Read::kMore;
  if (key.empty() && c == '}' && state_ == kKeyOrEnd) return AddToNext(c, sink);
  if (key.empty() && c == '<') {
    is_key_ = true;
    state_ = kQuote;
    return Add(c, sink);
  }
  if (c == ':' && !key.empty()) {
    sink.AddArguments(StrCat(JsonQuoted(key), ": "));
    word_.clear();
    return Go(kValue);
  }
  const bool wrong = std::string_view("<>{}[],:").find(c) != std::string_view::npos;
  if (wrong || IsTooLong(word_, c)) return Broken(c);
  word_ += c;
  return Read::kMore;
}

CallReader::Read FunctionGemmaReader::AddToValue(char c, CallSink& sink) {
  if (word_.empty()) {
    if (IsJsonSpace(c)) return Read::kMore;
    if (c == ']' && state_ == kValueOrEnd) return AddToNext(c, sink);
    if (c == '{' || c == '[') return Open(c, sink);
    if (c == '<') {
      is_key_ = false;
      state_ = kQuote;
      return Add(c, sink);
    }
  }
  const bool ends = c == ',' || c == '}' || c == ']';
  // Behind a bare value without an end, the mark of the call's end must not become part of it.
  if (c == '<' || (ends && word_.empty())) return Broken(c);
  if (!ends) {
    word_ += c;
    return Read::kMore;
  }
  sink.AddArguments(JsonOfBareValue(TrimJsonSpace(word_)));
  word_.clear();
  return AddToNext(c, sink);
}

CallReader::Read FunctionGemmaReader::AddToText(char c, CallSink& sink) {
  std::string text;
  const bool ends = quote_.Add(c, &text).has_value();
  if (!text.empty()) sink.AddArguments(JsonEscaped(text));
  if (!ends) return Read::kMore;
  sink.AddArguments("\"");
  return Go(kNext);
}

CallReader::Read FunctionGemmaReader::AddToNext(char c, CallSink& sink) {
  if (state_ == kNext && is_key_) {
    if (c != ':') return Broken(c);
    is_key_ = false;
    sink.AddArguments(": ");
    return Go(kValue);
  }
  if (c == ',') {
    sink.AddArguments(", ");
    return Go(open_.back() == '{' ? kKey : kValue);
  }
  if (c != (open_.back() == '{' ? '}' : ']')) return Broken(c);
  open_.pop_back();
  sink.AddArguments({&c, 1});
  return Go(open_.empty() ? kEnd : kNext);
}

bool FitsFunctionGemma(std::string_view source) { return Mentions(source, kGemmaCallBegin); }

std::unique_ptr<CallReader> ReadFunctionGemma(bool) {
  return std::make_unique<FunctionGemmaReader>();
}

}  // namespace

const ToolFormat kFunctionGemmaTools = {
    .name = "functiongemma",
    .section_begin = "",
    .section_end = "",
    .call_begin = kGemmaCallBegin,
    .call_end = kGemmaCallEnd,
    .bare_mark = "",
    .text = {.opening = "",
             .before_name = "<start_function_call>call:",
             .before_arguments = "{",
             .after_arguments = "}<end_function_call>",
             .separator = "",
             .closing = "",
             .syntax = ArgumentSyntax::kTextParameters,
             .parameter = {.before_key = "",
                           .before_string = ":<escape>",
                           .after_string = "<escape>",
                           .before_value = ":",
                           .after_value = "",
                           .separator = ",",
                           .value_is_json = false,
                           .nested_string = kGemmaStringMark}},
    .fits = FitsFunctionGemma,
    .read = ReadFunctionGemma,
};

}  // namespace pagefuse
