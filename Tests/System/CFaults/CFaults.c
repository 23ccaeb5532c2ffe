#include "CFaults.h"

#include <CSQLite.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct operation {
  int kind;
  char path[512];
  int64_t offset;
  int length;
  unsigned char *bytes;
} operation;

// The content of a page before a write that is not synchronised yet.
typedef struct image {
  int64_t offset;
  int64_t size;
  int length;
  unsigned char *bytes;
  struct image *previous;
} image;

struct faults {
  sqlite3_vfs vfs;
  sqlite3_vfs *real;
  pthread_mutex_t mutex;
  int mask, code, stall;
  int64_t at, count, seen, failed;
  int records;
  operation *operations;
  int64_t recorded, capacity;
  int last_error;
  char suffix[64];
};

typedef struct file {
  sqlite3_file base;
  faults *owner;
  char path[512];
  image *images;
  sqlite3_file *real;
} file;

static int ends(const char *path, const char *suffix) {
  size_t length = strlen(path), end = strlen(suffix);
  return length >= end && strcmp(path + length - end, suffix) == 0;
}

static int fails(faults *f, int kind, const char *path) {
  pthread_mutex_lock(&f->mutex);
  int result = 0;
  if ((f->mask & kind) && ends(path, f->suffix)) {
    f->seen++;
    if (f->seen >= f->at && f->seen - f->at < f->count) {
      f->failed++;
      f->last_error = f->code;
      result = f->code;
    }
  }
  pthread_mutex_unlock(&f->mutex);
  return result;
}

static void record(faults *f, int kind, const char *path, int64_t offset, const void *bytes, int length) {
  pthread_mutex_lock(&f->mutex);
  if (f->records) {
    if (f->recorded == f->capacity) {
      f->capacity = f->capacity ? f->capacity * 2 : 256;
      f->operations = realloc(f->operations, (size_t)f->capacity * sizeof(operation));
    }
    operation *o = &f->operations[f->recorded++];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    snprintf(o->path, sizeof o->path, "%s", path);
    o->offset = offset;
    o->length = length;
    if (bytes) {
      o->bytes = malloc((size_t)length);
      memcpy(o->bytes, bytes, (size_t)length);
    }
  }
  pthread_mutex_unlock(&f->mutex);
}

static void forget(file *p) {
  while (p->images) {
    image *previous = p->images->previous;
    free(p->images->bytes);
    free(p->images);
    p->images = previous;
  }
}

static void keep(file *p, sqlite3_int64 offset, int length) {
  image *i = calloc(1, sizeof *i);
  sqlite3_int64 size = 0;
  p->real->pMethods->xFileSize(p->real, &size);
  i->offset = offset;
  i->size = size;
  i->length = length;
  i->bytes = calloc(1, (size_t)length + 1);
  if (length && offset < size) p->real->pMethods->xRead(p->real, i->bytes, length, offset);
  i->previous = p->images;
  p->images = i;
}

// Like the kernel, drops the pages that could not be written.
static void discard(file *p) {
  for (image *i = p->images; i; i = i->previous) {
    if (i->length) p->real->pMethods->xWrite(p->real, i->bytes, i->length, i->offset);
    p->real->pMethods->xTruncate(p->real, i->size);
  }
  forget(p);
}

static int file_close(sqlite3_file *base) {
  file *p = (file *)base;
  forget(p);
  int result = p->real->pMethods ? p->real->pMethods->xClose(p->real) : SQLITE_OK;
  free(p->real);
  return result;
}

static int file_read(sqlite3_file *base, void *bytes, int length, sqlite3_int64 offset) {
  file *p = (file *)base;
  return p->real->pMethods->xRead(p->real, bytes, length, offset);
}

static int file_write(sqlite3_file *base, const void *bytes, int length, sqlite3_int64 offset) {
  file *p = (file *)base;
  int code = fails(p->owner, FAULTS_WRITE, p->path);
  if (code) return code == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
  keep(p, offset, length);
  record(p->owner, FAULTS_WRITE, p->path, offset, bytes, length);
  return p->real->pMethods->xWrite(p->real, bytes, length, offset);
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size) {
  file *p = (file *)base;
  if (fails(p->owner, FAULTS_TRUNCATE, p->path)) return SQLITE_IOERR_TRUNCATE;
  record(p->owner, FAULTS_TRUNCATE, p->path, size, NULL, 0);
  return p->real->pMethods->xTruncate(p->real, size);
}

