// SPDX-License-Identifier: Apache-2.0
// Chat templates against what Jinja makes of them, and their limits.
#include "pagefuse/text/template/chat_template.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "must.h"
#include "nlohmann/json.hpp"
#include "paths.h"
#include "tests/text/render_now.h"

#include "pagefuse/base/str_cat.h"
#include "pagefuse/ir/onnx/onnx_io.h"

namespace pagefuse {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

ordered_json ReadJson(const std::string& path) { return ordered_json::parse(*ReadFile(path)); }

absl::StatusOr<RenderedChat> Render(std::string_view source, const ordered_json& given) {
  const auto chat_template = ChatTemplate::Parse(source);
  if (!chat_template.ok()) return chat_template.status();
  return (*chat_template)->Render(OwnVariables(), given, RenderTime());
}

std::string TextOf(std::string_view source, const ordered_json& given = ordered_json::object()) {
  const auto rendered = Render(source, given);
  return rendered.ok() ? rendered->text : StrCat("error: ", StdView(rendered.status().message()));
}

// The parts of the text that users wrote.
std::vector<std::string> UserParts(std::string_view source, const ordered_json& given) {
  const auto rendered = Must(Render(source, given));
  std::vector<std::string> parts;
  for (const TextRange& range : rendered.user) {
    parts.push_back(rendered.text.substr(range.first, range.end - range.first));
  }
  return parts;
}

TEST(ChatTemplate, RendersAsJinjaDoes) {
  const ordered_json conversations = ReadJson(SourcePath("tests/data/text/conversations.json"));
  const ordered_json expected = ReadJson(TestDataPath("text/rendered/rendered.json"));
  ASSERT_EQ(expected.size(), 14u);
  ASSERT_EQ(conversations.size(), 30u);
  for (const auto& [name, texts] : expected.items()) {
    const auto source = Must(ReadFile(SourcePath(StrCat("tests/data/text/templates/", name))));
    for (size_t i = 0; i < conversations.size(); ++i) {
      const auto rendered = Render(source, conversations[i]);
      if (texts[i].is_null()) {
        EXPECT_FALSE(rendered.ok()) << name << " " << i << ": Jinja has no text";
      } else {
        ASSERT_TRUE(rendered.ok()) << name << " " << i << ": " << rendered.status();
        EXPECT_EQ(rendered->text, texts[i].get<std::string>()) << name << " " << i;
      }
    }
  }
}

TEST(ChatTemplate, RemembersWhatUsersWrote) {
  const ordered_json given = {{"messages", {{{"role", "user"}, {"content", " <bos> hi "}}}}};
  EXPECT_EQ(
      UserParts("{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{{ "
                "'<end>' }}{% endfor %}",
                given),
      (std::vector<std::string>{"user", "<bos> hi"}));
  EXPECT_EQ(UserParts("{{ 'a' + messages[0].content[1:6] + 'b' }}", given),
            std::vector<std::string>{"<bos>"});
  EXPECT_EQ(UserParts("{{ messages[0].content.split('>')[0] ~ '>' }}", given),
            std::vector<std::string>{" <bos"});
  EXPECT_EQ(UserParts("{{ 'x, y'.replace('x', messages[0].role).upper() }}", given),
            std::vector<std::string>{"USER, Y"});
  EXPECT_EQ(UserParts("{{ messages | tojson }}", given).size(), 1u);
  EXPECT_EQ(UserParts("{% macro m(x) %}({{ x }}){% endmacro %}{{ m(messages[0].role) }}", given),
            std::vector<std::string>{"user"});
  EXPECT_TRUE(UserParts("{{ 'only' | upper }}{{ messages | length }}", given).empty());
}

TEST(ChatTemplate, SaysWhatTheTemplateRaised) {
  EXPECT_EQ(TextOf("{{ raise_exception('roles must ' ~ 'alternate') }}"),
            "error: roles must alternate");
}

TEST(ChatTemplate, NamesTheLine) {
  EXPECT_EQ(TextOf("a\nb {{ x.y }}"), "error: line 2: \"x\" is undefined");
  EXPECT_EQ(TextOf("a\n{% if %}"), "error: line 2: expected an expression, got the end of the tag");
  EXPECT_EQ(TextOf("{% include 'x' %}"),
            "error: line 1: expected if, for, set, macro, call, filter, with, break, continue or "
            "generation, got \"include\"");
  EXPECT_EQ(TextOf("{{ 1 | nope }}"), "error: line 1: the filter \"nope\" is not known");
  EXPECT_EQ(TextOf("{{ 1 is nope }}"), "error: line 1: the test \"nope\" is not known");
  EXPECT_EQ(TextOf("{{ 'a' + 1 }}"), "error: line 1: \"+\": not for a string and an integer");
  EXPECT_EQ(TextOf("{% for x in y"), "error: line 1: expected \"%}\", got the end");
  EXPECT_EQ(TextOf("{% for x in y %}"), "error: line 1: expected \"endfor\", got the end");
}

TEST(ChatTemplate, SaysWhatIsWrongWithACallOrAFormat) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
       "macro \"m\": no argument is called \"caller\""},
      {"{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "no caller is defined"},
      {"{% call 1 %}y{% endcall %}", "call: expected a call"},
      {"{{ dict(**[1]) }}", "**: expected a dict, got a list"},
      {"{{ '%s %s' % ('a',) }}", "\"%\": expected more values than 1"},
      {"{{ '%s' % (1, 2) }}", "\"%\": expected 1 values, got 2"},
      {"{{ '%d' % 'a' }}", "a field of type \"d\": expected a number, got a string"},
      {"{{ '%x' % 1.5 }}", "a field of type \"x\": expected an integer, got a float"},
      {"{{ '%y' % 1 }}", "\"%\": the type \"y\" is not known"},
      {"{{ '%(a)s' % {'b': 1} }}", "\"%\": the dict has no \"a\""},
      {"{{ '{} {}'.format(1) }}", "format: expected more values than 1"},
      {"{{ '{a}'.format(1) }}", "format: no argument is called \"a\""},
      {"{{ '%100000000d' % 1 }}", "more than 8388608 bytes of text"},
      {"{{ '%.9999f' % 1 }}", "expected a precision of 1000 at most, got 9999"},
      {"{{ [1] | batch(0) }}", "linecount: expected 1 at least"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested too deeply"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(TextOf(source), HasSubstr(expected)) << source;
  }
}

