# cython: boundscheck=False, wraparound=False, cdivision=True
"""Choosing the next token from logits, and reading log probabilities out of them.

The order is llama.cpp's: bias, penalties, top_k, typical_p, top_p, min_p, temperature. Every filter
normalises what the one before left, keeps at least one token, and breaks ties towards the lower id.
"""

from libc.float cimport FLT_MAX
from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ._kernels cimport ck_kernels, kernels
from ._memory cimport Memory

from .errors import EngineFailed

REPETITION_WINDOW = 64
MAX_CANDIDATES = 32

cdef float NEAR = 12.0


cdef union Bits:
    float value
    uint32_t bits


cdef uint64_t key_of(float value, uint32_t token) noexcept nogil:
    """Sorts ascending as values do descending, then as tokens do."""
    cdef Bits x
    x.value = value
    return <uint64_t>(x.bits if x.bits >> 31 else 0x7FFFFFFF - x.bits) << 32 | token


cdef uint64_t mix(uint64_t x) noexcept nogil:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef double uniform_at(uint64_t seed, uint64_t position) noexcept nogil:
    cdef uint64_t step = <uint64_t>0x9E3779B97F4A7C15
    return <double>(mix(mix(seed + step) + (position + 1) * step) >> 11) * 2.0**-53


def uniform(seed, position):
    """The random number in [0, 1) of one position: a function of (seed, position) alone."""
    return uniform_at(seed & 0xFFFFFFFFFFFFFFFF, position)


