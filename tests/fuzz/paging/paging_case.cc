// SPDX-License-Identifier: Apache-2.0
#include "paging_case.h"

#include <map>
#include <utility>

#include "../random.h"

#include "pagefuse/base/status_macros.h"
#include "pagefuse/base/str_cat.h"

namespace pagefuse::fuzz {
namespace {

// A family first, so that large ones do not hide small ones.
const Change& PickChange(Random& random) {
  static const auto& families = *[] {
    std::map<std::string, std::vector<const Change*>> by_name;
    for (const Change& change : AllChanges()) by_name[change.family].push_back(&change);
    auto* list = new std::vector<std::vector<const Change*>>;
    for (auto& [name, changes] : by_name) list->push_back(std::move(changes));
    return list;
  }();
  const auto& family = families[random.Below(families.size())];
  return *family[random.Below(family.size())];
}

}  // namespace

absl::StatusOr<ChangedDecoder> MakeChanges(const DecoderCase& decoder,
                                           const std::vector<ChosenChange>& changes) {
  ChangedDecoder changed{.decoder = Copy(decoder), .where = ""};
  for (const auto& [change, seed] : changes) {
    PF_ASSIGN_OR_RETURN(ChangedDecoder next, MakeChange(changed.decoder, *change, seed));
    changed.decoder = std::move(next.decoder);
    StrAppend(&changed.where, changed.where.empty() ? "" : "\n", next.where);
  }
  return changed;
}

absl::StatusOr<PagingCase> MakePagingCase(const Subjects& subjects, uint64_t seed, bool unchanged) {
  constexpr int kTries = 10;
  Random random(~seed);
  const size_t wanted = random.OneIn(3) ? 2 : 1;
  const Change* next = &PickChange(random);
  PagingCase made;
  made.subject = subjects.Pick(seed, unchanged ? "" : next->family);
  made.run = RandomRun(seed, made.subject.vocabulary);
  made.decoder = Copy(made.subject.decoder);
  if (unchanged) return made;
  for (int i = 0; i < kTries && made.changes.size() < wanted; ++i) {
    const ChosenChange chosen{next, static_cast<uint32_t>(random.Next())};
    next = &PickChange(random);
    auto changed = MakeChange(made.decoder, *chosen.change, chosen.seed);
    if (!changed.ok()) continue;
    made.decoder = std::move(changed->decoder);
    StrAppend(&made.where, made.where.empty() ? "" : "\n", changed->where);
    made.changes.push_back(chosen);
  }
  if (made.changes.empty()) return absl::NotFoundError("no change has a place");
  return made;
}

Verdict Judge(const PagingCase& made) { return JudgePaging(made.decoder, made.run); }

}  // namespace pagefuse::fuzz
