/* A pool of threads that run a program: a list of operations, each cut into chunks.
 *
 * Chunks of one operation run in any order on any thread; an operation begins when all chunks of the one
 * before are done. A thread that the system has taken away delays only the chunk it holds. An operation
 * of one chunk runs on the thread that finished the one before, without waking anybody.
 *
 * Everything threads agree on is one word, the ticket: run (24 bits), operation (20), chunks left (20).
 * Taking a chunk is a compare-and-swap of the ticket, so a late thread cannot take what is over.
 */
#ifndef CK_POOL_H
#define CK_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { CK_CHUNKS_MAX = (1 << 20) - 1, CK_SPIN_NANOSECONDS = 30000 };

/* chunks(args, batch) is asked once before the operation begins; 0 skips it. */
typedef struct {
    int64_t (*chunks)(void *args, void *batch);
    void (*run)(void *args, void *batch, int64_t chunk, int thread);
    void *args;
    int poll; /* look at the cancel flag before it */
} ck_op;

typedef struct ck_pool ck_pool;
typedef struct { ck_pool *pool; int number; pthread_t thread; } ck_worker;

struct ck_pool {
    _Atomic uint64_t ticket;
    char apart[56];
    _Atomic int64_t pending; /* chunks of the current operation that are not done */
    _Atomic int asleep, closing, cancelled;
    const ck_op *_Atomic ops;
    _Atomic int64_t count;
    void *_Atomic batch;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int threads;
    ck_worker workers[];
};

#define CK_TICKET(run, op, left) ((uint64_t)(run) << 40 | (uint64_t)(op) << 20 | (uint64_t)(left))
#define CK_RUN(ticket) ((ticket) >> 40)
#define CK_OP(ticket) ((int64_t)((ticket) >> 20 & 0xfffff))
#define CK_LEFT(ticket) ((int64_t)((ticket) & 0xfffff))

static void ck_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t ck_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Publish a new ticket and wake whoever sleeps. */
static void ck_pool_move(ck_pool *pool, uint64_t ticket)
{
    atomic_store(&pool->ticket, ticket);
    if (atomic_load(&pool->asleep)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->moved);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Wait until the ticket's run or operation is not the seen one's: spin a little, then sleep. */
static void ck_pool_wait(ck_pool *pool, uint64_t seen)
{
    int64_t until = 0;
    for (int i = 0;; i++) {
        if (atomic_load_explicit(&pool->ticket, memory_order_acquire) >> 20 != seen >> 20) return;
        if (i % 64 == 63) {
            int64_t now = ck_nanoseconds();
            if (!until) until = now + CK_SPIN_NANOSECONDS;
            else if (now > until) break;
        }
        ck_pause();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    while (atomic_load(&pool->ticket) >> 20 == seen >> 20 && !atomic_load(&pool->closing))
        pthread_cond_wait(&pool->moved, &pool->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* Go to operation `op`, running those of one chunk here; past the last one the run is over. */
static void ck_pool_advance(ck_pool *pool, uint64_t run, int64_t op, int thread)
{
    const ck_op *ops = atomic_load(&pool->ops);
    void *batch = atomic_load(&pool->batch);
    int64_t count = atomic_load(&pool->count), chunks = 0;
    for (; op < count; op++) {
        if (ops[op].poll && atomic_load(&pool->cancelled)) op = count;
        if (op == count) break;
        chunks = ops[op].chunks(ops[op].args, batch);
        if (chunks > 1) break;
        if (chunks == 1) ops[op].run(ops[op].args, batch, 0, thread);
    }
    atomic_store(&pool->pending, chunks);
    ck_pool_move(pool, CK_TICKET(run, op, op < count ? chunks : 0));
}

/* Take part in a run until it is over. */
static void ck_pool_help(ck_pool *pool, uint64_t run, int thread)
{
    for (;;) {
        uint64_t ticket = atomic_load_explicit(&pool->ticket, memory_order_acquire);
        int64_t op = CK_OP(ticket), left = CK_LEFT(ticket);
        if (CK_RUN(ticket) != run || op >= atomic_load(&pool->count)) return;
        if (!left) {
            ck_pool_wait(pool, ticket);
            continue;
        }
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1)) continue;
        const ck_op *now = atomic_load(&pool->ops) + op;
        now->run(now->args, atomic_load(&pool->batch), left - 1, thread);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) ck_pool_advance(pool, run, op + 1, thread);
    }
}

static void *ck_pool_worker(void *arg)
{
    ck_worker *self = arg;
    ck_pool *pool = self->pool;
    while (!atomic_load(&pool->closing)) {
        uint64_t ticket = atomic_load(&pool->ticket);
        ck_pool_help(pool, CK_RUN(ticket), self->number);
        if (CK_RUN(atomic_load(&pool->ticket)) == CK_RUN(ticket)) ck_pool_wait(pool, ticket);
    }
    return NULL;
}

/* Run a program on the calling thread and the pool's; returns when it is over or cancelled. */
static void ck_pool_run(ck_pool *pool, const ck_op *ops, int64_t count, void *batch)
{
    uint64_t run = (CK_RUN(atomic_load(&pool->ticket)) + 1) & 0xffffff;
    atomic_store(&pool->ops, ops);
    atomic_store(&pool->count, count);
    atomic_store(&pool->batch, batch);
    ck_pool_advance(pool, run, 0, 0);
    ck_pool_help(pool, run, 0);
}

static void ck_pool_cancel(ck_pool *pool, int cancelled) { atomic_store(&pool->cancelled, cancelled); }

static int ck_pool_cancelled(ck_pool *pool) { return atomic_load(&pool->cancelled); }

static void ck_pool_close(ck_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->closing, 1);
    pthread_cond_broadcast(&pool->moved);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->moved);
    free(pool);
}

/* A pool of `threads`, of which the caller of ck_pool_run is one; NULL if they cannot be started. */
static ck_pool *ck_pool_open(int threads)
{
    ck_pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof *pool->workers);
    if (!pool) return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->moved, NULL);
    pool->threads = 1;
    for (int i = 1; i < threads; i++) {
        pool->workers[i] = (ck_worker){.pool = pool, .number = i};
        if (pthread_create(&pool->workers[i].thread, NULL, ck_pool_worker, &pool->workers[i])) {
            ck_pool_close(pool);
            return NULL;
        }
        pool->threads++;
    }
    return pool;
}

#endif
