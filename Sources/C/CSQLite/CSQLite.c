#include "CSQLite.h"

#include <stddef.h>

static int committed(void *pages, sqlite3 *database, const char *name, int count) {
  (void)database;
  (void)name;
  *(int *)pages = count;
  return SQLITE_OK;
}

void csqlite_count_log_pages(sqlite3 *database, int *pages) { sqlite3_wal_hook(database, committed, pages); }

void csqlite_keep_log_on_close(sqlite3 *database, int is_kept) {
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, is_kept, NULL);
}

int csqlite_bind_static_blob(sqlite3_stmt *statement, int index, const void *bytes, sqlite3_uint64 count) {
  // A null pointer would bind NULL instead of an empty blob.
  return sqlite3_bind_blob64(statement, index, bytes ? bytes : "", count, SQLITE_STATIC);
}

int csqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, int count) {
  return sqlite3_bind_text(statement, index, text, count, SQLITE_TRANSIENT);
}
