// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/runtime/build_id.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include <elf.h>
#include <link.h>

#include "absl/strings/escaping.h"

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

// The loaded file in which an address lies.
struct Search {
  uintptr_t address;
  std::string id;
};

constexpr size_t kNoteAlignment = 4;
size_t Aligned(size_t size) {
  return (size + kNoteAlignment - 1) / kNoteAlignment * kNoteAlignment;
}

// The description of the GNU build-id note among the notes, empty if there is none.
std::string_view BuildIdNote(std::string_view notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes.data(), sizeof header);
    notes.remove_prefix(sizeof header);
    const size_t name_size = Aligned(header.n_namesz), size = Aligned(header.n_descsz);
    if (name_size + size > notes.size()) return {};
    const bool gnu = notes.substr(0, header.n_namesz) == std::string_view("GNU", sizeof "GNU");
    if (gnu && header.n_type == NT_GNU_BUILD_ID) return notes.substr(name_size, header.n_descsz);
    notes.remove_prefix(name_size + size);
  }
  return {};
}

int Look(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  bool here = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + header.p_vaddr;
    here = here || (header.p_type == PT_LOAD && search.address >= start &&
                    search.address - start < header.p_memsz);
  }
  if (!here) return 0;
  for (int i = 0; i < info->dlpi_phnum && search.id.empty(); ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    search.id = absl::BytesToHexString(AbslView(BuildIdNote({notes, header.p_memsz})));
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  Search search{.address = reinterpret_cast<uintptr_t>(&Look), .id = {}};
  dl_iterate_phdr(Look, &search);
  return search.id;
}

}  // namespace pagefuse
