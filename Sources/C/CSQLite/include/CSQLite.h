// SQLite, and functions for the parts of its interface that Swift cannot call.
#ifndef CSQLITE_H
#define CSQLITE_H

#include <sqlite3.h>

// Keeps the number of pages of the write-ahead log in `*pages` from now on. The number is current after every commit.
void csqlite_count_log_pages(sqlite3 *database, int *pages);
// Binds bytes that stay valid until the statement is reset.
int csqlite_bind_static_blob(sqlite3_stmt *statement, int index, const void *bytes, sqlite3_uint64 count);
// Binds text, which is copied.
int csqlite_bind_text(sqlite3_stmt *statement, int index, const char *text, int count);
// Sets whether closing the database leaves its write-ahead log in place. Otherwise the pages of the log are copied to
// the database, and the log is removed.
void csqlite_keep_log_on_close(sqlite3 *database, int is_kept);

#endif
