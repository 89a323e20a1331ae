// SPDX-License-Identifier: Apache-2.0
/* pagefuse/plugin.h: what a shared object says that adds ops, rules and kernels to pagefuse.
 *
 * A plug-in is C (or anything that speaks C): no symbol of pagefuse is linked, no C++ crosses. It
 * exports one piece of data,
 *
 *   static pf_status acme_register(const pf_host* host, pf_registrar* registrar) {
 *     registrar->add_text(registrar, kOpsAndRules);
 *     return registrar->add_kernel(registrar, "acme.Scale", &kScale);
 *   }
 *   const pf_plugin pagefuse_plugin = PF_PLUGIN("acme", "0.1", acme_register);
 *
 * which is read from the file before any code of it runs. What an op means, its types and its shapes
 * are text (docs/plugins.md); the shared object adds kernels that compute it fast, and conditions that
 * rules call. Nothing is registered until all of it was checked together: on any error, and when
 * `acme_register` returns another status than PF_OK, nothing of the plug-in is.
 *
 * Ownership. Nothing changes owner. What a plug-in hands over (texts, names, the structs below) is
 * copied before the call returns; functions and `user` pointers must stay valid as long as the process
 * runs, and a plug-in is never unloaded. What pagefuse hands over is valid until the callback that it
 * was handed to returns, and may not be freed or written, but for the data of outputs and scratch.
 *
 * Shapes. A tensor is dense and row-major. Dims are in elements; two elements of a 4-bit type share a
 * byte, the first in the low half. Shapes, types and declared checks of a node were done before a
 * kernel sees it.
 *
 * Errors. A callback that fails returns `host->error(host, PF_..., "expected 4, got %d", n)`: the
 * text reaches the user behind the node's name. Callbacks do not throw, longjmp or exit.
 *
 * Threads. `register_all` runs once, on one thread. `supports` and `prepare` may run for several nodes at
 * once. `run` runs at once for different states; one state has one run at a time. A kernel without
 * `prepare` may run at once for one node, too. Loops over threads are host->parallel_for: other
 * threads beside those of pagefuse make both slow.
 *
 * Growth. PF_ABI_MAJOR changes when something here changes its meaning; a plug-in of another major
 * version is refused. PF_ABI_MINOR grows with members at the ends of the structs: a plug-in that was
 * compiled for an older minor version stays valid, one for a newer is refused. Structs carry their
 * size; PF_HAS says whether a host's has a member, for plug-ins that use what newer hosts offer and
 * declare an older minor version.
 */
#ifndef PAGEFUSE_PLUGIN_H_
#define PAGEFUSE_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(readability-identifier-naming): names as C has them */

#define PF_PLUGIN_MAGIC UINT32_C(0x47504650) /* "PFPG" in a little-endian file */
#define PF_ABI_MAJOR UINT32_C(1)
#define PF_ABI_MINOR UINT32_C(0)

#if defined(__GNUC__)
#define PF_EXPORT __attribute__((visibility("default")))
#define PF_PRINTF(text, first) __attribute__((__format__(__printf__, text, first)))
#else
#define PF_EXPORT
#define PF_PRINTF(text, first)
#endif

/* Whether the struct at `table`, which starts with its size, has the member. */
#define PF_HAS(table, member) \
  ((table)->size >= (size_t)((const char*)(&(table)->member + 1) - (const char*)(table)))

/* The codes are those of absl::Status. */
typedef int32_t pf_status;
enum {
  PF_OK = 0,
  PF_INVALID_ARGUMENT = 3,    /* values or shapes are not what the op takes */
  PF_NOT_FOUND = 5,           /* of attributes: neither the node nor the op has it */
  PF_RESOURCE_EXHAUSTED = 8,  /* memory */
  PF_FAILED_PRECONDITION = 9, /* a rule's condition, a state that is not as it should be */
  PF_UNIMPLEMENTED = 12,      /* of `supports`: another kernel has to compute the node */
  PF_INTERNAL = 13            /* a mistake of the plug-in */
};

/* Types of elements: the numbers of onnx.TensorProto.DataType. */
typedef int32_t pf_dtype;
enum {
  PF_UNDEFINED = 0,
  PF_FLOAT = 1,
  PF_UINT8 = 2,
  PF_INT8 = 3,
  PF_UINT16 = 4,
  PF_INT16 = 5,
  PF_INT32 = 6,
  PF_INT64 = 7,
  PF_BOOL = 9,
  PF_FLOAT16 = 10,
  PF_DOUBLE = 11,
  PF_UINT32 = 12,
  PF_UINT64 = 13,
  PF_BFLOAT16 = 16,
  PF_FLOAT8E4M3FN = 17,
  PF_FLOAT8E4M3FNUZ = 18,
  PF_FLOAT8E5M2 = 19,
  PF_FLOAT8E5M2FNUZ = 20,
  PF_UINT4 = 21,
  PF_INT4 = 22,
  PF_FLOAT4E2M1 = 23,
  PF_FLOAT8E8M0 = 24
};

typedef struct pf_host pf_host;
typedef struct pf_registrar pf_registrar;
typedef struct pf_node pf_node; /* a node as one callback sees it */

/* An input or output as far as it is known. Always made by pagefuse. */
typedef struct pf_tensor {
  pf_dtype dtype;      /* PF_UNDEFINED: the port is omitted, or nothing is known of it */
  int32_t rank;        /* -1: not known, before a run only */
  const int64_t* dims; /* `rank` of them; -1: not known, before a run only */
  void* data; /* in `run` that of the tensor, NULL if it has no elements; before a run that of
                          a constant, else NULL. Inputs are read, outputs written. */
} pf_tensor;

