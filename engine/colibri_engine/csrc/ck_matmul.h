/* Matrix products over groups of eight weight rows, compiled once for every CPU level.
 *
 * Order of every sum, one f32 accumulator a row: float weights take even and odd columns apart,
 * ascending, and add the two; quantised ones take blocks ascending, of each first
 * dot(integers) * (w.d * x.d), then w.m * x.d * sum(x.q) where the encoding has a minimum m.
 * A tile computes one group times `n` rows of activations; n is a constant once inlined. The loop over a
 * block's bytes stays a loop, so that a tile's sums stay in registers.
 */

#define CK_EACH _Pragma("GCC unroll 4") for (int j = 0; j < n; j++)

static CK_INLINE void CK(tile_f32)(const uint8_t *data, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    v8f odd[CK_TILE] = {0};
    const float *w = (const float *)data;
    for (int64_t c = 0; c < cols; c += 2, w += 16) {
        __builtin_prefetch(w + 512);
        v8f first = CK(load)(w), second = CK(load)(w + 8);
        CK_EACH { sum[j] += first * x->f[j][c]; odd[j] += second * x->f[j][c + 1]; }
    }
    CK_EACH sum[j] += odd[j];
}

static CK_INLINE void CK(tile_bf16)(const uint8_t *data, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    v8f odd[CK_TILE] = {0};
    const v8i_any *w = (const v8i_any *)data;
    for (int64_t c = 0; c < cols; c += 2, w++) {
        __builtin_prefetch(w + 64);
        v8f first = (v8f)(*w << 16), second = (v8f)(*w & (int32_t)0xffff0000);
        CK_EACH { sum[j] += first * x->f[j][c]; odd[j] += second * x->f[j][c + 1]; }
    }
    CK_EACH sum[j] += odd[j];
}

static CK_INLINE v8f CK(load_f16)(const uint8_t *p)
{
#ifdef CK_AVX2
    return (v8f)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
#else
    v8i bits = __builtin_convertvector(*(const v8h_any *)p, v8i), size = bits & 0x7fff;
    v8i normal = (size << 13) + (112 << 23), infinite = size >= 0x7c00;
    v8f value = CK(select)(size < 0x400, __builtin_convertvector(size, v8f) * 0x1p-24f,
                           (v8f)(normal | (infinite & 0x7f800000)));
    return (v8f)((v8i)value | (bits & 0x8000) << 16);
#endif
}

static CK_INLINE void CK(tile_f16)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    v8f odd[CK_TILE] = {0};
    for (int64_t c = 0; c < cols; c += 2, w += 32) {
        __builtin_prefetch(w + 2048);
        v8f first = CK(load_f16)(w), second = CK(load_f16)(w + 16);
        CK_EACH { sum[j] += first * x->f[j][c]; odd[j] += second * x->f[j][c + 1]; }
    }
    CK_EACH sum[j] += odd[j];
}

#ifdef CK_AVX2
static CK_INLINE __m256i CK(four)(const int8_t *q)
{
    int32_t bytes;
    memcpy(&bytes, q, 4);
    return _mm256_set1_epi32(bytes);
}
#else
static CK_INLINE int32_t CK(dot)(const int8_t *w, const int8_t *q)
{
    int32_t sum = 0;
    for (int i = 0; i < CK_BLOCK; i++) sum += w[i] * q[i];
    return sum;
}
#endif

static CK_INLINE void CK(dots_q8)(const uint8_t *w, const ck_tile_rows *x, int64_t b, int n, v8i *dots)
{
#ifdef CK_AVX2
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums[CK_TILE];
    CK_EACH sums[j] = _mm256_setzero_si256();
    _Pragma("GCC unroll 1") for (int g = 0; g < 8; g++) {
        __m256i signs = _mm256_loadu_si256((const __m256i *)(w + 32 * g));
        __m256i sizes = _mm256_abs_epi8(signs);
        CK_EACH {
            __m256i q = _mm256_sign_epi8(CK(four)(x->q[j] + b * CK_BLOCK + 4 * g), signs);
            sums[j] = _mm256_add_epi32(sums[j], _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, q), ones));
        }
    }
    CK_EACH dots[j] = (v8i)sums[j];
#else
    int8_t row[CK_BLOCK];
    for (int r = 0; r < 8; r++) {
        for (int i = 0; i < 8; i++) memcpy(row + 4 * i, w + 32 * i + 4 * r, 4);
        CK_EACH dots[j][r] = CK(dot)(row, x->q[j] + b * CK_BLOCK);
    }
#endif
}

