// Counts the heap allocations of a program. It is preloaded (LD_PRELOAD) in front of the allocator, which works as
// usual.
//
// The counters are in the file that HEAP_COUNTS names. The file is mapped, so other processes can read it while the
// program runs. It contains three unsigned 64-bit numbers: the allocations so far (realloc counts as one), the bytes in
// use as the allocator has rounded them, and the blocks in use.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

// glibc's allocator under its own names, because a lookup would allocate.
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

struct counts {
  _Atomic uint64_t allocations, bytes, blocks;
};

// Counts the allocations before the file is mapped. They are then added to the file.
static struct counts early;
static struct counts *counts = &early;

__attribute__((constructor)) static void map_counts(void) {
  const char *path = getenv("HEAP_COUNTS");
  if (!path) return;
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  if (ftruncate(file, sizeof early) == 0) {
    void *mapped = mmap(NULL, sizeof early, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) {
      *(struct counts *)mapped = early;
      counts = mapped;
    }
  }
  close(file);
}

static void *allocated(void *block) {
  if (!block) return block;
  atomic_fetch_add_explicit(&counts->allocations, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&counts->blocks, 1, memory_order_relaxed);
  // The word before each block belongs to the allocator.
  atomic_fetch_add_explicit(&counts->bytes, malloc_usable_size(block) + sizeof(size_t), memory_order_relaxed);
  return block;
}

static void released(void *block) {
  if (!block) return;
  atomic_fetch_sub_explicit(&counts->blocks, 1, memory_order_relaxed);
  atomic_fetch_sub_explicit(&counts->bytes, malloc_usable_size(block) + sizeof(size_t), memory_order_relaxed);
}

void *malloc(size_t size) { return allocated(__libc_malloc(size)); }

void *calloc(size_t count, size_t size) { return allocated(__libc_calloc(count, size)); }

void *realloc(void *block, size_t size) {
  size_t before = block ? malloc_usable_size(block) + sizeof(size_t) : 0;
  void *moved = __libc_realloc(block, size);
  if (block && (moved || size == 0)) {
    atomic_fetch_sub_explicit(&counts->blocks, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&counts->bytes, before, memory_order_relaxed);
  }
  return allocated(moved);
}

void *memalign(size_t alignment, size_t size) { return allocated(__libc_memalign(alignment, size)); }

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **target, size_t alignment, size_t size) {
  void *block = memalign(alignment, size);
  if (!block) return ENOMEM;
  *target = block;
  return 0;
}

void free(void *block) {
  released(block);
  __libc_free(block);
}
