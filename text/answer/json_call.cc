// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/json_call.h"

#include <utility>

#include "pagefuse/text/answer/json_text.h"

namespace pagefuse {
namespace {

bool IsArgumentsKey(std::string_view key) { return key == "arguments" || key == "parameters"; }
bool IsTextKey(std::string_view key) { return key == "name" || key == "type" || key == "id"; }

}  // namespace

CallReader::Read JsonCallReader::Add(char c, CallSink& sink) {
  switch (state_) {
    case kInKey:
      return AddToKey(c);
    case kText:
      return AddToText(c, sink);
    case kArguments:
      return AddToArguments(c, sink);
    case kRest:
      return AddToRest(c);
    case kClosing:
      return ReadLiteral(closing_, c);
    default:
      return IsJsonSpace(c) ? Read::kMore : AddSpaced(c, sink);
  }
}

CallReader::Read JsonCallReader::AddSpaced(char c, CallSink& sink) {
  if (state_ == kBegin && c == '{') return Go(kKey);
  if (state_ == kColon && c == ':') return Go(kValue);
  if (state_ == kNext && c == ',') return Go(kKey);
  if (state_ == kValue) return BeginValue(c, sink);
  if (state_ != kKey || c != '"') return Broken(c);
  text_.clear();
  scanner_ = JsonScanner();
  state_ = kInKey;
  return AddToKey(c);
}

CallReader::Read JsonCallReader::AddToKey(char c) {
  const JsonScanner::Read read = scanner_.Add(c);
  if (read == JsonScanner::Read::kBad || text_.size() > kMaxNameBytes) return Broken(c);
  text_ += c;
  if (read == JsonScanner::Read::kMore) return Read::kMore;
  key_ = TextOfJsonString(text_);
  // Another object that begins with a brace is no call: its text need not wait for its end.
  const bool twice = key_ == "name" ? !name_.empty() : IsArgumentsKey(key_) && !arguments_.empty();
  if (twice || (!IsTextKey(key_) && !IsArgumentsKey(key_))) return Broken();
  return Go(kColon);
}

CallReader::Read JsonCallReader::BeginValue(char c, CallSink& sink) {
  if (c != (IsTextKey(key_) ? '"' : '{')) return Broken(c);
  scanner_ = JsonScanner();
  text_.clear();
  state_ = IsTextKey(key_) ? kText : kArguments;
  if (state_ == kText) return AddToText(c, sink);
  if (!name_.empty() && !sink.BeginCall(name_)) return Broken(c);
  return AddToArguments(c, sink);
}

CallReader::Read JsonCallReader::AddToText(char c, CallSink& sink) {
  const JsonScanner::Read read = scanner_.Add(c);
  if (read == JsonScanner::Read::kBad || text_.size() > kMaxNameBytes) return Broken(c);
  text_ += c;
  if (read == JsonScanner::Read::kMore) return Read::kMore;
  if (key_ != "name") return Go(kNext);
  name_ = TextOfJsonString(text_);
  if (name_.empty()) return Broken();
  if (arguments_.empty()) return Go(kNext);
  if (!sink.BeginCall(name_)) return Broken();
  sink.AddArguments(std::exchange(arguments_, {}));
  scanner_ = JsonScanner::AfterMember();
  return Go(kRest);
}

CallReader::Read JsonCallReader::AddToArguments(char c, CallSink& sink) {
  const JsonScanner::Read read = scanner_.Add(c);
  if (read == JsonScanner::Read::kBad) return Broken(c);
  if (name_.empty()) {
    arguments_ += c;
  } else {
    sink.AddArguments({&c, 1});
  }
  if (read == JsonScanner::Read::kMore) return Read::kMore;
  if (name_.empty()) return Go(kNext);
  scanner_ = JsonScanner::AfterMember();
  return Go(kRest);
}

CallReader::Read JsonCallReader::AddToRest(char c) {
  switch (scanner_.Add(c)) {
    case JsonScanner::Read::kMore:
      return Read::kMore;
    case JsonScanner::Read::kDone:
      return closing_.empty() ? Read::kDone : Go(kClosing);
    default:
      break;
  }
  if (closing_.empty()) return Broken(c);
  state_ = kClosing;
  return ReadLiteral(closing_, c);
}

}  // namespace pagefuse
