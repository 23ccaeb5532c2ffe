/// The tables of a store.
///
///     meta      facts about the whole store, one per row
///     sessions  their names and epochs, and the last row of `changes` that belongs to a state
///     pushes    the pushes of one commit of a session, and the gaps between them
///     changes   the other entries of one commit of a session; at times, the rows of a state replace all others
///
/// A row of `pushes` is deleted when retention has dropped all of its pushes. `first` is the number of the first push
/// after the beginning of the row. `last` is the number of the last push before the end of the row, so it is below
/// `first` if the row contains only gaps. `JournalCoder` defines the bytes in `entries`.
enum StoreSchema {
  /// The value of `PRAGMA application_id`: "Drwb".
  static var applicationID: Int64 { 0x4472_7762 }

  /// Each step leads from one schema to the next. A released step never changes.
  static var steps: [String] {
    [
      """
      CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
      CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, epoch INTEGER NOT NULL,
        state INTEGER NOT NULL);
      CREATE TABLE pushes (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
        entries BLOB NOT NULL);
      CREATE TABLE changes (id INTEGER PRIMARY KEY, session INTEGER NOT NULL, entries BLOB NOT NULL);
      """
    ]
  }

  /// The names of rows in `meta`.
  enum Meta {
    static var term: String { "term" }
    /// 1 after a clean end, 0 while the store is open.
    static var isClean: String { "clean" }
    /// Identifies the run of the machine in which the store was last open.
    static var boot: String { "boot" }
    /// Earlier versions stored a time here that belongs to `boot`. The row is removed, so that an earlier version that
    /// opens the store computes the time again.
    static var start: String { "start" }
    /// The level of synchronisation of the last run.
    static var sync: String { "sync" }
    /// 1 in a backup until a gateway opens it.
    static var isBackup: String { "backup" }
    /// Changed only so that a commit has a change to synchronise.
    static var synced: String { "synced" }
    /// When a start first found that the configuration lacks the session with this id, in milliseconds since 1970.
    static func unusedSince(_ session: Int64) -> String { "unused \(session)" }
  }
}
