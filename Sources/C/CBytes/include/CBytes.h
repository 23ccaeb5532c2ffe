#ifndef CBYTES_H
#define CBYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Whether `bytes` are complete, valid UTF-8 (RFC 3629): 1 or 0. Returns -1 if this processor cannot look up sixteen
/// bytes at once (on x86-64, if it lacks SSSE3). `bytes` must not be NULL.
int cbytes_is_utf8(const uint8_t *bytes, size_t count);

/// The index of the first `byte`, or `count` if there is none. `bytes` must not be NULL.
size_t cbytes_find(const uint8_t *bytes, size_t count, uint8_t byte);

/// Like realloc, but ends the process if there is no memory. The kernel moves a large block to other addresses without
/// copying it. `memory` may be NULL. The result must be freed with `free`.
void *cbytes_reallocate(void *memory, size_t size);

/// `free`. `memory` may be NULL.
void cbytes_free(void *memory);

#endif
