// A disk that fails, for the files below DISK_FAULTS_FOLDER. disk_faults.py preloads it, and writes the planned
// failures into the file DISK_FAULTS.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, OPEN = 8 };

// Operation `at` of the kinds in `mask`, counted from 1, fails with `code`, and so do the next `count` - 1 operations.
// While `stall` is set, no synchronisation ends.
static struct control {
  int64_t mask, at, count, code, stall, seen, failed, stalls;
} *control;

// The content before a write that is not synchronised yet.
struct image {
  struct image *previous;
  off64_t offset, size;
  size_t length;
  char bytes[];
};

#define FILES 65536
static char tracked[FILES];
static struct image *images[FILES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const char *folder;

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_sync)(int);
static int (*real_truncate)(int, off64_t);
static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);

__attribute__((constructor)) static void prepare(void) {
  real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
  real_write = dlsym(RTLD_NEXT, "write");
  real_sync = dlsym(RTLD_NEXT, "fdatasync");
  real_truncate = dlsym(RTLD_NEXT, "ftruncate64");
  real_open = dlsym(RTLD_NEXT, "open64");
  real_close = dlsym(RTLD_NEXT, "close");
  folder = getenv("DISK_FAULTS_FOLDER");
  int file = real_open(getenv("DISK_FAULTS"), O_RDWR | O_CLOEXEC);
  control = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (control == MAP_FAILED) abort();
  real_close(file);
}

static int is_tracked(int file) { return file >= 0 && file < FILES && tracked[file]; }

// Sets errno and returns 1 if this operation fails.
static int fails(int kind) {
  if (!(__atomic_load_n(&control->mask, __ATOMIC_SEQ_CST) & kind)) return 0;
  int64_t number = __atomic_add_fetch(&control->seen, 1, __ATOMIC_SEQ_CST);
  if (number < control->at || number - control->at >= control->count) return 0;
  __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
  errno = (int)control->code;
  return 1;
}

static void forget(int file) {
  while (images[file]) {
    struct image *previous = images[file]->previous;
    free(images[file]);
    images[file] = previous;
  }
}

static void keep(int file, size_t length, off64_t offset) {
  struct stat status;
  if (fstat(file, &status) != 0) return;
  struct image *i = calloc(1, sizeof *i + length);
  i->offset = offset;
  i->size = status.st_size;
  i->length = length;
  if (pread64(file, i->bytes, length, offset) < 0) i->length = 0;
  i->previous = images[file];
  images[file] = i;
}

// Like the kernel, drops the pages that could not be written.
static void discard(int file) {
  for (struct image *i = images[file]; i; i = i->previous) {
    if (i->length) real_pwrite(file, i->bytes, i->length, i->offset);
    real_truncate(file, i->size);
  }
  forget(file);
}

int open64(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  int is_ours = folder && strncmp(path, folder, strlen(folder)) == 0 && !strstr(path, ".lock");
  if (is_ours && !(flags & O_DIRECTORY) && fails(OPEN)) return -1;
  int file = real_open(path, flags, mode);
  if (file >= 0 && file < FILES) tracked[file] = (char)(is_ours && !(flags & O_DIRECTORY));
  return file;
}

int close(int file) {
  if (is_tracked(file)) {
    pthread_mutex_lock(&mutex);
    forget(file);
    tracked[file] = 0;
    pthread_mutex_unlock(&mutex);
  }
  return real_close(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t offset) {
  if (!is_tracked(file)) return real_pwrite(file, bytes, length, offset);
  if (fails(WRITE)) return -1;
  pthread_mutex_lock(&mutex);
  keep(file, length, offset);
  ssize_t result = real_pwrite(file, bytes, length, offset);
  pthread_mutex_unlock(&mutex);
  return result;
}

static int synchronise(int file) {
  if (!is_tracked(file)) return real_sync(file);
  if (__atomic_load_n(&control->stall, __ATOMIC_SEQ_CST)) {
    __atomic_add_fetch(&control->stalls, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&control->stall, __ATOMIC_SEQ_CST)) usleep(1000);
  }
  int result = 0;
  pthread_mutex_lock(&mutex);
  if (fails(SYNC)) {
    int code = errno;
    discard(file);
    errno = code;
    result = -1;
  } else {
    // The tests never restart the machine, so there is no need to wait for the real disk.
    forget(file);
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

int fdatasync(int file) { return synchronise(file); }
int fsync(int file) { return synchronise(file); }

int ftruncate64(int file, off64_t size) {
  if (!is_tracked(file)) return real_truncate(file, size);
  if (fails(TRUNCATE)) return -1;
  pthread_mutex_lock(&mutex);
  struct stat status;
  if (fstat(file, &status) == 0 && size < status.st_size) keep(file, (size_t)(status.st_size - size), size);
  int result = real_truncate(file, size);
  pthread_mutex_unlock(&mutex);
  return result;
}