cdef void sort_first(uint64_t *keys, int64_t n, int64_t *borders, int64_t *depth, int64_t done) noexcept nogil:
    """Put the element of rank `done` in its place, given that all lower ranks are: incremental quicksort.

    borders[:depth] are known: what is left of one is not greater than what is right of it.
    """
    cdef int64_t lo = done, hi, i, j
    cdef uint64_t pivot, swap
    while depth[0] and borders[depth[0] - 1] <= lo:
        depth[0] -= 1
    while True:
        hi = borders[depth[0] - 1] if depth[0] else n
        if hi - lo <= 1:
            return
        pivot = keys[lo + (hi - lo - 1) // 2]
        i, j = lo - 1, hi
        while True:
            i += 1
            while keys[i] < pivot:
                i += 1
            j -= 1
            while keys[j] > pivot:
                j -= 1
            if i >= j:
                break
            swap = keys[i]
            keys[i] = keys[j]
            keys[j] = swap
        borders[depth[0]] = j + 1
        depth[0] += 1


cdef bint finite(const float *logits, int64_t n) noexcept nogil:
    cdef int64_t i
    cdef uint32_t broken = 0
    for i in range(n):
        broken |= (<const uint32_t *>logits)[i] & 0x7F800000 == 0x7F800000
    return not broken


cdef int refuse() except -1 with gil:
    raise EngineFailed("the network gave a logit that is not a finite number; its weights are damaged")


cdef int64_t argmax(const float *logits, int64_t n) noexcept nogil:
    cdef int64_t best = 0, i
    for i in range(1, n):
        if logits[i] > logits[best]:
            best = i
    return best


cdef class Sampler:
    """Chooses tokens for one job.

    params: a SamplingParams; seed: any integer; tokens: the prompt, for the repetition penalty.
    Presence and frequency penalties count the generated tokens, the repetition penalty looks at the
    last REPETITION_WINDOW tokens of prompt and reply.
    """

    cdef const ck_kernels *k
    cdef uint64_t seed
    cdef int64_t vocab, top_k
    cdef double temperature, top_p, min_p, typical_p, presence, frequency, repetition
    cdef dict bias, counts
    cdef list recent
    cdef Memory memory
    cdef float *work
    cdef uint64_t *keys
    cdef int64_t *borders

    def __init__(self, params, seed, tokens, int64_t vocab):
        self.k = kernels()
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        self.vocab, self.top_k = vocab, params.top_k
        self.temperature, self.top_p, self.min_p = params.temperature, params.top_p, params.min_p
        self.typical_p = params.typical_p
        self.presence, self.frequency = params.presence_penalty, params.frequency_penalty
        self.repetition = params.repetition_penalty
        self.bias = dict(params.logit_bias)
        self.counts = {}
        self.recent = list(tokens[-REPETITION_WINDOW:])
        self.memory = Memory(vocab * (sizeof(float) + 2 * sizeof(uint64_t)))
        self.keys = <uint64_t *>self.memory.at
        self.borders = <int64_t *>(self.keys + vocab)
        self.work = <float *>(self.borders + vocab)

    def accept(self, int64_t token):
        """The token became part of the reply."""
        self.counts[token] = self.counts.get(token, 0) + 1
        self.recent.append(token)
        del self.recent[:-REPETITION_WINDOW]

    def choose(self, const float[::1] logits, int64_t position, const unsigned char[::1] mask=None):
        """The token that follows, for logits [vocab]; `position` is its own in the sequence.

        mask: the bit token % 8 of the byte token // 8 allows a token; at least one must be. None allows all.

        Raises:
            EngineFailed: a logit is not finite.
        """
        cdef int64_t token
        with nogil:
            memcpy(self.work, &logits[0], self.vocab * sizeof(float))
            if not finite(self.work, self.vocab):
                refuse()
        self.penalise()
        if mask is not None:
            self.forbid(mask)
        with nogil:
            if self.temperature <= 0:
                token = argmax(self.work, self.vocab)
            else:
                token = self.draw(uniform_at(self.seed, position))
        return token

    cdef int penalise(self) except -1:
        cdef float *work = self.work
        for token, value in self.bias.items():
            work[<int64_t>token] += value
        if self.repetition != 1:
            for token in set(self.recent):
                if work[<int64_t>token] > 0:
                    work[<int64_t>token] /= self.repetition
                else:
                    work[<int64_t>token] *= self.repetition
        if self.presence != 0 or self.frequency != 0:
            for token, count in self.counts.items():
                work[<int64_t>token] -= self.presence + count * self.frequency
        return 0

    cdef int forbid(self, const unsigned char[::1] mask) except -1:
        """Leave no probability to the tokens that the mask does not allow."""
        cdef int64_t token, bits = min(8 * mask.shape[0], self.vocab)
        for token in range(self.vocab):
            if token >= bits or not mask[token >> 3] >> (token & 7) & 1:
                self.work[token] = -INFINITY
        return 0

    cdef int64_t draw(self, double u) noexcept nogil:
        """A token drawn from what the filters leave."""
        cdef int64_t i, n = self.vocab, depth = 0
        cdef double total = 0, sum = 0
        cdef float top = self.work[argmax(self.work, n)]
        if 0 < self.top_k < n or self.typical_p < 1 or self.top_p < 1 or self.min_p > 0:
            n = self.filter(top)
            for i in range(n):
                total += exp((self.value(i) - top) / self.temperature)
            for i in range(n):
                sum += exp((self.value(i) - top) / self.temperature)
                if sum > u * total:
                    return <uint32_t>self.keys[i]
            return <uint32_t>self.keys[n - 1]
        for i in range(n):
            self.work[i] = (self.work[i] - top) / <float>self.temperature
        self.k.softmax(self.work, n, &top)
        for i in range(n):
            total += self.work[i]
        for i in range(n):
            sum += self.work[i]
            if sum > u * total:
                return i
        return argmax(self.work, n)

    cdef double value(self, int64_t rank) noexcept nogil:
        return self.work[<uint32_t>self.keys[rank]]

    cdef int64_t filter(self, float top) noexcept nogil:
        """Leave the kept tokens at the front of keys, best first; their number.

        Nearly always they are among those with a logit near the highest; only else all are looked at.
        """
        cdef int64_t n = self.gather(top - NEAR), kept
        if n < self.vocab and self.typical_p >= 1 and self.top_k <= n:
            kept = self.keep(n, top)
            if kept < n or kept == self.top_k:
                return kept
        return self.keep(self.gather(-FLT_MAX), top)

    cdef int64_t gather(self, float least) noexcept nogil:
        """Put the tokens with at least this logit into keys; their number."""
        cdef int64_t i, n = 0
        for i in range(self.vocab):
            if self.work[i] >= least:
                self.keys[n] = key_of(self.work[i], i)
                n += 1
        return n

    cdef int64_t keep(self, int64_t n, float top) noexcept nogil:
        """Apply the filters to the first n of keys."""
        cdef int64_t i, depth = 0
        cdef double norm, sum = 0
        if 0 < self.top_k < n:
            for i in range(self.top_k):
                sort_first(self.keys, n, self.borders, &depth, i)
            n, depth = self.top_k, 0
        if self.typical_p < 1:
            n, depth = self.typical(n), 0
        norm = self.normaliser(n, top)
        for i in range(n):
            sort_first(self.keys, n, self.borders, &depth, i)
            if self.value(i) < self.value(0) + log(self.min_p):
                return i
            sum += exp(self.value(i) - norm)
            if sum >= self.top_p and self.top_p < 1:
                return i + 1
        return n

    cdef double normaliser(self, int64_t n, float top) noexcept nogil:
        """log(sum(exp)) of what top_k and typical_p left: the first n of keys, or all tokens."""
        cdef int64_t i
        cdef double sum = 0
        if self.top_k == 0 and self.typical_p >= 1:
            return self.k.logsumexp(self.work, self.vocab)
        for i in range(n):
            sum += exp(self.value(i) - top)
        return top + log(sum)

    cdef int64_t typical(self, int64_t n) noexcept nogil:
        """Keep the tokens whose information is nearest to the entropy (Meister et al. 2022)."""
        cdef int64_t i, token, depth = 0
        cdef float top = self.work[<uint32_t>self.keys[0]]
        cdef double norm, entropy = 0, p, sum = 0
        for i in range(n):
            top = max(top, <float>self.value(i))
        for i in range(n):
            sum += exp(self.value(i) - top)
        norm, sum = top + log(sum), 0
        for i in range(n):
            p = exp(self.value(i) - norm)
            entropy -= p * (self.value(i) - norm)
        for i in range(n):
            token = <uint32_t>self.keys[i]
            self.keys[i] = key_of(-<float>fabs(norm - self.work[token] - entropy), token)
        for i in range(n):
            sort_first(self.keys, n, self.borders, &depth, i)
            sum += exp(self.value(i) - norm)
            if sum > self.typical_p:
                n = i + 1
                break
        for i in range(n):
            token = <uint32_t>self.keys[i]
            self.keys[i] = key_of(self.work[token], token)
        return n


def read_out(const float[::1] logits, int64_t token, int64_t k):
    """The log probability of `token`, and the k (0 to 32) most probable tokens with theirs, best first.

    Raises:
        EngineFailed: a logit is not finite.
    """
    cdef uint64_t best[32]
    cdef uint64_t key
    cdef int64_t n = logits.shape[0], found = 0, i, at
    cdef const ck_kernels *kernel = kernels()
    cdef double norm
    k = min(k, n, MAX_CANDIDATES)
    with nogil:
        if not finite(&logits[0], n):
            refuse()
        norm = kernel.logsumexp(&logits[0], n)
        for i in range(n if k else 0):
            key = key_of(logits[i], i)
            if found == k and key > best[k - 1]:
                continue
            at = found if found < k else k - 1
            found = min(found + 1, k)
            while at and best[at - 1] > key:
                best[at] = best[at - 1]
                at -= 1
            best[at] = key
    ids = [<uint32_t>best[i] for i in range(k)]
    return logits[token] - norm, [(i, logits[i] - norm) for i in ids]
