// SPDX-License-Identifier: Apache-2.0
#include "amx_emulation.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cstdint>
#include <cstring>

#include <immintrin.h>
#include <ucontext.h>

namespace pagefuse::testing {
namespace {

constexpr int kTiles = 8;
constexpr int kMaxRows = 16;
constexpr int kMaxRowBytes = 64;

// The operand of ldtilecfg.
struct Config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(Config) == 64);

struct alignas(64) Tile {
  uint8_t rows[kMaxRows][kMaxRowBytes];
};

struct Unit {
  Config config;
  Tile tiles[kTiles];
};
// Zero at first, so that a handler may use it without its being constructed.
thread_local Unit unit;

// A three-byte VEX instruction of map 0F38.
struct Instruction {
  int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
  uint8_t opcode;
  bool is_memory;
  int reg, rm, vvvv;
  const uint8_t* address;  // of the operand in memory, without the index
  int64_t stride;          // the index, scaled; 0 without one
  int size;
};

int64_t Register(const ucontext_t& context, int number) {
  static constexpr int kGregs[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                     REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                     REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kGregs[number]];
}

template <typename T>
int64_t Displacement(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The operand of ModRM at `at`; SIB and displacement follow it. Intel SDM, volume 2, chapter 2.
void DecodeMemory(const ucontext_t& context, const uint8_t* at, int extend_x, int extend_b,
                  Instruction& in) {
  const int mode = *at >> 6;
  const int rm = *at & 7;
  const uint8_t* next = at + 1;
  int64_t base = 0;
  bool wide = mode == 2;
  bool relative = false;
  if (rm == 4) {
    const uint8_t sib = *next++;
    const int index = (sib >> 3 & 7) | extend_x;
    if (index != 4) in.stride = Register(context, index) * (int64_t{1} << (sib >> 6));
    if ((sib & 7) == 5 && mode == 0) {
      wide = true;
    } else {
      base = Register(context, (sib & 7) | extend_b);
    }
  } else if (rm == 5 && mode == 0) {
    wide = relative = true;
  } else {
    base = Register(context, rm | extend_b);
  }
  if (wide) {
    base += Displacement<int32_t>(next);
    next += 4;
  } else if (mode == 1) {
    base += Displacement<int8_t>(next++);
  }
  in.size += static_cast<int>(next - at);
  if (relative) base += context.uc_mcontext.gregs[REG_RIP] + in.size;
  in.address = reinterpret_cast<const uint8_t*>(base);
}

// False if there is another instruction.
bool Decode(const ucontext_t& context, Instruction& in) {
  const auto* code = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  constexpr uint8_t kVex3 = 0xC4;
  constexpr int kMap0F38 = 2;
  if (code[0] != kVex3 || (code[1] & 0x1F) != kMap0F38) return false;
  // R, X, B and vvvv are stored inverted; W and L are 0.
  const int extend_r = (code[1] & 0x80) != 0 ? 0 : 8;
  const int extend_x = (code[1] & 0x40) != 0 ? 0 : 8;
  const int extend_b = (code[1] & 0x20) != 0 ? 0 : 8;
  if ((code[2] & 0x84) != 0) return false;
  in = {.prefix = code[2] & 3,
        .opcode = code[3],
        .is_memory = code[4] >> 6 != 3,
        .reg = (code[4] >> 3 & 7) | extend_r,
        .rm = (code[4] & 7) | extend_b,
        .vvvv = ~(code[2] >> 3) & 15,
        .address = nullptr,
        .stride = 0,
        .size = 4};
  if (in.is_memory) {
    DecodeMemory(context, code + 4, extend_x, extend_b, in);
  } else {
    ++in.size;
  }
  return true;
}

bool IsConfigured(int tile) {
  return unit.config.palette == 1 && tile < kTiles && unit.config.rows[tile] > 0;
}

bool LoadConfig(const Instruction& in) {
  Config config;
  std::memcpy(&config, in.address, sizeof(config));
  if (config.palette != 1 || config.start_row != 0) return false;
  for (int t = 0; t < kTiles; ++t) {
    if (config.rows[t] > kMaxRows || config.row_bytes[t] > kMaxRowBytes) return false;
    if ((config.rows[t] == 0) != (config.row_bytes[t] == 0)) return false;
  }
  unit = {};
  unit.config = config;
  return true;
}

void Load(const Instruction& in) {
  Tile& tile = unit.tiles[in.reg];
  tile = {};
  for (int r = 0; r < unit.config.rows[in.reg]; ++r) {
    std::memcpy(tile.rows[r], in.address + r * in.stride, unit.config.row_bytes[in.reg]);
  }
}

void Store(const Instruction& in) {
  for (int r = 0; r < unit.config.rows[in.reg]; ++r) {
    std::memcpy(const_cast<uint8_t*>(in.address) + r * in.stride, unit.tiles[in.reg].rows[r],
                unit.config.row_bytes[in.reg]);
  }
}

// C (reg) += A (rm) B (vvvv): the sums over even and over odd numbers are made in ascending order
// and added to each other, then to C. Subnormal numbers are zero, going in and coming out.
__attribute__((target("avx512f"))) void MultiplyBf16(const Instruction& in) {
  const int m = unit.config.rows[in.reg];
  const int pairs = unit.config.rows[in.vvvv];
  constexpr unsigned kZeroSubnormals = 0x8040;  // FTZ and DAZ
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kZeroSubnormals);
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
  for (int r = 0; r < m; ++r) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int k = 0; k < pairs; ++k) {
      int pair;
      std::memcpy(&pair, unit.tiles[in.rm].rows[r] + 4 * k, sizeof(pair));
      const __m512i a = _mm512_set1_epi32(pair);
      const __m512i b = _mm512_load_si512(unit.tiles[in.vvvv].rows[k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                            _mm512_castsi512_ps(_mm512_and_si512(b, high)), odd);
    }
    // Columns beyond the tile's are zero in B, and stay so.
    float* c = reinterpret_cast<float*>(unit.tiles[in.reg].rows[r]);
    _mm512_store_ps(c, _mm512_add_ps(_mm512_load_ps(c), _mm512_add_ps(even, odd)));
  }
  _mm_setcsr(before);
}

