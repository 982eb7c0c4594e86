/* Weights between the row-major layout of checkpoint files and the engine's groups of eight rows.
 *
 * The bits stay as stored; only their order changes. A group holds, in this order:
 *   F32, F16: for each column the eight rows' values.
 *   BF16: for each pair of columns the eight rows' two values.
 *   Q8_0: for each block of 32 columns the eight scales d (f16), then for each pair of columns the eight
 *   rows' two quants. Q4_0, Q4_1: the eight d, for Q4_1 the eight minima m (f16), then for each 8 columns
 *   the eight rows' quants, as two 16-bit numbers: columns 0 2 4 6 and 1 3 5 7, lowest bits first.
 * Block encodings are ggml's: Q8_0 = d, int8[32]; Q4_0 = d, nibbles[16]; Q4_1 = d, m, nibbles[16], where
 * byte i holds column i in its low and column i + 16 in its high half.
 */
#ifndef CK_PACK_H
#define CK_PACK_H

#include "ck.h"
#include <string.h>

/* A dtype's unit: `cols` columns of a row, stored as `head` bytes of f16 scales, then `body` bytes, of
 * which `piece` stay together in a group. */
typedef struct { int cols, head, body, piece; } ck_unit;

static ck_unit ck_unit_of(int32_t dtype)
{
    switch (dtype) {
    case CK_F32: return (ck_unit){1, 0, 4, 4};
    case CK_F16: return (ck_unit){1, 0, 2, 2};
    case CK_BF16: return (ck_unit){2, 0, 4, 4};
    case CK_Q8_0: return (ck_unit){CK_BLOCK, 2, 32, 2};
    case CK_Q4_0: return (ck_unit){CK_BLOCK, 2, 16, 4};
    default: return (ck_unit){CK_BLOCK, 4, 16, 4};
    }
}

static size_t ck_row_bytes(int32_t dtype, int64_t cols)
{
    ck_unit unit = ck_unit_of(dtype);
    return (size_t)(cols / unit.cols) * (unit.head + unit.body);
}

/* The low nibbles of eight bytes, one column each: column c goes to bits 16*(c%2) + 4*(c/2); and back. */
static uint32_t ck_squeeze(uint64_t x)
{
    uint64_t even = x & 0x000f000f000f000f, odd = x >> 8 & 0x000f000f000f000f;
    even |= even >> 12 | even >> 24 | even >> 36;
    odd |= odd >> 12 | odd >> 24 | odd >> 36;
    return (uint32_t)(even & 0xffff) | (uint32_t)(odd & 0xffff) << 16;
}

static uint64_t ck_spread(uint32_t word)
{
    uint64_t even = word & 0xffff, odd = word >> 16;
    even |= even << 12 | even << 24 | even << 36;
    odd |= odd << 12 | odd << 24 | odd << 36;
    return (even & 0x000f000f000f000f) | (odd & 0x000f000f000f000f) << 8;
}

/* The 4-bit quants of a block between the file's order of nibbles and the engine's. */
static void ck_pack_q4(const uint8_t *from, uint8_t *to)
{
    uint64_t bytes[2];
    memcpy(bytes, from, 16);
    uint32_t words[4] = {ck_squeeze(bytes[0]), ck_squeeze(bytes[1]), ck_squeeze(bytes[0] >> 4),
                         ck_squeeze(bytes[1] >> 4)};
    memcpy(to, words, 16);
}

static void ck_unpack_q4(const uint8_t *from, uint8_t *to)
{
    uint32_t words[4];
    memcpy(words, from, 16);
    uint64_t bytes[2] = {ck_spread(words[0]) | ck_spread(words[2]) << 4,
                         ck_spread(words[1]) | ck_spread(words[3]) << 4};
    memcpy(to, bytes, 16);
}