TEST(ChatTemplate, ToolsAndDocumentsAreNoneWhereNobodyGivesThem) {
  const char* const source = "{{ tools is defined }} {{ tools is none }} {{ documents | tojson }}";
  EXPECT_EQ(TextOf(source), "True True null");
  EXPECT_EQ(TextOf(source, {{"tools", ordered_json::array()}, {"documents", {1}}}),
            "True False [1]");
}

TEST(ChatTemplate, FieldsOfAFormatRememberWhoWroteThem) {
  const ordered_json given = {{"messages", {{{"role", "user"}, {"content", "<bos>"}}}}};
  EXPECT_EQ(UserParts("{{ '<s>%s|%-7s|' % ('a', messages[0].content) }}", given),
            std::vector<std::string>{"<bos>"});
  EXPECT_EQ(UserParts("{{ '<s>{:>8.3}'.format(messages[0].content) }}", given),
            std::vector<std::string>{"<bo"});
  EXPECT_EQ(
      UserParts("{% for g in messages | groupby('role') %}{{ g.grouper }}{% endfor %}", given),
      std::vector<std::string>{"user"});
}

TEST(ChatTemplate, ReachesNothingButItsData) {
  for (const char* attack : {"{{ ''.__class__ }}", "{{ {}.__init__ }}", "{{ [].append }}",
                             "{{ namespace.__call__ }}", "{{ (1).real }}"}) {
    EXPECT_EQ(TextOf(attack), "") << attack;  // undefined prints nothing
  }
  EXPECT_THAT(TextOf("{{ ''.__class__.__mro__ }}"), HasSubstr("has no attribute \"__class__\""));
  EXPECT_THAT(TextOf("{{ [].append(1) }}"), HasSubstr("has no attribute \"append\""));
}

TEST(ChatTemplate, EndsWithinItsLimits) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% for a in range(2000) %}{% for b in range(2000) %}{% endfor %}{% endfor %}",
       "more than 1000000 operations"},
      {"{{ range(100000000) }}", "more than 1000000 operations"},
      {"{{ 'x' * 100000000 }}", "more than 8388608 bytes of text"},
      {"{% set ns = namespace(s='xy') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% "
       "endfor %}",
       "more than 8388608 bytes of text"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(200) %}{% set ns.l = [ns.l] %}{% endfor %}",
       "values nested more than 100 deep"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply"},
      {"{{ 2 ** 64 }}", "an integer of more than 64 bits"},
      {"{{ 'x' | replace('', 'y' * 4200000) }}", "more than 8388608 bytes of text"},
      {"{{ range(2) | map('string') | join('z' * 8000000) ~ 'z' * 8000000 }}",
       "more than 8388608 bytes of text"}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(TextOf(source).substr(0, 200), HasSubstr(expected)) << source;
  }
  EXPECT_THAT(TextOf("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}"),
              HasSubstr("nested too deeply"));
  std::string chain = "1";
  for (int i = 0; i < 1000; ++i) chain += "+1";
  EXPECT_THAT(TextOf("{{ " + chain + " }}"), HasSubstr("an expression of too many parts"));
  std::string nested;
  for (int i = 0; i < 500; ++i) nested += "{% if 1 %}";
  EXPECT_THAT(TextOf(nested), HasSubstr("nested too deeply"));
}

