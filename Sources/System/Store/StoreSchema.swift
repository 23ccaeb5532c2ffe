/// The tables of a store.
///
///     meta      one row for each fact about the whole store
///     sessions  their names and epochs, and the last row of `changes` that is of a state
///     pushes    the pushes of one commit of a session, and the gaps between them
///     changes   the other entries of one commit of a session; from time to time all are replaced by those of its state
///
/// The rows of `pushes` are deleted when retention has dropped all their pushes. `first` and `last` are the numbers of the first push at or
/// after, and the last push at or before the row. The bytes in `entries` are those of `JournalCoder`.
enum StoreSchema {
  /// In `PRAGMA application_id`: "Drwb".
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

  /// Rows of `meta`.
  enum Meta {
    static var term: String { "term" }
    /// 1 after an orderly end, 0 while the store is open.
    static var isClean: String { "clean" }
    /// Identifies the running of the machine in which the store was open last.
    static var boot: String { "boot" }
    /// The time of the wall in milliseconds at the start of the machine that `boot` identifies.
    static var start: String { "start" }
    /// The level of synchronisation of the last run.
    static var sync: String { "sync" }
    /// 1 in a backup until it is opened.
    static var isBackup: String { "backup" }
    /// Changed in a commit that is synchronised, for that purpose.
    static var synced: String { "synced" }
    /// When a start first found that the configuration does not have the session with this id, in milliseconds of UNIX time.
    static func unusedSince(_ session: Int64) -> String { "unused \(session)" }
  }
}