/* What pagefuse does for a plug-in. */
struct pf_host {
  size_t size;
  const char* version; /* of pagefuse: "0.1.0" */

  /* Keeps the text for the callback that is running on this thread, and returns `status`. */
  pf_status (*error)(const pf_host* host, pf_status status, const char* format, ...)
      PF_PRINTF(3, 4);
  /* A line on the error stream, with the plug-in's name in front. */
  void (*log)(const pf_host* host, const char* format, ...) PF_PRINTF(2, 3);

  /* Ports by their places in the op. Never NULL: an omitted port, and one past the end, has the type
     PF_UNDEFINED. An output that the op declares in place or as an alias may have, or has, the data of
     that input. */
  int32_t (*num_inputs)(const pf_node* node);
  int32_t (*num_outputs)(const pf_node* node);
  const pf_tensor* (*input)(const pf_node* node, int32_t index);
  const pf_tensor* (*output)(const pf_node* node, int32_t index);
  /* The input if no run can change it, weights for instance; else NULL. Its data stays where it is as
     long as the node's state lives. */
  const pf_tensor* (*constant)(const pf_node* node, int32_t index);

  /* Attributes of the node, or else the op's defaults. On PF_NOT_FOUND, and on PF_INVALID_ARGUMENT
     for another kind of attribute, what the pointers point to is left as it was. Texts end in a zero
     byte, which their size does not count. */
  pf_status (*attribute_int)(const pf_node* node, const char* name, int64_t* value);
  pf_status (*attribute_float)(const pf_node* node, const char* name, float* value);
  pf_status (*attribute_string)(const pf_node* node, const char* name, const char** text,
                                size_t* size);
  pf_status (*attribute_ints)(const pf_node* node, const char* name, const int64_t** values,
                              size_t* count);
  pf_status (*attribute_floats)(const pf_node* node, const char* name, const float** values,
                                size_t* count);

  /* In `run`, on its own thread: `size` bytes, aligned to 64, contents unspecified, until `run`
     returns. NULL if there is no memory, and for elementwise ops. Blocks are kept for later runs. */
  void* (*scratch)(const pf_node* node, size_t size);

  /* Calls body(context, begin, end) on disjoint parts of [0, count), which make up all of it, on the
     threads of this run; returns when all have returned, with the first failure. `item_bytes` is what
     one item reads and writes, or costs as much as: small loops stay on one thread. Results may not
     depend on where parts begin. */
  pf_status (*parallel_for)(const pf_host* host, int64_t count, int64_t item_bytes,
                            pf_status (*body)(void* context, int64_t begin, int64_t end),
                            void* context);
};

/* How an op is computed. Members that are NULL or 0 say nothing; `size`, `name` and `run` are needed. */
typedef struct pf_kernel {
  size_t size;      /* sizeof(pf_kernel) */
  const char* name; /* as --kernel and --print-kernels have it; no other of the op has it */
  int32_t priority; /* the highest of those that support a node wins; pagefuse's have 0 to 100 */
  const pf_dtype* dtypes; /* of the op's first type variable; none: all that the op takes */
  size_t num_dtypes;
  void* user; /* the first argument of the functions */
  /* PF_OK, or why not: shapes and attributes are known as far as the graph tells them. */
  pf_status (*supports)(void* user, const pf_host* host, const pf_node* node);
  /* Once a session, before the node's first run: packs constants, makes tables. *state is NULL at
     first, and goes to `run`, and at the end to `release`; on failure it is dropped. */
  pf_status (*prepare)(void* user, const pf_host* host, const pf_node* node, void** state);
  /* Computes all outputs that are there. */
  pf_status (*run)(void* user, const pf_host* host, const pf_node* node, void* state);
  void (*release)(void* user, void* state);
} pf_kernel;

/* A function that conditions of rules call: `# where: aligned(weight, 16)`. */
typedef struct pf_condition {
  size_t size;          /* sizeof(pf_condition) */
  const char* name;     /* lower-case letters, digits and _ */
  int32_t num_values;   /* values that it takes, at least 1 */
  int32_t takes_number; /* 1: and a number behind them */
  void* user;
  /* 1 if it is proved to hold, else 0. Of values types and dims are known as far as the graph tells
     them, and the data of constants. `number` is 0 where it takes none. */
  int32_t (*holds)(void* user, const pf_host* host, const pf_tensor* const* values, int64_t number);
} pf_condition;

/* Where a plug-in says what it has. Errors of what is said come later, when all is checked; these
   functions fail for a NULL or a struct that is too small. */
struct pf_registrar {
  size_t size;
  /* Ops and rules, as in a file of a text plug-in. */
  pf_status (*add_text)(pf_registrar* registrar, const char* text);
  /* `op` with its domain: one of the plug-in's texts, or any other that is known. */
  pf_status (*add_kernel)(pf_registrar* registrar, const char* op, const pf_kernel* kernel);
  pf_status (*add_condition)(pf_registrar* registrar, const pf_condition* condition);
};

/* The symbol `pagefuse_plugin`. */
typedef struct pf_plugin {
  uint32_t magic;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t size;
  const char* name;    /* lower-case letters, digits, - and _; its rules are a pass of this name */
  const char* version; /* for people */
  pf_status (*register_all)(const pf_host* host, pf_registrar* registrar);
} pf_plugin;

#define PF_PLUGIN(name, version, register_all)                                               \
  {                                                                                          \
    PF_PLUGIN_MAGIC, PF_ABI_MAJOR, PF_ABI_MINOR, (uint32_t)sizeof(pf_plugin), name, version, \
        register_all                                                                         \
  }

PF_EXPORT extern const pf_plugin pagefuse_plugin;

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* PAGEFUSE_PLUGIN_H_ */