/* Integer dots of a block of eight rows of 4-bit weights. Sums fit 16 bits: 8 * 2 * 15 * 127 < 2^15. */
static CK_INLINE void CK(dots_q4)(const uint8_t *w, const ck_tile_rows *x, int64_t b, int n, v8i *dots)
{
#ifdef CK_AVX2
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    __m256i pairs[CK_TILE];
    CK_EACH pairs[j] = _mm256_setzero_si256();
    _Pragma("GCC unroll 1") for (int g = 0; g < 4; g++) {
        __m256i both = _mm256_loadu_si256((const __m256i *)(w + 32 * g));
        __m256i first = _mm256_and_si256(both, low);
        __m256i second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        CK_EACH {
            const int8_t *q = x->q[j] + b * CK_BLOCK + 4 * g;
            pairs[j] = _mm256_add_epi16(pairs[j], _mm256_maddubs_epi16(first, CK(four)(q)));
            pairs[j] = _mm256_add_epi16(pairs[j], _mm256_maddubs_epi16(second, CK(four)(q + 16)));
        }
    }
    CK_EACH dots[j] = (v8i)_mm256_madd_epi16(pairs[j], ones);
#else
    uint8_t bytes[8 * CK_BLOCK];
    for (int i = 0; i < 4 * CK_BLOCK; i++) {
        bytes[i] = w[i] & 15;
        bytes[i + 4 * CK_BLOCK] = w[i] >> 4;
    }
    CK(dots_q8)(bytes, x, b, n, dots);
#endif
}

static CK_INLINE void CK(tile_q8_0)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, w += 272) {
        v8i dots[CK_TILE];
        for (int i = 0; i < 5; i++) __builtin_prefetch(w + 2048 + 64 * i);
        CK(dots_q8)(w + 16, x, b, n, dots);
        v8f d = CK(load_f16)(w);
        CK_EACH sum[j] += __builtin_convertvector(dots[j], v8f) * (d * x->s[j][2 * b]);
    }
}

static CK_INLINE void CK(tile_q4_1)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, w += 160) {
        v8i dots[CK_TILE];
        for (int i = 0; i < 3; i++) __builtin_prefetch(w + 2048 + 64 * i);
        CK(dots_q4)(w + 32, x, b, n, dots);
        v8f d = CK(load_f16)(w), m = CK(load_f16)(w + 16);
        CK_EACH {
            sum[j] += __builtin_convertvector(dots[j], v8f) * (d * x->s[j][2 * b]);
            sum[j] += m * x->s[j][2 * b + 1];
        }
    }
}

static CK_INLINE void CK(tile_q4_0)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, w += 144) {
        v8i dots[CK_TILE];
        for (int i = 0; i < 3; i++) __builtin_prefetch(w + 2048 + 64 * i);
        CK(dots_q4)(w + 16, x, b, n, dots);
        v8f d = CK(load_f16)(w), m = d * -8.0f;
        CK_EACH {
            sum[j] += __builtin_convertvector(dots[j], v8f) * (d * x->s[j][2 * b]);
            sum[j] += m * x->s[j][2 * b + 1];
        }
    }
}

#define CK_SIZES(tile) \
    switch (n) { \
    case 1: CK(tile)(w, cols, x, 1, sum); break; \
    case 2: CK(tile)(w, cols, x, 2, sum); break; \
    case 3: CK(tile)(w, cols, x, 3, sum); break; \
    default: CK(tile)(w, cols, x, 4, sum); break; \
    }

static CK_TARGET void CK(tile)(int32_t dtype, const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n,
                               v8f *out)
{
    v8f sum[CK_TILE] = {0};
    switch (dtype) {
    case CK_F32: CK_SIZES(tile_f32) break;
    case CK_F16: CK_SIZES(tile_f16) break;
    case CK_BF16: CK_SIZES(tile_bf16) break;
    case CK_Q8_0: CK_SIZES(tile_q8_0) break;
    case CK_Q4_0: CK_SIZES(tile_q4_0) break;
    default: CK_SIZES(tile_q4_1) break;
    }
    for (int j = 0; j < n; j++) out[j] = sum[j];
}

static CK_TARGET void CK(matmul)(const ck_matrix *w, int64_t begin, int64_t end, const ck_acts *acts,
                                 const int32_t *pick, int64_t n, float *out, int64_t ldo, int add)
{
    int64_t cols = w->cols, blocks = cols / CK_BLOCK;
    for (int64_t g = begin; g < end; g++) {
        int64_t lanes = w->rows - g * 8 < 8 ? w->rows - g * 8 : 8;
        for (int64_t j = 0; j < n; j += CK_TILE) {
            int size = n - j < CK_TILE ? (int)(n - j) : CK_TILE;
            ck_tile_rows x;
            v8f sum[CK_TILE];
            for (int i = 0; i < size; i++) {
                int64_t row = pick ? pick[j + i] : j + i;
                x.f[i] = acts->f + row * cols;
                x.q[i] = acts->q + row * cols;
                x.s[i] = acts->s + row * blocks * 2;
            }
            CK(tile)(w->dtype, w->data + g * w->group_bytes, cols, &x, size, sum);
            for (int i = 0; i < size; i++) {
                float *to = out + (j + i) * ldo + g * 8;
                if (lanes == 8)
                    CK(store)(to, add ? CK(load)(to) + sum[i] : sum[i]);
                else
                    for (int l = 0; l < lanes; l++) to[l] = add ? to[l] + sum[i][l] : sum[i][l];
            }
        }
    }
}

#undef CK_EACH
#undef CK_SIZES
