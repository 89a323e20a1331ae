// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/text/answer/answer_parser.h"

#include <algorithm>
#include <utility>

#include "pagefuse/text/answer/call_reader.h"
#include "pagefuse/text/answer/json_text.h"
#include "pagefuse/text/answer/mark_scanner.h"

namespace pagefuse {

// Works on single bytes, so that it cannot matter where the text was cut.
class AnswerParser::Impl : private CallSink {
 public:
  explicit Impl(AnswerParserOptions options);

  void Add(char c);
  void Finish();
  std::vector<AnswerPiece> Take() { return std::exchange(pieces_, {}); }
  int calls() const { return calls_; }

 private:
  enum Mark { kOpening, kClosing, kDropped, kSectionBegin, kSectionEnd, kCallMark, kBrace };

  const ReasoningFormat* reasoning() const { return options_.format.reasoning; }
  void Emit(AnswerPiece::Kind kind, std::string_view text);
  void SeekMarks();
  void SeekToolMarks();
  void Seek(std::string_view mark, Mark kind);

  void AddText(std::string_view text);
  void AddMark(Mark kind, std::string_view mark);
  void BeginReasoning();
  void EndReasoning();
  void AddToLabel(char c);
  void DropSpace();

  void ReadCall(Mark kind, std::string_view mark);
  void AddToCall(char c);
  void EndCall();
  void BreakCall();
  bool BeginCall(std::string_view name) override;
  void AddArguments(std::string_view json) override { Emit(AnswerPiece::kCallArguments, json); }

  AnswerParserOptions options_;
  std::vector<AnswerPiece> pieces_;
  MarkScanner scanner_;
  std::vector<std::pair<std::string_view, Mark>> marks_;  // that the scanner seeks

  bool in_reasoning_ = false;
  bool has_reasoned_ = false;
  bool in_label_ = false;
  std::string label_;         // as much of it as has been read
  bool has_text_ = false;     // since the last mark or call
  bool drops_space_ = false;  // that comes next
  std::string space_;         // that is dropped if a mark follows

