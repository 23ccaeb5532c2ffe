// A file system for SQLite (a VFS) in front of the real file system. It records writes and synchronisations, and fails
// or stalls on demand.
#ifndef CFAULTS_H
#define CFAULTS_H

#include <stdint.h>

typedef struct faults faults;

// Operations, as bits.
#define FAULTS_WRITE 1
#define FAULTS_SYNC 2
#define FAULTS_TRUNCATE 4
#define FAULTS_OPEN 8
#define FAULTS_DELETE 16

// Registers a file system of this name. It exists until the process ends.
faults *faults_register(const char *name);
// From now on, operation `at` (counted from 1, of the kinds in `mask`) fails, and `count` - 1 operations after it.
// `code` is an errno value: ENOSPC is a full disk, any other value an I/O error. A failed synchronisation discards the
// data that was not synchronised.
void faults_fail(faults *faults, int mask, int64_t at, int64_t count, int code);
// Like `faults_fail`, for all such operations on files whose names have this suffix.
void faults_fail_in(faults *faults, const char *suffix, int mask, int code);
// Ends the failures.
void faults_clear(faults *faults);
// From now on, each synchronisation takes this long.
void faults_stall(faults *faults, int milliseconds);
// Number of operations of the kinds in `mask` since the last `faults_fail`.
int64_t faults_seen(faults *faults);
// Number of failures since the last `faults_fail`.
int64_t faults_failed(faults *faults);
// Begins to record operations.
void faults_record(faults *faults);
// Number of recorded operations.
int64_t faults_recorded(faults *faults);
// Number of recorded operations up to the last synchronisation before operation `end` of a file whose name has this
// suffix, including it. 0 if there is none.
int64_t faults_synchronised(faults *faults, int64_t end, const char *suffix);
// Writes the files in a state that a power failure after the first `end` operations could leave. Synchronised data is
// there. Each other page is lost or not, as `seed` determines (all are lost if it is 0). `/old` at the beginning of
// paths is replaced by `/new`.
int faults_replay(faults *faults, int64_t end, uint64_t seed, const char *old, const char *new);

#endif