/* Copy `size` bytes of one row between its own order and lane `lane` of a group, `piece` by `piece`. */
static void ck_move(uint8_t *group, int lane, uint8_t *row, int size, int piece, int into_group)
{
    for (int i = 0; i < size; i += piece) {
        uint8_t *cell = group + 8 * i + lane * piece, *to = into_group ? cell : row + i;
        const uint8_t *from = into_group ? row + i : cell;
        if (piece == 4) memcpy(to, from, 4);
        else memcpy(to, from, 2);
    }
}

static void ck_move_row(int32_t dtype, int64_t cols, uint8_t *group, int lane, uint8_t *row, int into_group)
{
    ck_unit unit = ck_unit_of(dtype);
    int nibbles = dtype == CK_Q4_0 || dtype == CK_Q4_1;
    for (int64_t u = 0; u < cols / unit.cols; u++) {
        uint8_t quants[16], *body = nibbles ? quants : row + unit.head;
        if (nibbles && into_group) ck_pack_q4(row + unit.head, quants);
        ck_move(group, lane, row, unit.head, 2, into_group);
        ck_move(group + 8 * unit.head, lane, body, unit.body, unit.piece, into_group);
        if (nibbles && !into_group) ck_unpack_q4(quants, row + unit.head);
        row += unit.head + unit.body;
        group += 8 * (unit.head + unit.body);
    }
}

/* Rows of groups [begin, end) from `rows`, the whole matrix in row-major order. */
static void ck_pack(const ck_matrix *w, uint8_t *data, const uint8_t *rows, int64_t begin, int64_t end)
{
    size_t row_bytes = ck_row_bytes(w->dtype, w->cols);
    for (int64_t r = begin * 8; r < end * 8 && r < w->rows; r++)
        ck_move_row(w->dtype, w->cols, data + r / 8 * w->group_bytes, r % 8,
                    (uint8_t *)rows + r * row_bytes, 1);
}

static float ck_f16(const uint8_t *p)
{
    uint32_t half = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    uint32_t size = half & 0x7fff;
    union { uint32_t bits; float value; } out = {(size << 13) + (112u << 23)};
    if (size < 0x400) out.value = (float)size * 0x1p-24f;
    if (size >= 0x7c00) out.bits |= 0x7f800000;
    out.bits |= (half & 0x8000) << 16;
    return out.value;
}

/* `count` values from their own, row-major encoding to f32; a whole number of units. */
static void ck_decode(int32_t dtype, const uint8_t *from, int64_t count, float *to)
{
    ck_unit unit = ck_unit_of(dtype);
    for (int64_t u = 0; u < count / unit.cols; u++, from += unit.head + unit.body, to += unit.cols) {
        const uint8_t *body = from + unit.head;
        float d = unit.head ? ck_f16(from) : 0.0f;
        if (dtype == CK_F32)
            memcpy(to, body, 4);
        else if (dtype == CK_F16)
            *to = ck_f16(body);
        else if (dtype == CK_BF16)
            for (int i = 0; i < 2; i++) {
                uint32_t bits = (uint32_t)body[2 * i] << 16 | (uint32_t)body[2 * i + 1] << 24;
                memcpy(to + i, &bits, 4);
            }
        else if (dtype == CK_Q8_0)
            for (int i = 0; i < CK_BLOCK; i++) to[i] = d * (float)(int8_t)body[i];
        else {
            float m = dtype == CK_Q4_1 ? ck_f16(from + 2) : d * -8.0f;
            for (int i = 0; i < 16; i++) {
                to[i] = d * (float)(body[i] & 15) + m;
                to[i + 16] = d * (float)(body[i] >> 4) + m;
            }
        }
    }
}

/* Row `row` of packed weights as f32; `scratch` has room for the row in its encoding. */
static void ck_unpack_row(const ck_matrix *w, int64_t row, uint8_t *scratch, float *to)
{
    ck_move_row(w->dtype, w->cols, (uint8_t *)w->data + row / 8 * w->group_bytes, row % 8, scratch, 0);
    ck_decode(w->dtype, scratch, w->cols, to);
}

#endif
