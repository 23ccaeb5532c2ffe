#include "CBytes.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <tmmintrin.h>
#define LOOKS_UP __attribute__((target("ssse3")))
#elif defined(__aarch64__)
#include <arm_neon.h>
#define LOOKS_UP
#else
#define IS_UNSUPPORTED
#endif

#ifndef IS_UNSUPPORTED

/// Sixteen bytes. The compiler translates the operators of this type to SSE2 or NEON, which these processors always
/// have.
typedef uint8_t block __attribute__((vector_size(16)));
#define SIZE ((size_t)16)

static inline block load(const uint8_t *bytes) {
  block result;
  memcpy(&result, bytes, SIZE);
  return result;
}

/// The bytes of `table` at the indexes; zero for an index of 255.
LOOKS_UP static inline block look_up(block table, block indexes) {
#if defined(__x86_64__)
  return (block)_mm_shuffle_epi8((__m128i)table, (__m128i)indexes);
#else
  return (block)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)indexes);
#endif
}

/// Whether every byte is below 128.
static inline bool is_ascii(block bytes) {
#if defined(__x86_64__)
  return _mm_movemask_epi8((__m128i)bytes) == 0;
#else
  return vmaxvq_u8((uint8x16_t)bytes) < 0x80;
#endif
}

static inline bool four_are_ascii(const uint8_t *bytes) {
  return is_ascii((load(bytes) | load(bytes + SIZE)) | (load(bytes + 2 * SIZE) | load(bytes + 3 * SIZE)));
}

// The possible errors in two adjacent bytes, one bit each.
enum {
  TOO_SHORT = 1 << 0,       // 11______ 0_______, 11______ 11______
  TOO_LONG = 1 << 1,        // 0_______ 10______
  OVERLONG_3 = 1 << 2,      // 11100000 100_____
  TOO_LARGE = 1 << 3,       // 11110100 1001____, 11110100 101_____, and any larger first byte with these
  SURROGATE = 1 << 4,       // 11101101 101_____
  OVERLONG_2 = 1 << 5,      // 1100000_ 10______
  TOO_LARGE_1000 = 1 << 6,  // 11110101 1000____, and any larger first byte with this
  OVERLONG_4 = 1 << 6,      // 11110000 1000____
  CONTINUES = 1 << 7,       // 10______ 10______: wrong unless it is the third or fourth byte of a sequence
  // Errors that do not depend on the lower half of the first byte.
  ANY_LOW = TOO_SHORT | TOO_LONG | CONTINUES,
  ABOVE_F4 = ANY_LOW | TOO_LARGE | TOO_LARGE_1000,
};

/// Returns a value other than zero if a pair whose second byte is in `bytes` is wrong. The further arguments are the
/// text one, two and three bytes earlier.
///
/// Three of the four half-bytes of a pair select entries of three tables, and an error is a bit that all three have
/// (Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte", 2021).
LOOKS_UP static inline block errors(block bytes, block before1, block before2, block before3) {
  const block by_first_high = {
      TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG,
      CONTINUES, CONTINUES, CONTINUES, CONTINUES,
      TOO_SHORT | OVERLONG_2, TOO_SHORT, TOO_SHORT | OVERLONG_3 | SURROGATE,
      TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4};
  const block by_first_low = {
      ANY_LOW | OVERLONG_3 | OVERLONG_2 | OVERLONG_4, ANY_LOW | OVERLONG_2, ANY_LOW, ANY_LOW, ANY_LOW | TOO_LARGE,
      ABOVE_F4, ABOVE_F4, ABOVE_F4, ABOVE_F4, ABOVE_F4, ABOVE_F4, ABOVE_F4, ABOVE_F4,
      ABOVE_F4 | SURROGATE, ABOVE_F4, ABOVE_F4};
  const block by_second_high = {
      TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
      TOO_LONG | OVERLONG_2 | CONTINUES | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4,
      TOO_LONG | OVERLONG_2 | CONTINUES | OVERLONG_3 | TOO_LARGE,
      TOO_LONG | OVERLONG_2 | CONTINUES | SURROGATE | TOO_LARGE,
      TOO_LONG | OVERLONG_2 | CONTINUES | SURROGATE | TOO_LARGE,
      TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT};
  block wrong = look_up(by_first_high, before1 >> 4) & look_up(by_first_low, before1 & 0x0F)
      & look_up(by_second_high, bytes >> 4);
  block must_continue = (block)(before2 >= 0xE0) | (block)(before3 >= 0xF0);
  return wrong ^ (must_continue & CONTINUES);
}

