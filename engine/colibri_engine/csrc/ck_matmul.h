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

/* A piece is 16 numbers: of each of the eight rows two neighbouring columns. A block has 16 pieces. */
#ifdef CK_AVX2
static CK_INLINE __m256i CK(pair)(const int16_t *q)
{
    int32_t both;
    memcpy(&both, q, 4);
    return _mm256_set1_epi32(both);
}

/* sums += products of piece number `piece` of block b. The empty statement keeps the compiler from
 * making many products before it adds them, for which there are not enough registers. */
static CK_INLINE void CK(piece)(__m256i w, const ck_tile_rows *x, int64_t b, int piece, int n, v8i *sums)
{
    CK_EACH {
        sums[j] += (v8i)_mm256_madd_epi16(w, CK(pair)(x->q[j] + b * CK_BLOCK + 2 * piece));
        __asm__("" : "+x"(sums[j]));
    }
}
#else
static CK_INLINE void CK(pieces)(const int16_t *w, const ck_tile_rows *x, int64_t b, int n, v8i *sums)
{
    int16_t row[CK_BLOCK];
    for (int r = 0; r < 8; r++) {
        for (int p = 0; p < 16; p++) memcpy(row + 2 * p, w + 16 * p + 2 * r, 4);
        CK_EACH {
            const int16_t *q = x->q[j] + b * CK_BLOCK;
            int32_t sum = 0;
            for (int i = 0; i < CK_BLOCK; i++) sum += row[i] * q[i];
            sums[j][r] = sum;
        }
    }
}
#endif

/* Integer dots of block b: 32 * 128 * 32767 < 2^31. */
static CK_INLINE void CK(dots_q8)(const uint8_t *w, const ck_tile_rows *x, int64_t b, int n, v8i *sums)
{
#ifdef CK_AVX2
    _Pragma("GCC unroll 1") for (int p = 0; p < 16; p += 2)
        for (int i = p; i < p + 2; i++)
            CK(piece)(_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)w + i)), x, b, i, n, sums);
#else
    int16_t pieces[8 * CK_BLOCK];
    for (int i = 0; i < 8 * CK_BLOCK; i++) pieces[i] = (int8_t)w[i];
    CK(pieces)(pieces, x, b, n, sums);
#endif
}

/* The same for 4 bits: a 16-bit lane holds its column of four pieces, lowest bits first. */
static CK_INLINE void CK(dots_q4)(const uint8_t *w, const ck_tile_rows *x, int64_t b, int n, v8i *sums)
{
#ifdef CK_AVX2
    const __m256i low = _mm256_set1_epi16(15);
    _Pragma("GCC unroll 1") for (int g = 0; g < 4; g++) {
        __m256i four = _mm256_loadu_si256((const __m256i *)w + g);
        CK(piece)(_mm256_and_si256(four, low), x, b, 4 * g, n, sums);
        CK(piece)(_mm256_and_si256(_mm256_srli_epi16(four, 4), low), x, b, 4 * g + 1, n, sums);
        CK(piece)(_mm256_and_si256(_mm256_srli_epi16(four, 8), low), x, b, 4 * g + 2, n, sums);
        CK(piece)(_mm256_srli_epi16(four, 12), x, b, 4 * g + 3, n, sums);
    }
#else
    int16_t pieces[8 * CK_BLOCK];
    for (int g = 0; g < 4; g++)
        for (int i = 0; i < 16; i++) {
            unsigned four = w[32 * g + 2 * i] | w[32 * g + 2 * i + 1] << 8;
            for (int p = 0; p < 4; p++) pieces[64 * g + 16 * p + i] = four >> 4 * p & 15;
        }
    CK(pieces)(pieces, x, b, n, sums);
#endif
}

static CK_INLINE void CK(tile_q8_0)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, w += 272) {
        v8i dots[CK_TILE] = {0};
        for (int i = 0; i < 5; i++) __builtin_prefetch(w + 2048 + 64 * i);
        CK(dots_q8)(w + 16, x, b, n, dots);
        v8f d = CK(load_f16)(w);
        CK_EACH sum[j] += __builtin_convertvector(dots[j], v8f) * (d * x->s[j][2 * b]);
    }
}

static CK_INLINE void CK(tile_q4_1)(const uint8_t *w, int64_t cols, const ck_tile_rows *x, int n, v8f *sum)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, w += 160) {
        v8i dots[CK_TILE] = {0};
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
        v8i dots[CK_TILE] = {0};
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
