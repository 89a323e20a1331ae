// rope: rotary embedding written out becomes RotaryEmbedding-23 on half-width cos and sin.
//
//   angles [B, S, D/2] -- Concat(angles, angles) -- Cos, Sin -- Unsqueeze(1) -- cos, sin
//   x * cos + Concat(-x_hi, x_lo) * sin
//     =>  RotaryEmbedding (x, Cos(angles), Sin(angles))
//
// The op takes tables of each sequence and token. Angles that are the same for all of them (one
// batch, one position) are repeated first, as Mul repeats them.
//
//   Concat(lo * cos - hi * sin, hi * cos + lo * sin)      lo, hi: halves, or even and odd channels
//     =>  RotaryEmbedding (Concat(lo, hi), cos, sin)
//
//   RotaryEmbedding (x, cos of all positions, sin of all positions, positions)
//     =>  RotaryEmbedding (x, Gather (cos, positions), Gather (sin, positions))
#include <array>

#include "pagefuse/base/status_macros.h"
#include "pagefuse/ir/str_cat.h"
#include "pagefuse/passes/broadcast_proof.h"
#include "pagefuse/passes/recognise/recognise.h"
#include "pagefuse/passes/rule.h"

namespace pagefuse {
namespace {

constexpr std::string_view kTables = R"(
  joined = Concat <axis = -1> (angles, angles)
  cos_full = Cos (joined)
  sin_full = Sin (joined)
  head_axis = Constant <value_ints: ints = [1]> ()
  cos = Unsqueeze (cos_full, head_axis)
  sin = Unsqueeze (sin_full, head_axis)
)";

constexpr std::string_view kRotation = R"(
  straight = Mul (x, cos)
  negated = Neg (high)
  turned = Concat <axis = -1> (negated, low)
  crossed = Mul (turned, sin)
  y = Add (straight, crossed)
)";

// Both halves by Slice, each with or without its step of 1.
std::string Slices(bool low_step, bool high_step) {
  return StrCat(R"(
  zero = Constant <value_ints: ints = [0]> ()
  half = Constant <value_ints: ints = @half> ()
  end = Constant <value_ints: ints = @end> ()
  channel_axis = Constant <value_ints: ints = [3]> ()
  one = Constant <value_ints: ints = [1]> ()
  )",
                "low = Slice (x, zero, half, channel_axis", low_step ? ", one)  " : ")  ",
                "high = Slice (x, half, end, channel_axis", high_step ? ", one)  " : ")  ");
}

// Equal halves, as the op splits them; the angles must be [B, S, D/2] beside x [B, H, S, D].
Condition RotatesAllChannels() {
  return {
      "x is [B, H, S, D], angles [B, S, D/2]", [](const Match& match) -> absl::Status {
        const Value* x = match.value("x");
        const Value* angles = match.value("angles");
        if (!x->shape() || x->shape()->rank() != 4 || !angles->shape() ||
            angles->shape()->rank() != 3) {
          return absl::FailedPreconditionError("x is not [B, H, S, D] or angles not [B, S, D/2]");
        }
        auto channels = x->shape()->back(0).constant();
        auto width = angles->shape()->back(0).constant();
        if (!channels || !width || *channels != 2 * *width) {
          return absl::FailedPreconditionError("angles are not half as wide as x");
        }
        for (std::string_view half : {"low", "high"}) {
          const auto& shape = match.value(half)->shape();
          if (!shape || shape->back(0).constant() != *width) {
            return absl::FailedPreconditionError("the halves are not equal");
          }
        }
        return absl::OkStatus();
      }};
}

// The axes of x [B, H, S, D] that those of angles [B, S, D/2] are.
struct AnglesAxes {
  AxisOf angles, x;
};
std::array<AnglesAxes, 2> SharedAxes(const Match& match) {
  const Value* angles = match.value("angles");
  const Value* x = match.value("x");
  return {{{{angles, 0}, {x, 0}}, {{angles, 1}, {x, 2}}}};
}

Condition HasAnglesOfEachToken() {
  return {"angles are [B, S, D/2]", [](const Match& match) -> absl::Status {
            for (const auto& [angles, x] : SharedAxes(match)) {
              PF_RETURN_IF_ERROR(CheckSameLength(angles, x));
            }
            return absl::OkStatus();
          }};
}

Condition HasAnglesToRepeat() {
  return {"angles are [B or 1, S or 1, D/2]", [](const Match& match) -> absl::Status {
            for (const auto& [angles, x] : SharedAxes(match)) {
              PF_RETURN_IF_ERROR(CheckRepeats(angles, x));
            }
            return absl::OkStatus();
          }};
}

