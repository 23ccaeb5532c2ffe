import ByteStreams

/// The state of a session in words, from a document of `GET /v1/sessions` or `GET /v1/session`.
enum SessionText {
  /// `connected for 2 h`; `trying again in 12 s: connection refused`.
  static func state(of session: Document) -> String {
    let since = session.number("seconds_in_state").map { " for \(Words.age($0))" } ?? ""
    let failure = session.text("last_failure").map { ": \(Terminal.oneLine($0))" } ?? ""
    let name = session.text("state") ?? ""
    switch name {
    case "ready": return "connected\(since)"
    case "suspect": return "connected, but the upstream does not respond"
    case "replacing": return "connected; the connection is being replaced"
    case "backoff":
      let next = session.number("next_attempt_in_seconds").map { " in \(Words.age($0))" } ?? ""
      return "trying again\(next)\(failure)"
    case "parked": return "not connecting, since another attempt would fail, too\(failure)"
    case "stopped": return session.text("desired") == "down" ? "closed by an operator\(since)" : "stopped\(since)"
    case "idle": return "idle: connects when it is used"
    case "offline": return "no network\(since)"
    case "resolving", "connecting", "proxying", "securing", "upgrading", "opening": return "connecting (\(name))"
    case "closing": return "closing"
    case "no-holder": return "no holder"
    case "elsewhere": return "its holder is another gateway"
    default: return name
    }
  }

  static func queue(of session: Document) -> String {
    guard let queue = session.object("queue") else { return "-" }
    let unconfirmed = queue.integer("unconfirmed") ?? 0
    return Words.count(queue.integer("messages") ?? 0, "message")
      + ", \(Words.bytes(queue.integer("bytes") ?? 0))" + (unconfirmed > 0 ? "; \(unconfirmed) not confirmed yet" : "")
  }

  static func pushes(of session: Document) -> String {
    guard let pushes = session.object("pushes") else { return "-" }
    return
      "\(Words.grouped(pushes.integer("received") ?? 0)) received, \(Words.grouped(pushes.integer("retained") ?? 0)) kept"
      + " (\(Words.bytes(pushes.integer("bytes") ?? 0)))"
  }

  /// A line per session, in columns.
  static func table(_ sessions: [Document]) -> [String] {
    var rows = [["SESSION", "QUEUED", "PUSHES", "STATE"]]
    for session in sessions {
      rows.append([
        Terminal.oneLine(session.text("session") ?? ""),
        session.object("queue")?.integer("messages").map { Words.grouped($0) } ?? "-",
        session.object("pushes")?.integer("received").map { Words.grouped($0) } ?? "-", state(of: session),
      ])
    }
    return columns(rows)
  }

  /// Pads all columns but the last.
  static func columns(_ rows: [[String]]) -> [String] {
    let count = rows.first?.count ?? 0
    let widths = (0..<count).map { column in rows.map { $0[column].count }.max() ?? 0 }
    return rows.map { row in
      row.enumerated().map { column, cell in
        column == count - 1 ? cell : cell + String(repeating: " ", count: widths[column] - cell.count)
      }.joined(separator: "  ")
    }
  }
}