// True if the shapes of C (reg) += A (rm) B (vvvv) fit each other.
bool ShapesFit(const Instruction& in) {
  const Config& config = unit.config;
  const bool distinct = in.reg != in.rm && in.reg != in.vvvv && in.rm != in.vvvv;
  return distinct && IsConfigured(in.rm) && IsConfigured(in.vvvv) &&
         config.rows[in.rm] == config.rows[in.reg] &&
         config.rows[in.vvvv] == config.row_bytes[in.rm] / 4 &&
         config.row_bytes[in.reg] == config.row_bytes[in.vvvv];
}

bool Execute(const Instruction& in) {
  enum Prefix { kNone, k66, kF3, kF2 };
  constexpr uint8_t kConfig = 0x49, kMove = 0x4B, kDot = 0x5C;
  if (in.opcode == kConfig && in.prefix == kNone) {
    if (in.is_memory) return LoadConfig(in);
    unit = {};  // tilerelease
    return true;
  }
  if (!IsConfigured(in.reg)) return false;
  if (in.opcode == kConfig && in.prefix == kF2 && !in.is_memory) {
    unit.tiles[in.reg] = {};
    return true;
  }
  if (in.opcode == kMove && in.is_memory && in.prefix != kNone) {
    in.prefix == kF3 ? Store(in) : Load(in);
    return true;
  }
  if (in.is_memory || !ShapesFit(in)) return false;
  if (in.opcode == kDot && in.prefix == kF3) {
    MultiplyBf16(in);
    return true;
  }
  return false;
}

// To where Execute failed the default action brings the process: the instruction runs again.
void Handle(int, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  Instruction in;
  if (Decode(context, in) && Execute(in)) {
    context.uc_mcontext.gregs[REG_RIP] += in.size;
  } else {
    signal(SIGILL, SIG_DFL);
  }
}

}  // namespace

AmxEmulation::AmxEmulation() {
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGILL, &action, &before_);
}

AmxEmulation::~AmxEmulation() { sigaction(SIGILL, &before_, nullptr); }

}  // namespace pagefuse::testing

#else

namespace pagefuse::testing {

AmxEmulation::AmxEmulation() {}
AmxEmulation::~AmxEmulation() {}

}  // namespace pagefuse::testing

#endif