static int file_sync(sqlite3_file *base, int flags) {
  file *p = (file *)base;
  (void)flags;
  pthread_mutex_lock(&p->owner->mutex);
  int stall = p->owner->stall;
  pthread_mutex_unlock(&p->owner->mutex);
  if (stall) usleep((useconds_t)stall * 1000);
  if (fails(p->owner, FAULTS_SYNC, p->path)) {
    discard(p);
    return SQLITE_IOERR_FSYNC;
  }
  forget(p);
  record(p->owner, FAULTS_SYNC, p->path, 0, NULL, 0);
  return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size) {
  file *p = (file *)base;
  return p->real->pMethods->xFileSize(p->real, size);
}

static int file_lock(sqlite3_file *base, int level) {
  file *p = (file *)base;
  return p->real->pMethods->xLock(p->real, level);
}

static int file_unlock(sqlite3_file *base, int level) {
  file *p = (file *)base;
  return p->real->pMethods->xUnlock(p->real, level);
}

static int file_check(sqlite3_file *base, int *result) {
  file *p = (file *)base;
  return p->real->pMethods->xCheckReservedLock(p->real, result);
}

static int file_control(sqlite3_file *base, int operation, void *argument) {
  file *p = (file *)base;
  return p->real->pMethods->xFileControl(p->real, operation, argument);
}

static int file_sector(sqlite3_file *base) {
  file *p = (file *)base;
  return p->real->pMethods->xSectorSize(p->real);
}

static int file_properties(sqlite3_file *base) {
  file *p = (file *)base;
  return p->real->pMethods->xDeviceCharacteristics(p->real);
}

