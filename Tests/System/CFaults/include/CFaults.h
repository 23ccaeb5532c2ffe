// A file system for SQLite (a VFS) in front of the real one. It records what is written and synchronised, and fails or stalls on demand.
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
// From now on, operation `at` (counted from 1, of the kinds in `mask`) fails, and `count` - 1 after it. `code` is an errno value: ENOSPC is a
// full disk, any other an I/O error. A synchronisation that fails discards what was not synchronised.
void faults_fail(faults *faults, int mask, int64_t at, int64_t count, int code);
// As above, all such operations on files whose names end so.
void faults_fail_in(faults *faults, const char *suffix, int mask, int code);
// Ends failures.
void faults_clear(faults *faults);
// From now on, synchronising takes so long.
void faults_stall(faults *faults, int milliseconds);
// Number of operations of the kinds in `mask` since the last `faults_fail`.
int64_t faults_seen(faults *faults);
// Number of failures since the last `faults_fail`.
int64_t faults_failed(faults *faults);
// Begins to record.
void faults_record(faults *faults);
// Number of recorded operations.
int64_t faults_recorded(faults *faults);
// Number of recorded operations up to and with the last synchronisation, before operation `end`, of a file whose name ends so; 0: there is none.
int64_t faults_synchronised(faults *faults, int64_t end, const char *suffix);
// Writes the files as they could be after a power failure behind the first `end` operations: what was synchronised is there, and each page of
// the rest is lost or not, as `seed` determines (0: everything is lost). `/old` at the beginning of paths is replaced by `/new`.
int faults_replay(faults *faults, int64_t end, uint64_t seed, const char *old, const char *new);

#endif
