/* Types shared by the kernels and their callers.
 *
 * One law holds for every kernel: a result depends on its own row's inputs only, and every sum is taken
 * in one documented order, whatever the number of rows, threads or the instruction set. Hence no fused
 * multiply-add (the build turns contraction off) and no reduction split over threads.
 */
#ifndef CK_H
#define CK_H

#include <stddef.h>
#include <stdint.h>

enum { CK_F32, CK_F16, CK_BF16, CK_Q8_0, CK_Q4_0, CK_Q4_1 };
enum { CK_LANES = 8, CK_BLOCK = 32, CK_SPAN = 128 };

/* Weights [rows, cols] in their stored encoding, eight rows interleaved (a group) so that one vector
 * lane computes one output. The last group is padded with zero rows. Layouts are in ck_pack.h. */
typedef struct {
    int32_t dtype;
    int64_t rows, cols, groups;
    size_t group_bytes;
    const uint8_t *data;
} ck_matrix;

/* Activations, one row after the other. f: [n][cols]. Where a matrix is block-quantised: q: [n][cols]
 * in -32767..32767, and s: [n][cols/32][2] = scale d and d * sum(q) of each block of 32. Eight bits would
 * be too few: they move the logits of a small model by more than one. */
typedef struct {
    float *f;
    int16_t *q;
    float *s;
    int64_t cols;
} ck_acts;

/* One CPU level's kernels; n counts what the name says, vectors are multiples of 8 long. */
typedef struct {
    const char *name;

    /* q and s of one row of activations; a block that is not finite gets scale NaN. */
    void (*quantize)(const float *x, int64_t cols, int16_t *q, float *s);

    /* out[j*ldo + r] (+)= w[r] . x[pick ? pick[j] : j] for the rows r of groups [begin, end), j < n. */
    void (*matmul)(const ck_matrix *w, int64_t begin, int64_t end, const ck_acts *x, const int32_t *pick,
                   int64_t n, float *out, int64_t ldo, int add);

    /* y = x * rsqrt(mean(x^2) + eps) * weight. */
    void (*rmsnorm)(const float *x, const float *weight, int64_t cols, float eps, float *y);

    /* Turn `heads` heads of `dim` channels; angles: [dims/2][2] = cos, sin of each channel pair. */
    void (*rope)(float *x, int64_t heads, int64_t dim, int64_t dims, int interleaved, const float *angles);

    /* Softmax attention of one head over n <= CK_SPAN positions, not normalised: part = sum of
     * exp(score - max) * v [dim], then max, then the sum of exp(score - max). k, v: [n up to 8][dim]. */
    void (*attend)(const float *q, const float *k, const float *v, int64_t dim, int64_t n, float scale,
                   float *part);

    /* out [dim] = attention over all spans, from their parts [n][dim + CK_LANES], folded in order. */
    void (*combine)(float *parts, int64_t n, int64_t dim, float *out);

    /* y = silu(gate) * up. */
    void (*swiglu)(const float *gate, const float *up, int64_t cols, float *y);

    /* x = exp(x - max(x)), any n; returns the sum, and the maximum in *top. */
    float (*softmax)(float *x, int64_t n, float *top);

    /* log(sum(exp(x))) with an f64 sum, any n; NaN or infinite when a value is. */
    double (*logsumexp)(const float *x, int64_t n);
} ck_kernels;

#endif
