/// Why a store cannot be opened.
package enum StoreError: Error, Equatable, CustomStringConvertible {
  /// Another process has the store open.
  case inUse(path: String)
  /// A newer program has written the store.
  case newerSchema(path: String, found: Int, known: Int)
  /// The file is an SQLite database of another program.
  case foreign(path: String)
  /// The file does not have the content that was written.
  case damaged(path: String, reason: String)
  /// A system call failed.
  case failed(path: String, reason: String)

  /// Whether a start can succeed only after the file itself was replaced.
  package var concernsFile: Bool {
    switch self {
    case .inUse, .failed: false
    case .newerSchema, .foreign, .damaged: true
    }
  }

  /// The part of the description without the path.
  var reason: String {
    switch self {
    case .damaged(_, let reason), .failed(_, let reason): reason
    default: description
    }
  }

  package var description: String {
    switch self {
    case .inUse(let path):
      "store '\(path)' is open in another process: stop that process, or set 'store.path' to another file"
    case .newerSchema(let path, let found, let known):
      """
      store '\(path)' has schema \(found), and this program knows schemas up to \(known): run the program that wrote it, or restore a \
      backup that is older
      """
    case .foreign(let path):
      "'\(path)' is a database of another program: set 'store.path' to another file"
    case .damaged(let path, let reason):
      """
      store '\(path)' is damaged (\(reason)): export what is readable with 'drawbridge store export \(path)', then rename the file or \
      restore a backup
      """
    case .failed(let path, let reason): "store '\(path)' cannot be opened: \(reason)"
    }
  }
}
