// SPDX-License-Identifier: Apache-2.0
// Expressions become trees, trees become automata with empty edges (Thompson's construction), those
// become deterministic.
#include "pagefuse/text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"
#include "pagefuse/text/grammar/regex_class.h"
#include "pagefuse/text/utf8.h"

namespace pagefuse {
namespace {

constexpr int kMaxRegexDepth = 100;
constexpr uint32_t kMaxRegexCount = 100'000;

struct RegexNode {
  enum Kind { kCharacters, kBegin, kEnd, kSequence, kAlternatives, kRepeat };
  Kind kind = kSequence;
  CharacterSet characters;       // of kCharacters
  std::vector<RegexNode> parts;  // of the last three
  uint32_t least = 0;            // of kRepeat
  uint32_t most = 0;
};

class RegexParser {
 public:
  explicit RegexParser(std::string_view regex) : cursor_{regex} {}

  absl::StatusOr<RegexNode> Run() {
    PF_ASSIGN_OR_RETURN(RegexNode node, Alternatives(0));
    if (!cursor_.AtEnd()) return cursor_.Expected("the end of the pattern");
    return node;
  }

 private:
  char Peek() const { return cursor_.AtEnd() ? '\0' : cursor_.text[cursor_.at]; }

  absl::StatusOr<RegexNode> Alternatives(int depth) {
    if (depth > kMaxRegexDepth) {
      return cursor_.Expected(StrCat("groups nested up to ", kMaxRegexDepth, " deep"));
    }
    RegexNode node;
    node.kind = RegexNode::kAlternatives;
    do {
      PF_ASSIGN_OR_RETURN(RegexNode part, Sequence(depth));
      node.parts.push_back(std::move(part));
    } while (cursor_.Take("|"));
    if (node.parts.size() > 1) return node;
    RegexNode only = std::move(node.parts[0]);
    return only;
  }

  absl::StatusOr<RegexNode> Sequence(int depth) {
    RegexNode node;
    while (!cursor_.AtEnd() && Peek() != '|' && Peek() != ')') {
      PF_ASSIGN_OR_RETURN(RegexNode part, Atom(depth));
      PF_RETURN_IF_ERROR(Quantify(part));
      node.parts.push_back(std::move(part));
    }
    return node;
  }

  absl::StatusOr<RegexNode> Atom(int depth) {
    if (cursor_.Take("(")) return Group(depth);
    RegexNode node;
    node.kind = RegexNode::kCharacters;
    if (cursor_.Take("^")) {
      node.kind = RegexNode::kBegin;
    } else if (cursor_.Take("$")) {
      node.kind = RegexNode::kEnd;
    } else if (cursor_.Take(".")) {
      node.characters = RegexAnyButLineEnds();
    } else if (cursor_.Take("[")) {
      PF_ASSIGN_OR_RETURN(node.characters, ReadRegexClass(cursor_));
    } else if (cursor_.Take("\\")) {
      PF_ASSIGN_OR_RETURN(node.characters, ReadRegexEscape(cursor_, /*in_class=*/false));
    } else if (Peek() == '*' || Peek() == '+' || Peek() == '?') {
      return cursor_.Expected("something to repeat");
    } else if (uint32_t least, most; TakeCount(least, most)) {
      return cursor_.Expected("something to repeat before a count");
    } else {
      const char32_t character = cursor_.Next();
      node.characters.Add(character, character);
    }
    return node;
  }

  // Behind "(". What a group is called does not matter: there is nothing that refers to it.
  absl::StatusOr<RegexNode> Group(int depth) {
    if (Peek() == '?' && !cursor_.Take("?:")) {
      const bool named = cursor_.Take("?<") && Peek() != '=' && Peek() != '!';
      const size_t end = named ? cursor_.text.find('>', cursor_.at) : std::string_view::npos;
      if (end == std::string_view::npos) {
        return cursor_.Expected("a group, not an assertion, which is not supported");
      }
      cursor_.at = end + 1;
    }
    PF_ASSIGN_OR_RETURN(RegexNode node, Alternatives(depth + 1));
    if (!cursor_.Take(")")) return cursor_.Expected("\")\"");
    return node;
  }

  absl::Status Quantify(RegexNode& atom) {
    uint32_t least = 0, most = kUnbounded;
    if (cursor_.Take("+")) {
      least = 1;
    } else if (cursor_.Take("?")) {
      most = 1;
    } else if (!cursor_.Take("*")) {
      if (!TakeCount(least, most)) return absl::OkStatus();
      if (least > most) return cursor_.Expected("a count whose first number is the smaller one");
    }
    cursor_.Take("?");  // the fewest or the most: the same texts match
    if (atom.kind == RegexNode::kBegin || atom.kind == RegexNode::kEnd ||
        (!cursor_.AtEnd() && (Peek() == '*' || Peek() == '+' || Peek() == '?'))) {
      return cursor_.Expected("something that can be repeated before this");
    }
    RegexNode node;
    node.kind = RegexNode::kRepeat;
    node.least = least;
    node.most = most;
    node.parts.push_back(std::move(atom));
    atom = std::move(node);
    return absl::OkStatus();
  }

  // "{n}", "{n,}" or "{n,m}". Other braces are characters.
  bool TakeCount(uint32_t& least, uint32_t& most) {
    const size_t begin = cursor_.at;
    if (cursor_.Take("{")) {
      if (const auto first = TakeNumber()) {
        least = most = *first;
        if (cursor_.Take(",")) most = TakeNumber().value_or(kUnbounded);
        if (cursor_.Take("}")) return true;
      }
    }
    cursor_.at = begin;
    return false;
  }
  std::optional<uint32_t> TakeNumber() {
    if (Peek() < '0' || Peek() > '9') return std::nullopt;
    uint32_t number = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++cursor_.at) {
      // Larger ones are past the limit of states all the same.
      number = std::min(number * 10 + static_cast<uint32_t>(Peek() - '0'), kMaxRegexCount);
    }
    return number;
  }

