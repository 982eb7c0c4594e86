/* Eight-lane helpers, compiled once for every CPU level (CK names the level's copy). */

static CK_INLINE v8f CK(load)(const float *p) { return *(const v8f_any *)p; }
static CK_INLINE void CK(store)(float *p, v8f v) { *(v8f_any *)p = v; }
static CK_INLINE v8f CK(splat)(float x) { return (v8f){x, x, x, x, x, x, x, x}; }
static CK_INLINE v8f CK(select)(v8i mask, v8f yes, v8f no)
{
    return (v8f)((mask & (v8i)yes) | (~mask & (v8i)no));
}

/* The sum of the lanes as ((0+1)+(2+3)) + ((4+5)+(6+7)). */
static CK_INLINE float CK(total)(v8f v)
{
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/* Lane i = total(v[i]). */
static CK_INLINE v8f CK(totals)(const v8f *v)
{
#ifdef CK_AVX2
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps((__m256)v[0], (__m256)v[1]),
                              _mm256_hadd_ps((__m256)v[2], (__m256)v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps((__m256)v[4], (__m256)v[5]),
                              _mm256_hadd_ps((__m256)v[6], (__m256)v[7]));
    return (v8f)_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
#else
    v8f sums;
    for (int i = 0; i < 8; i++) sums[i] = CK(total)(v[i]);
    return sums;
#endif
}

/* Nearest integer, ties to even, for |x| < 2^22. */
static CK_INLINE v8f CK(round)(v8f x) { return (x + 12582912.0f) - 12582912.0f; }

/* e^x to about one unit in the last place (Cephes' expf); 0 below -87, clamped above 88, NaN stays. */
static CK_INLINE v8f CK(exp)(v8f x)
{
    x = CK(select)(x > 88.0f, CK(splat)(88.0f), x);
    v8i tiny = x < -87.0f;
    x = CK(select)(tiny, CK(splat)(0.0f), x);
    v8f n = CK(round)(x * 1.44269504088896341f);
    v8f r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    v8f p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    v8i power = (__builtin_convertvector(n, v8i) + 127) << 23;
    return CK(select)(tiny, CK(splat)(0.0f), p * (v8f)power);
}