/// The errors in the first block of a text.
LOOKS_UP static inline block errors_at_start(block bytes) {
  const block by1 = {255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  const block by2 = {255, 255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  const block by3 = {255, 255, 255, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  return errors(bytes, look_up(bytes, by1), look_up(bytes, by2), look_up(bytes, by3));
}

/// The errors in any other block.
LOOKS_UP static inline block errors_at(const uint8_t *bytes) {
  return errors(load(bytes), load(bytes - 1), load(bytes - 2), load(bytes - 3));
}

/// Whether the text before `end`, in which no pair is wrong, ends inside a sequence.
static inline bool is_cut(const uint8_t *end) { return end[-1] >= 0xC0 || end[-2] >= 0xE0 || end[-3] >= 0xF0; }

static inline bool is_zero(block bytes) {
  uint64_t halves[2];
  memcpy(halves, &bytes, SIZE);
  return (halves[0] | halves[1]) == 0;
}

/// Whether fewer than sixteen bytes are ASCII.
static inline bool is_short_ascii(const uint8_t *bytes, size_t count) {
  uint64_t first = 0, last = 0;
  if (count >= 8) {
    memcpy(&first, bytes, 8);
    memcpy(&last, bytes + count - 8, 8);
  } else {
    for (size_t index = 0; index < count; index++) last |= bytes[index];
  }
  return ((first | last) & 0x8080808080808080) == 0;
}

LOOKS_UP static bool is_valid(const uint8_t *bytes, size_t count) {
  // Most texts are ASCII. The last block overlaps the block before it, here and below.
  size_t index = 0;
  if (count < SIZE) {
    if (is_short_ascii(bytes, count)) return true;
  } else {
    while (count - index >= 4 * SIZE && four_are_ascii(bytes + index)) index += 4 * SIZE;
    while (count - index >= SIZE && is_ascii(load(bytes + index))) index += SIZE;
    if (count - index < SIZE && is_ascii(load(bytes + count - SIZE))) return true;
  }
  if (count < 2 * SIZE) {
    // At least one zero follows the text, so that a sequence that the end cuts off counts as too short.
    uint8_t padded[2 * SIZE] = {0};
    memcpy(padded, bytes, count);
    return is_zero(errors_at_start(load(padded)) | errors_at(padded + SIZE));
  }
  block wrong = {0};
  if (index == 0) {
    wrong = errors_at_start(load(bytes));
    index = SIZE;
  }
  while (count - index >= 4 * SIZE) {
    if (four_are_ascii(bytes + index)) {
      if (is_cut(bytes + index)) return false;
      do index += 4 * SIZE;
      while (count - index >= 4 * SIZE && four_are_ascii(bytes + index));
    } else {
      wrong |= (errors_at(bytes + index) | errors_at(bytes + index + SIZE))
          | (errors_at(bytes + index + 2 * SIZE) | errors_at(bytes + index + 3 * SIZE));
      index += 4 * SIZE;
    }
  }
  for (; count - index >= SIZE; index += SIZE) wrong |= errors_at(bytes + index);
  if (index < count) wrong |= errors_at(bytes + count - SIZE);
  return is_zero(wrong) && !is_cut(bytes + count);
}
#endif

int cbytes_is_utf8(const uint8_t *bytes, size_t count) {
#if defined(IS_UNSUPPORTED)
  return -1;
#elif defined(__x86_64__)
  return __builtin_cpu_supports("ssse3") ? is_valid(bytes, count) : -1;
#else
  return is_valid(bytes, count);
#endif
}

size_t cbytes_find(const uint8_t *bytes, size_t count, uint8_t byte) {
  const uint8_t *found = memchr(bytes, byte, count);
  return found ? (size_t)(found - bytes) : count;
}

void *cbytes_reallocate(void *memory, size_t size) {
  void *result = realloc(memory, size);
  if (result == NULL) abort();
  return result;
}

void cbytes_free(void *memory) { free(memory); }