// A list of `depth` levels, each of which holds the one below it twice: 2^depth items to walk, and
// as many to print, in a few hundred bytes.
std::string Shared(const std::string& name, int depth) {
  return StrCat("{% set ", name, " = namespace(v=['x']) %}{% for i in range(", depth, ") %}{% set ",
                name, ".v = [", name, ".v, ", name, ".v] %}{% endfor %}");
}

TEST(ChatTemplate, SharedListsAreWalkedWithinTheLimits) {
  const std::string lists = Shared("a", 40) + Shared("b", 40);
  const std::string operations = "more than 1000000 operations";
  const std::string bytes = "more than 8388608 bytes of text";
  const std::pair<const char*, const std::string&> cases[] = {
      {"{% if a.v == b.v %}{% endif %}", operations},
      {"{{ a.v != b.v }}", operations},
      {"{{ a.v < b.v }}", operations},
      {"{{ a.v is eq(b.v) }}", operations},
      {"{{ a.v is ge(b.v) }}", operations},
      {"{{ a.v in [b.v] }}", operations},
      {"{{ [a.v, b.v] | sort }}", operations},
      {"{{ [a.v, b.v] | unique | list | length }}", operations},
      {"{{ {'k': a.v} == {'k': b.v} }}", operations},
      {"{{ a.v | tojson }}", bytes},
      {"{{ a.v | string }}", bytes},
      {"{{ a.v | trim }}", bytes},
      {"{{ a.v ~ '' }}", bytes},
      {"{{ a.v }}", bytes},
      {"{{ [a.v] | join }}", bytes},
      {"{{ {'k': a.v} | tojson(indent=2) }}", bytes}};
  for (const auto& [source, expected] : cases) {
    EXPECT_THAT(TextOf(lists + source).substr(0, 200), HasSubstr(expected)) << source;
  }
  EXPECT_EQ(TextOf(Shared("a", 8) + Shared("b", 8) + "{{ a.v == b.v }}"), "True");
}

TEST(ChatTemplate, ReadingLongTextsCosts) {
  const std::string text = "{% set t = 'a' * 4000000 %}{% for i in range(80000) %}";
  for (const char* read : {"{{ t.count('b') }}", "{{ t.find('b') }}", "{{ t is upper }}",
                           "{{ 'b' in t }}", "{{ t.startswith('b') }}", "{{ t | length }}"}) {
    EXPECT_THAT(TextOf(text + read + "{% endfor %}").substr(0, 200),
                HasSubstr("more than 1000000 operations"))
        << read;
  }
  // Both lengths multiplied would be 10^13 steps.
  const std::string both = "{% set t = 'a' * 6000000 %}{% set w = 'a' * 3000000 ~ 'b' %}";
  EXPECT_EQ(TextOf(both + "{{ t.count(w) }} {{ w in t }} {{ t.split(w) | length }}"), "0 False 1");
  EXPECT_EQ(TextOf(both + "{{ t.rsplit(w) | length }} {{ t.find(w) }}"), "1 -1");
}

TEST(ChatTemplate, SplitsFromTheRight) {
  EXPECT_EQ(TextOf("{{ 'a, b, c'.rsplit(', ') }}{{ 'a, b, c'.rsplit(', ', 1) }}"),
            "['a', 'b', 'c']['a, b', 'c']");
  EXPECT_EQ(TextOf("{{ 'aaa'.rsplit('aa') }}{{ ',a,'.rsplit(',') }}"), "['a', '']['', 'a', '']");
}

TEST(ChatTemplate, RefusesInputNestedTooDeeply) {
  ordered_json nested = 1;
  for (int i = 0; i < 100'000; ++i) nested = ordered_json::array({std::move(nested)});
  ordered_json given = ordered_json::object();
  given["x"] = std::move(nested);
  EXPECT_EQ(TextOf("", given), "error: values nested more than 100 deep");
}

TEST(ChatTemplate, NamespacesMayHoldThemselves) {
  EXPECT_EQ(TextOf("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self == ns }}"),
            "True");
  EXPECT_THAT(TextOf("{{ namespace() }}"), HasSubstr("a namespace cannot be printed"));
}

TEST(ChatTemplate, MacrosOutliveTheLoopThatDefinesThem) {
  EXPECT_EQ(
      TextOf("{% set ns = namespace() %}{% for i in range(2) %}{% for j in range(1) %}{% macro m() "
             "%}{{ i }}{% endmacro %}{% set ns.m = m %}{% endfor %}{% endfor %}{{ ns.m() }}"),
      "1");
}

}  // namespace
}  // namespace pagefuse