  int calls_ = 0;
  bool in_section_ = false;
  std::unique_ptr<CallReader> reader_;  // of the call that is read
  bool call_begun_ = false;
  std::string held_;  // the text of the call until it has begun
};

AnswerParser::Impl::Impl(AnswerParserOptions options) : options_(std::move(options)) {
  if (!options_.parses_tools) options_.format.tools = nullptr;
  if (options_.begins_in_reasoning && reasoning() != nullptr) {
    BeginReasoning();
  } else {
    SeekMarks();
  }
}

void AnswerParser::Impl::Emit(AnswerPiece::Kind kind, std::string_view text) {
  const bool of_call = kind != AnswerPiece::kContent && kind != AnswerPiece::kReasoning;
  const bool joins = kind != AnswerPiece::kCallBegin && kind != AnswerPiece::kCallEnd;
  if (joins && !pieces_.empty() && pieces_.back().kind == kind) {
    pieces_.back().text += text;
  } else {
    pieces_.push_back({kind, of_call ? calls_ - 1 : -1, std::string(text)});
  }
}

void AnswerParser::Impl::Seek(std::string_view mark, Mark kind) {
  if (!mark.empty()) marks_.push_back({mark, kind});
}

void AnswerParser::Impl::SeekMarks() {
  marks_.clear();
  if (in_reasoning_) {
    Seek(reasoning()->closing, kClosing);
    Seek(reasoning()->opening, kOpening);
  } else {
    if (reasoning() != nullptr) {
      if (reasoning()->repeats || !has_reasoned_) Seek(reasoning()->opening, kOpening);
      for (const std::string_view mark : reasoning()->dropped) Seek(mark, kDropped);
    }
    SeekToolMarks();
  }
  std::vector<std::string_view> marks;
  for (const auto& [mark, kind] : marks_) marks.push_back(mark);
  scanner_.Seek(std::move(marks));
}

void AnswerParser::Impl::SeekToolMarks() {
  const ToolFormat* const tools = options_.format.tools;
  if (tools == nullptr) return;
  if (!tools->section_begin.empty() && !in_section_)
    return Seek(tools->section_begin, kSectionBegin);
  Seek(tools->section_end, kSectionEnd);
  Seek(tools->call_begin, kCallMark);
  if (!tools->call_begin.empty() || has_text_) return;
  // Calls without marks are the whole of an answer: in a text, a brace is a brace.
  Seek(tools->bare_mark, kCallMark);
  Seek("{", kBrace);
  if (calls_ > 0) Seek(";", kDropped);
}

void AnswerParser::Impl::Add(char c) {
  if (reader_ != nullptr) return AddToCall(c);
  if (in_label_) return AddToLabel(c);
  std::string text;
  const auto found = scanner_.Add(c, &text);
  const auto mark = found ? marks_[*found] : std::pair<std::string_view, Mark>();
  AddText(text);
  if (!found) return;
  // Behind that text it may be none.
  const bool sought = std::find(marks_.begin(), marks_.end(), mark) != marks_.end();
  return sought ? AddMark(mark.second, mark.first) : AddText(mark.first);
}

void AnswerParser::Impl::AddText(std::string_view text) {
  for (const char c : text) {
    if (IsJsonSpace(c)) {
      if (!drops_space_) space_ += c;
      continue;
    }
    const auto kind = in_reasoning_ ? AnswerPiece::kReasoning : AnswerPiece::kContent;
    if (!space_.empty()) Emit(kind, std::exchange(space_, {}));
    Emit(kind, {&c, 1});
    drops_space_ = false;
    if (std::exchange(has_text_, true)) continue;
    SeekMarks();
  }
}

void AnswerParser::Impl::DropSpace() {
  space_.clear();
  drops_space_ = true;
  has_text_ = false;
  SeekMarks();
}

void AnswerParser::Impl::AddMark(Mark kind, std::string_view mark) {
  switch (kind) {
    case kOpening:
      // Some models repeat the mark that the prompt ends in; in the midst of reasoning it is text.
      if (in_reasoning_ && has_text_) return AddText(mark);
      return BeginReasoning();
    case kClosing:
      return EndReasoning();
    case kSectionEnd:
      in_section_ = false;
      return DropSpace();
    case kDropped:
      return DropSpace();
    default:
      return ReadCall(kind, mark);
  }
}

void AnswerParser::Impl::BeginReasoning() {
  in_reasoning_ = has_reasoned_ = true;
  in_label_ = !reasoning()->label.empty();
  DropSpace();
}

void AnswerParser::Impl::EndReasoning() {
  in_reasoning_ = false;
  DropSpace();
}

void AnswerParser::Impl::AddToLabel(char c) {
  label_ += c;
  in_label_ = label_ != reasoning()->label && reasoning()->label.starts_with(label_);
  if (in_label_) return;
  const std::string read = std::exchange(label_, {});
  if (read == reasoning()->label) return;
  for (const char text : read) Add(text);
}

void AnswerParser::Impl::ReadCall(Mark kind, std::string_view mark) {
  reader_ = options_.format.tools->read(/*begun=*/kind != kSectionBegin);
  call_begun_ = false;
  if (kind == kBrace) return AddToCall(mark[0]);
  held_ = mark;
}

void AnswerParser::Impl::AddToCall(char c) {
  if (!call_begun_) held_ += c;
  const CallReader::Read read = reader_->Add(c, *this);
  if (read == CallReader::Read::kDone) return EndCall();
  if (read == CallReader::Read::kBroken) BreakCall();
}

bool AnswerParser::Impl::BeginCall(std::string_view name) {
  const std::vector<std::string>& known = options_.tools;
  if (!known.empty() && std::find(known.begin(), known.end(), name) == known.end()) return false;
  ++calls_;
  call_begun_ = true;
  in_section_ = !options_.format.tools->section_begin.empty();
  held_.clear();
  space_.clear();
  Emit(AnswerPiece::kCallBegin, name);
  return true;
}

void AnswerParser::Impl::EndCall() {
  reader_.reset();
  Emit(AnswerPiece::kCallEnd, "");
  DropSpace();
}

void AnswerParser::Impl::BreakCall() {
  const std::string unread = reader_->unread();
  if (call_begun_) {
    EndCall();
  } else {
    reader_.reset();
    held_.resize(held_.size() - unread.size());
    AddText(std::exchange(held_, {}));
  }
  for (const char c : unread) Add(c);
}

void AnswerParser::Impl::Finish() {
  if (reader_ != nullptr && call_begun_) EndCall();
  if (reader_ != nullptr) AddText(std::exchange(held_, {}));
  reader_.reset();
  AddText(std::exchange(label_, {}));
  AddText(scanner_.Take());
  if (space_.empty()) return;
  Emit(in_reasoning_ ? AnswerPiece::kReasoning : AnswerPiece::kContent, std::exchange(space_, {}));
}

AnswerParser::AnswerParser(AnswerParserOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

std::vector<AnswerPiece> AnswerParser::Add(std::string_view text) {
  for (const char c : text) impl_->Add(c);
  return impl_->Take();
}

std::vector<AnswerPiece> AnswerParser::Finish() {
  impl_->Finish();
  return impl_->Take();
}

int AnswerParser::calls() const { return impl_->calls(); }

}  // namespace pagefuse
