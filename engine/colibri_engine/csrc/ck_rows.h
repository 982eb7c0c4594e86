/* Kernels that work on one row of activations, compiled once for every CPU level. */

static CK_TARGET void CK(quantize)(const float *x, int64_t cols, int16_t *q, float *s)
{
    for (int64_t b = 0; b < cols / CK_BLOCK; b++, x += CK_BLOCK, q += CK_BLOCK, s += 2) {
        /* The bits of a non-negative float order as integers do, with infinity and NaN on top. */
        v8i peak = {0};
        for (int i = 0; i < CK_BLOCK; i += 8) {
            v8i bits = (v8i)CK(load)(x + i) & 0x7fffffff;
            v8i more = bits > peak;
            peak = (more & bits) | (~more & peak);
        }
        union { int32_t bits; float value; } top = {0};
        for (int i = 0; i < 8; i++)
            if (peak[i] > top.bits) top.bits = peak[i];
        if (!(top.value >= 1e-30f) || top.bits >= 0x7f800000) {
            memset(q, 0, CK_BLOCK * sizeof *q);
            s[0] = s[1] = top.bits >= 0x7f800000 ? NAN : 0.0f;
            continue;
        }
        float inverse = 32767.0f / top.value, scale = top.value / 32767.0f;
        v8i sum = {0};
        for (int i = 0; i < CK_BLOCK; i += 8) {
            v8i n = __builtin_convertvector(CK(round)(CK(load)(x + i) * inverse), v8i);
            sum += n;
            *(v8s_any *)(q + i) = __builtin_convertvector(n, v8s);
        }
        int32_t count = 0;
        for (int i = 0; i < 8; i++) count += sum[i];
        s[0] = scale;
        s[1] = scale * (float)count;
    }
}

/* The squares are summed in lanes (channel mod 8), then across them. */
static CK_TARGET void CK(rmsnorm)(const float *x, const float *weight, int64_t cols, float eps, float *y)
{
    v8f sum = {0};
    for (int64_t i = 0; i < cols; i += 8) {
        v8f v = CK(load)(x + i);
        sum += v * v;
    }
    float scale = 1.0f / sqrtf(CK(total)(sum) / (float)cols + eps);
    for (int64_t i = 0; i < cols; i += 8) CK(store)(y + i, CK(load)(x + i) * scale * CK(load)(weight + i));
}

static CK_TARGET void CK(rope)(float *x, int64_t heads, int64_t dim, int64_t dims, int interleaved,
                               const float *angles)
{
    int64_t pairs = dims / 2, step = interleaved ? 2 : 1, apart = interleaved ? 1 : pairs;
    for (int64_t h = 0; h < heads; h++, x += dim)
        for (int64_t i = 0; i < pairs; i++) {
            float *a = x + i * step, *b = a + apart;
            float c = angles[2 * i], s = angles[2 * i + 1], first = *a, second = *b;
            *a = first * c - second * s;
            *b = second * c + first * s;
        }
}

static CK_TARGET void CK(swiglu)(const float *gate, const float *up, int64_t cols, float *y)
{
    for (int64_t i = 0; i < cols; i += 8) {
        v8f g = CK(load)(gate + i);
        CK(store)(y + i, g / (1.0f + CK(exp)(-g)) * CK(load)(up + i));
    }
}

/* Lane i sums the elements at i mod 8, ascending; missing ones count as 0. */
static CK_TARGET float CK(softmax)(float *x, int64_t n, float *highest)
{
    v8f peak = CK(splat)(-INFINITY), sum = {0};
    float tail[8];
    int64_t whole = n & ~(int64_t)7;
    for (int i = 0; i < 8; i++) tail[i] = whole + i < n ? x[whole + i] : -INFINITY;
    for (int64_t i = 0; i < whole; i += 8) {
        v8f v = CK(load)(x + i);
        peak = CK(select)(v > peak, v, peak);
    }
    v8f last = CK(load)(tail);
    peak = CK(select)(last > peak, last, peak);
    float top = peak[0];
    for (int i = 1; i < 8; i++)
        if (peak[i] > top) top = peak[i];
    *highest = top;
    for (int64_t i = 0; i < whole; i += 8) {
        v8f e = CK(exp)(CK(load)(x + i) - top);
        CK(store)(x + i, e);
        sum += e;
    }
    last = CK(exp)(last - top);
    sum += last;
    CK(store)(tail, last);
    for (int i = 0; whole + i < n; i++) x[whole + i] = tail[i];
    return CK(total)(sum);
}