// The op rotates x [B, H, S, D] by tables [B, S, D/2]: the same for every head.
Condition HalvesAndTablesFit() {
  return {
      "halves are [B, H, S, D/2], tables [B, 1, S, D/2]", [](const Match& match) -> absl::Status {
        const auto& low = match.value("low")->shape();
        const auto& high = match.value("high")->shape();
        if (!low || low->rank() != 4 || !high || !ProvablyEqual(*low, *high)) {
          return absl::FailedPreconditionError("the halves are not equal or not [B, H, S, D/2]");
        }
        for (std::string_view name : {"cos", "sin"}) {
          const auto& table = match.value(name)->shape();
          const Shape wanted{(*low)[0], Dim(1), (*low)[2], (*low)[3]};
          if (table && ProvablyEqual(*table, wanted)) continue;
          return absl::FailedPreconditionError(StrCat("\"", name, "\" is not ", wanted.ToString()));
        }
        return absl::OkStatus();
      }};
}

// Each half computed by itself. Channels that were even and odd stay apart in the result, which is
// what the op does to halves.
Rule RotatedHalves() {
  return Rule("rope-halves", "rotary embedding of two halves")
      .MatchText(R"((low, high, cos, sin) => (y) {
        low_cos = Mul (low, cos)  high_sin = Mul (high, sin)  first = Sub (low_cos, high_sin)
        high_cos = Mul (high, cos)  low_sin = Mul (low, sin)  second = Add (high_cos, low_sin)
        y = Concat <axis = -1> (first, second)
      })")
      .Where(HalvesAndTablesFit())
      .ReplaceWith(R"((low, high, cos, sin) => (y) {
        head_axis = Constant <value_ints: ints = [1]> ()
        c = Squeeze (cos, head_axis)  s = Squeeze (sin, head_axis)
        x = Concat <axis = -1> (low, high)
        y = RotaryEmbedding <interleaved = 0> (x, c, s)
      })");
}

// Full-width tables times x and its turned halves.
Rule FullWidthTables(std::string_view name, std::string_view description) {
  auto text = [](std::string_view halves) {
    return StrCat("(x, angles) => (y) {", kTables, halves, kRotation, "}");
  };
  Rule rule(name, description);
  for (bool low_step : {true, false}) {
    for (bool high_step : {true, false}) {
      rule.MatchText(text(Slices(low_step, high_step)),
                     StrCat("slices", low_step ? ", step" : "", high_step ? ", step" : ""));
    }
  }
  rule.MatchText(text("low, high = Split <axis = -1, num_outputs = 2> (x)"), "split");
  return rule.Metadata({"angles"}).Where(RotatesAllChannels());
}

Rule Rope() {
  return FullWidthTables("rope", "half-split rotary embedding")
      .Where(HasAnglesOfEachToken())
      .ReplaceWith(R"((x, angles) => (y) {
        c = Cos (angles)  s = Sin (angles)
        y = RotaryEmbedding <interleaved = 0> (x, c, s)
      })");
}

Rule RopeOfSharedAngles() {
  return FullWidthTables("rope-shared", "half-split rotary embedding by angles that are repeated")
      .Where(HasAnglesToRepeat())
      .ReplaceWith(R"((x, angles) => (y) {
        batch = Shape <start = 0, end = 1> (x)  length = Shape <start = 2, end = 3> (x)
        all_channels = Constant <value_ints: ints = [1]> ()
        all = Concat <axis = 0> (batch, length, all_channels)
        cos_once = Cos (angles)  sin_once = Sin (angles)
        c = Expand (cos_once, all)  s = Expand (sin_once, all)
        y = RotaryEmbedding <interleaved = 0> (x, c, s)
      })");
}

// Tables of all positions, of which the op reads a row for each token: gathered once, whatever
// they rotate, and fused from there on like tables that the graph computes.
Rule RopeByPosition() {
  constexpr std::string_view kAttributes =
      "<interleaved: int = @interleaved, num_heads: int = @num_heads, rotary_embedding_dim: int = "
      "@rotary_embedding_dim>";
  return Rule("rope-by-position", "rotary embedding by tables of all positions")
      .MatchText(StrCat("(x, cos_table, sin_table, positions) => (y) { y = RotaryEmbedding ",
                        kAttributes, " (x, cos_table, sin_table, positions) }"))
      .ReplaceWith(StrCat("(x, cos_table, sin_table, positions) => (y) { "
                          "c = Gather <axis = 0> (cos_table, positions)  "
                          "s = Gather <axis = 0> (sin_table, positions)  y = RotaryEmbedding ",
                          kAttributes, " (x, c, s) }"));
}

}  // namespace

std::unique_ptr<Pass> RecogniseRope() {
  std::vector<Rule> rules = {Rope(), RopeOfSharedAngles(), RotatedHalves(), RopeByPosition()};
  return MakeRulePass("rope", "Recognises rotary position embedding.", std::move(rules));
}

}  // namespace pagefuse
