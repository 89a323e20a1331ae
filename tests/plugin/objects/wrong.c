// SPDX-License-Identifier: Apache-2.0
/* Plug-ins that are wrong in one way each: -DWRONG_<way>. */
#include <stdlib.h>

#include <pagefuse/plugin.h>

#ifdef WRONG_SYMBOL
const int another_symbol = 1;
#else

#ifdef WRONG_UNDEFINED
pf_status function_of_nobody(void);
#endif

#ifdef WRONG_CONSTRUCTOR
__attribute__((constructor)) static void Abort(void) { abort(); }
#endif

#define OP(name) "# op: wrong." name "\n" name " (float[N] x) => (float[N] y) {\n  y = Neg (x)\n}\n"

static pf_status Run(void* user, const pf_host* host, const pf_node* node, void* state) {
  (void)user, (void)node, (void)state;
  return host->error(host, PF_INTERNAL, "never runs");
}

static pf_status Register(const pf_host* host, pf_registrar* registrar) {
  const pf_kernel kernel = {.size = sizeof(pf_kernel), .name = "plain", .run = Run};
  (void)host, (void)registrar, (void)kernel;
#if defined(WRONG_BODY)
  return registrar->add_text(registrar,
                             "# op: wrong.Op\nOp (float[N] x) => (float[N] y) {\n  y = Neg x\n}\n");
#elif defined(WRONG_KERNEL)
  return registrar->add_kernel(registrar, "wrong.NoSuchOp", &kernel);
#elif defined(WRONG_DUPLICATE)
  return registrar->add_text(
      registrar, "# op: acme.Scale\nScale (float[N] x) => (float[N] y) {\n  y = Neg (x)\n}\n");
#elif defined(WRONG_ADDRESS)
  registrar->add_text(registrar, OP("Op"));
  int* volatile nowhere = (int*)8;
  *nowhere = 1;
  return PF_OK;
#elif defined(WRONG_FAILURE)
  registrar->add_text(registrar, OP("Op"));
  registrar->add_kernel(registrar, "wrong.Op", &kernel);
  return host->error(host, PF_FAILED_PRECONDITION, "needs %d licences", 2);
#elif defined(WRONG_UNDEFINED)
  return function_of_nobody();
#else
  return registrar->add_text(registrar, OP("Op"));
#endif
}

const pf_plugin pagefuse_plugin = {
#ifdef WRONG_MAGIC
    UINT32_C(0x12345678),
#else
    PF_PLUGIN_MAGIC,
#endif
#ifdef WRONG_ABI
    9,
#else
    PF_ABI_MAJOR,
#endif
    PF_ABI_MINOR,
    sizeof(pf_plugin),
    "wrong",
    "1",
    Register};
#endif