static CK_TARGET double CK(logsumexp)(const float *x, int64_t n)
{
    double sums[8] = {0};
    float top = -INFINITY;
    int64_t whole = n & ~(int64_t)7;
    v8f peak = CK(splat)(-INFINITY);
    for (int64_t i = 0; i < whole; i += 8) {
        v8f v = CK(load)(x + i);
        peak = CK(select)(v > peak, v, peak);
    }
    for (int i = 0; i < 8; i++) top = peak[i] > top ? peak[i] : top;
    for (int64_t i = whole; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i += 8) {
        float tail[8];
        if (i == whole)
            for (int j = 0; j < 8; j++) tail[j] = i + j < n ? x[i + j] : -INFINITY;
        v8f e = CK(exp)(CK(load)(i == whole ? tail : x + i) - top);
        for (int j = 0; j < 8; j++) sums[j] += (double)e[j];
    }
    double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    return (double)top + log(sum);
}

/* Scores sum their products in lanes (channel mod 8); values are summed by ascending position. */
static CK_TARGET void CK(attend)(const float *q, const float *k, const float *v, int64_t dim, int64_t n,
                                 float scale, float *part)
{
    float scores[CK_SPAN];
    for (int64_t p = 0; p < n; p += 8) {
        v8f dots[8] = {0};
        const float *key = k + p * dim;
        for (int64_t c = 0; c < dim; c += 8) {
            v8f channel = CK(load)(q + c);
            for (int i = 0; i < 8; i++) dots[i] += channel * CK(load)(key + i * dim + c);
        }
        CK(store)(scores + p, CK(totals)(dots) * scale);
    }
    part[dim + 1] = CK(softmax)(scores, n, part + dim);
    int64_t c = 0;
    for (; c + 64 <= dim; c += 64) {
        v8f sum[8] = {0};
        for (int64_t p = 0; p < n; p++)
            for (int i = 0; i < 8; i++) sum[i] += scores[p] * CK(load)(v + p * dim + c + 8 * i);
        for (int i = 0; i < 8; i++) CK(store)(part + c + 8 * i, sum[i]);
    }
    for (; c < dim; c += 8) {
        v8f sum = {0};
        for (int64_t p = 0; p < n; p++) sum += scores[p] * CK(load)(v + p * dim + c);
        CK(store)(part + c, sum);
    }
}

/* Each part is scaled to the greater of the two maxima and added to the first. */
static CK_TARGET void CK(combine)(float *parts, int64_t n, int64_t dim, float *out)
{
    const float *part = parts;
    for (int64_t i = 1; i < n; i++) {
        part += dim + CK_LANES;
        float top = part[dim] > parts[dim] ? part[dim] : parts[dim];
        v8f old = CK(exp)(CK(splat)(parts[dim] - top)), new = CK(exp)(CK(splat)(part[dim] - top));
        for (int64_t c = 0; c < dim; c += 8)
            CK(store)(parts + c, CK(load)(parts + c) * old + CK(load)(part + c) * new);
        parts[dim] = top;
        parts[dim + 1] = parts[dim + 1] * old[0] + part[dim + 1] * new[0];
    }
    float inverse = 1.0f / parts[dim + 1];
    for (int64_t c = 0; c < dim; c += 8) CK(store)(out + c, CK(load)(parts + c) * inverse);
}