  RegexCursor cursor_;
};

class RegexNfa {
 public:
  explicit RegexNfa(const GrammarBudget& budget) : budget_(budget) {}

  absl::StatusOr<CharNfa> Run(const RegexNode& node, RegexMatch match) {
    PF_ASSIGN_OR_RETURN(nfa_.begin, NewState());
    PF_ASSIGN_OR_RETURN(nfa_.end, Build(node, nfa_.begin));
    if (match == RegexMatch::kAnywhere) {
      nfa_.states[nfa_.end].edges.push_back({{0, kMaxCodePoint}, nfa_.end});
      PF_ASSIGN_OR_RETURN(const uint32_t before, NewState());
      nfa_.states[before].edges.push_back({{0, kMaxCodePoint}, before});
      Skip(before, nfa_.begin);
      nfa_.begin = before;
    }
    return std::move(nfa_);
  }

 private:
  absl::StatusOr<uint32_t> NewState() {
    // The time is looked at now and then only: that takes time, too.
    if (nfa_.states.size() >= kMaxGrammarStates || nfa_.states.size() % 64 == 0) {
      PF_RETURN_IF_ERROR(budget_.Check(nfa_.states.size() + 1));
    }
    nfa_.states.emplace_back();
    return static_cast<uint32_t>(nfa_.states.size() - 1);
  }
  void Skip(uint32_t from, uint32_t to, CharNfa::When when = CharNfa::kAlways) {
    nfa_.states[from].empty.push_back({to, when});
  }

  // Adds states that read the node from `from` on; the one behind it. No edge leads out of that one
  // or, but for what is read first, into `from`.
  absl::StatusOr<uint32_t> Build(const RegexNode& node, uint32_t from) {
    switch (node.kind) {
      case RegexNode::kCharacters:
      case RegexNode::kBegin:
      case RegexNode::kEnd:
        return BuildLeaf(node, from);
      case RegexNode::kSequence:
        for (const RegexNode& part : node.parts) {
          PF_ASSIGN_OR_RETURN(from, Build(part, from));
        }
        return from;
      case RegexNode::kAlternatives:
        return BuildAlternatives(node, from);
      case RegexNode::kRepeat:
        return BuildRepeat(node, from);
    }
    return from;
  }

  absl::StatusOr<uint32_t> BuildLeaf(const RegexNode& node, uint32_t from) {
    PF_ASSIGN_OR_RETURN(const uint32_t to, NewState());
    if (node.kind == RegexNode::kCharacters) {
      for (const CharacterRange& range : node.characters.ranges()) {
        nfa_.states[from].edges.push_back({range, to});
      }
    } else {
      Skip(from, to, node.kind == RegexNode::kBegin ? CharNfa::kAtBegin : CharNfa::kAtEnd);
    }
    return to;
  }

  absl::StatusOr<uint32_t> BuildAlternatives(const RegexNode& node, uint32_t from) {
    PF_ASSIGN_OR_RETURN(const uint32_t to, NewState());
    for (const RegexNode& part : node.parts) {
      PF_ASSIGN_OR_RETURN(const uint32_t begin, NewState());
      Skip(from, begin);
      PF_ASSIGN_OR_RETURN(const uint32_t end, Build(part, begin));
      Skip(end, to);
    }
    return to;
  }

  absl::StatusOr<uint32_t> BuildRepeat(const RegexNode& node, uint32_t from) {
    for (uint32_t i = 0; i < node.least; ++i) {
      PF_ASSIGN_OR_RETURN(const uint32_t begin, NewState());
      Skip(from, begin);
      PF_ASSIGN_OR_RETURN(from, Build(node.parts[0], begin));
    }
    PF_ASSIGN_OR_RETURN(const uint32_t to, NewState());
    Skip(from, to);
    if (node.most == kUnbounded) {
      PF_ASSIGN_OR_RETURN(const uint32_t begin, NewState());
      Skip(to, begin);
      PF_ASSIGN_OR_RETURN(const uint32_t end, Build(node.parts[0], begin));
      Skip(end, to);
      PF_ASSIGN_OR_RETURN(const uint32_t behind, NewState());
      Skip(to, behind);
      return behind;
    }
    for (uint32_t i = node.least; i < node.most; ++i) {
      PF_ASSIGN_OR_RETURN(const uint32_t begin, NewState());
      Skip(from, begin);
      PF_ASSIGN_OR_RETURN(from, Build(node.parts[0], begin));
      Skip(from, to);
    }
    return to;
  }

  const GrammarBudget& budget_;
  CharNfa nfa_;
};

}  // namespace

absl::StatusOr<CharDfa> ParseRegex(std::string_view regex, RegexMatch match,
                                   const GrammarBudget& budget) {
  if (const auto broken = FirstBrokenByte(regex)) {
    return absl::InvalidArgumentError(
        StrCat("at byte ", *broken, " of the pattern: expected UTF-8"));
  }
  PF_ASSIGN_OR_RETURN(const RegexNode node, RegexParser(regex).Run());
  PF_ASSIGN_OR_RETURN(const CharNfa nfa, RegexNfa(budget).Run(node, match));
  return Determinise(nfa, budget);
}

}  // namespace pagefuse