// Version 1 of the methods has no shared memory. A connection with an exclusive lock needs none.
static const sqlite3_io_methods methods = {
    1,         file_close, file_read,    file_write, file_truncate, file_sync,       file_size,
    file_lock, file_unlock, file_check,  file_control, file_sector, file_properties, 0, 0, 0, 0, 0, 0};

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *base, int flags, int *result) {
  faults *f = (faults *)vfs->pAppData;
  file *p = (file *)base;
  memset(p, 0, sizeof *p);
  if (fails(f, FAULTS_OPEN, name ? name : "")) return SQLITE_CANTOPEN;
  p->owner = f;
  if (name) snprintf(p->path, sizeof p->path, "%s", name);
  p->real = calloc(1, (size_t)f->real->szOsFile);
  int code = f->real->xOpen(f->real, name, p->real, flags, result);
  if (code != SQLITE_OK) {
    free(p->real);
    return code;
  }
  p->base.pMethods = &methods;
  return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync) {
  faults *f = (faults *)vfs->pAppData;
  if (fails(f, FAULTS_DELETE, name)) return SQLITE_IOERR_DELETE;
  record(f, FAULTS_DELETE, name, 0, NULL, 0);
  return f->real->xDelete(f->real, name, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *result) {
  faults *f = (faults *)vfs->pAppData;
  return f->real->xAccess(f->real, name, flags, result);
}

static int vfs_path(sqlite3_vfs *vfs, const char *name, int size, char *result) {
  faults *f = (faults *)vfs->pAppData;
  return f->real->xFullPathname(f->real, name, size, result);
}

static int vfs_random(sqlite3_vfs *vfs, int count, char *bytes) {
  faults *f = (faults *)vfs->pAppData;
  return f->real->xRandomness(f->real, count, bytes);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds) {
  faults *f = (faults *)vfs->pAppData;
  return f->real->xSleep(f->real, microseconds);
}

static int vfs_time(sqlite3_vfs *vfs, double *result) {
  faults *f = (faults *)vfs->pAppData;
  return f->real->xCurrentTime(f->real, result);
}

static int vfs_error(sqlite3_vfs *vfs, int size, char *text) {
  (void)size;
  (void)text;
  return ((faults *)vfs->pAppData)->last_error;
}

faults *faults_register(const char *name) {
  faults *f = calloc(1, sizeof *f);
  pthread_mutex_init(&f->mutex, NULL);
  f->real = sqlite3_vfs_find(NULL);
  f->vfs.iVersion = 1;
  f->vfs.szOsFile = sizeof(file);
  f->vfs.mxPathname = f->real->mxPathname;
  f->vfs.zName = strdup(name);
  f->vfs.pAppData = f;
  f->vfs.xOpen = vfs_open;
  f->vfs.xDelete = vfs_delete;
  f->vfs.xAccess = vfs_access;
  f->vfs.xFullPathname = vfs_path;
  f->vfs.xRandomness = vfs_random;
  f->vfs.xSleep = vfs_sleep;
  f->vfs.xCurrentTime = vfs_time;
  f->vfs.xGetLastError = vfs_error;
  return sqlite3_vfs_register(&f->vfs, 0) == SQLITE_OK ? f : NULL;
}

void faults_fail(faults *f, int mask, int64_t at, int64_t count, int code) {
  pthread_mutex_lock(&f->mutex);
  f->mask = mask;
  f->at = at;
  f->count = count;
  f->code = code;
  f->seen = f->failed = 0;
  f->suffix[0] = 0;
  pthread_mutex_unlock(&f->mutex);
}

void faults_fail_in(faults *f, const char *suffix, int mask, int code) {
  faults_fail(f, mask, 1, INT64_MAX, code);
  pthread_mutex_lock(&f->mutex);
  snprintf(f->suffix, sizeof f->suffix, "%s", suffix);
  pthread_mutex_unlock(&f->mutex);
}

void faults_clear(faults *f) {
  pthread_mutex_lock(&f->mutex);
  f->mask = 0;
  pthread_mutex_unlock(&f->mutex);
}

void faults_stall(faults *f, int milliseconds) {
  pthread_mutex_lock(&f->mutex);
  f->stall = milliseconds;
  pthread_mutex_unlock(&f->mutex);
}

static int64_t locked(faults *f, int64_t *value) {
  pthread_mutex_lock(&f->mutex);
  int64_t result = *value;
  pthread_mutex_unlock(&f->mutex);
  return result;
}

int64_t faults_seen(faults *f) { return locked(f, &f->seen); }
int64_t faults_failed(faults *f) { return locked(f, &f->failed); }
int64_t faults_recorded(faults *f) { return locked(f, &f->recorded); }

void faults_record(faults *f) {
  pthread_mutex_lock(&f->mutex);
  f->records = 1;
  pthread_mutex_unlock(&f->mutex);
}

static uint64_t draw(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Whether a later synchronisation of the same file, before `end`, has made the operation durable.
static int is_synchronised(faults *f, int64_t index, int64_t end) {
  for (int64_t i = index + 1; i < end; i++)
    if (f->operations[i].kind == FAULTS_SYNC && strcmp(f->operations[i].path, f->operations[index].path) == 0) return 1;
  return 0;
}

int64_t faults_synchronised(faults *f, int64_t end, const char *suffix) {
  pthread_mutex_lock(&f->mutex);
  int64_t result = end;
  while (result > 0 && !(f->operations[result - 1].kind == FAULTS_SYNC && ends(f->operations[result - 1].path, suffix)))
    result--;
  pthread_mutex_unlock(&f->mutex);
  return result;
}

static int replay(faults *f, int64_t end, uint64_t seed, const char *old, const char *new) {
  uint64_t state = seed;
  size_t prefix = strlen(old);
  for (int64_t i = 0; i < end; i++) {
    operation *o = &f->operations[i];
    if (o->kind == FAULTS_SYNC || strncmp(o->path, old, prefix) != 0) continue;
    char path[1024];
    snprintf(path, sizeof path, "%s%s", new, o->path + prefix);
    if (o->kind == FAULTS_DELETE) {
      unlink(path);
      continue;
    }
    int descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) return errno;
    // A truncation is metadata. It survives, because the file system has a journal.
    if (o->kind == FAULTS_TRUNCATE) {
      if (ftruncate(descriptor, o->offset) != 0) return errno;
    } else if (is_synchronised(f, i, end) || (seed != 0 && draw(&state) % 2)) {
      if (pwrite(descriptor, o->bytes, (size_t)o->length, o->offset) != o->length) return errno;
    }
    close(descriptor);
  }
  return 0;
}

int faults_replay(faults *f, int64_t end, uint64_t seed, const char *old, const char *new) {
  // The store still runs, and its writes may move the array of operations in memory.
  pthread_mutex_lock(&f->mutex);
  int result = replay(f, end, seed, old, new);
  pthread_mutex_unlock(&f->mutex);
  return result;
}
