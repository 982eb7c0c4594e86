/* All kernels for every CPU level of this machine; included by one translation unit. */
#ifndef CK_KERNELS_H
#define CK_KERNELS_H

#include "ck.h"
#include "ck_pack.h"
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef int16_t v8s __attribute__((vector_size(16)));
typedef float v8f_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8i_any __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint16_t v8h_any __attribute__((vector_size(16), aligned(2), may_alias));
typedef int16_t v8s_any __attribute__((vector_size(16), aligned(2), may_alias));

/* The activations of one tile of a matrix product. */
enum { CK_TILE = 4 };
typedef struct {
    const float *f[CK_TILE];
    const int16_t *q[CK_TILE];
    const float *s[CK_TILE];
} ck_tile_rows;

#define CK_TABLE(level) \
    {level, CK(quantize), CK(matmul), CK(rmsnorm), CK(rope), CK(attend), CK(combine), CK(swiglu), CK(softmax), \
     CK(logsumexp)}

#define CK(name) ck_base_##name
#define CK_TARGET
#define CK_INLINE inline __attribute__((always_inline))
#include "ck_vector.h"
#include "ck_rows.h"
#include "ck_matmul.h"
static const ck_kernels ck_base = CK_TABLE("base");
#undef CK
#undef CK_TARGET
#undef CK_INLINE

#if defined(__x86_64__)
#define CK_AVX2
#define CK(name) ck_avx2_##name
#define CK_TARGET __attribute__((target("avx2,f16c")))
#define CK_INLINE inline __attribute__((always_inline)) CK_TARGET
#include "ck_vector.h"
#include "ck_rows.h"
#include "ck_matmul.h"
static const ck_kernels ck_avx2 = CK_TABLE("avx2");
#undef CK
#undef CK_TARGET
#undef CK_INLINE
#undef CK_AVX2
#endif

/* The kernels of a level, the best one for NULL; NULL if this machine does not have it. */
static const ck_kernels *ck_find(const char *level)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    if (avx2 && (!level || !strcmp(level, "avx2"))) return &ck_avx2;
#endif
    return !level || !strcmp(level, "base") ? &ck_base : NULL;
}

#endif
