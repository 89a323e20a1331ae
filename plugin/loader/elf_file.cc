// SPDX-License-Identifier: Apache-2.0
#include "pagefuse/plugin/loader/elf_file.h"

#include <cstring>
#include <fstream>

#include <elf.h>

#include "pagefuse/base/str_cat.h"

namespace pagefuse {
namespace {

static_assert(sizeof(void*) == 8, "objects of 64 bits");

template <typename T>
std::optional<T> At(std::string_view bytes, uint64_t offset) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// The name of a machine where people know it, and its number.
std::string MachineName(uint16_t machine) {
  const char* name = machine == EM_X86_64    ? "x86-64"
                     : machine == EM_AARCH64 ? "AArch64"
                     : machine == EM_RISCV   ? "RISC-V"
                     : machine == EM_PPC64   ? "PowerPC"
                     : machine == EM_386     ? "x86"
                     : machine == EM_ARM     ? "Arm"
                                             : "another machine";
  return StrCat(name, " (", machine, ")");
}

// The header of the program that runs, whose machine objects have to be for.
std::optional<Elf64_Ehdr> OwnHeader() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  std::string bytes(sizeof(Elf64_Ehdr), '\0');
  if (!program.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return std::nullopt;
  return At<Elf64_Ehdr>(bytes, 0);
}

}  // namespace

bool IsElf(std::string_view bytes) { return bytes.starts_with(std::string_view(ELFMAG, SELFMAG)); }

absl::StatusOr<ElfFile> ElfFile::Open(std::string_view bytes) {
  const auto header = At<Elf64_Ehdr>(bytes, 0);
  if (!header) return absl::InvalidArgumentError("is cut short");
  const auto own = OwnHeader();
  if (own && header->e_machine != own->e_machine) {
    return absl::InvalidArgumentError(StrCat("is for ", MachineName(header->e_machine),
                                             ", this pagefuse is for ",
                                             MachineName(own->e_machine)));
  }
  if (header->e_ident[EI_CLASS] != ELFCLASS64) {
    return absl::InvalidArgumentError("is no object of 64 bits");
  }
  if (header->e_type != ET_DYN) return absl::InvalidArgumentError("is no shared object");
  return ElfFile(bytes);
}

std::optional<uint64_t> ElfFile::Find(std::string_view symbol) const {
  const auto header = At<Elf64_Ehdr>(bytes_, 0);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    const auto section = At<Elf64_Shdr>(bytes_, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section || section->sh_type != SHT_DYNSYM) continue;
    const auto names =
        At<Elf64_Shdr>(bytes_, header->e_shoff + section->sh_link * sizeof(Elf64_Shdr));
    if (!names || names->sh_offset > bytes_.size()) return std::nullopt;
    const std::string_view texts = bytes_.substr(names->sh_offset, names->sh_size);
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section->sh_size; at += sizeof(Elf64_Sym)) {
      const auto entry = At<Elf64_Sym>(bytes_, section->sh_offset + at);
      if (!entry) return std::nullopt;
      if (entry->st_shndx == SHN_UNDEF || entry->st_name >= texts.size()) continue;
      const std::string_view name = texts.substr(entry->st_name);
      if (name.substr(0, name.find('\0')) == symbol) return entry->st_value;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> ElfFile::Data(std::string_view symbol, size_t size) const {
  const std::optional<uint64_t> address = Find(symbol);
  if (!address) return std::nullopt;
  const auto header = At<Elf64_Ehdr>(bytes_, 0);
  for (unsigned i = 0; i < header->e_phnum; ++i) {
    const auto segment = At<Elf64_Phdr>(bytes_, header->e_phoff + i * sizeof(Elf64_Phdr));
    if (!segment || segment->p_type != PT_LOAD || *address < segment->p_vaddr) continue;
    const uint64_t within = *address - segment->p_vaddr;
    if (within > segment->p_filesz || segment->p_filesz - within < size) continue;
    const uint64_t offset = segment->p_offset + within;
    if (offset > bytes_.size() || bytes_.size() - offset < size) return std::nullopt;
    return bytes_.substr(offset, size);
  }
  return std::nullopt;
}

}  // namespace pagefuse
