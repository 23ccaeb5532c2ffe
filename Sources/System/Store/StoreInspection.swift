import ByteStreams
import Consumers
import Events
import Glibc
import Host
import Inbox
import Journal
import JSONCodec
import Outbox
import UpstreamProtocol

/// Reads a store that no gateway has open. For the commands `drawbridge store check`, `export` and `backup`.
package enum StoreInspection {
  /// The contents of a store.
  package struct Summary: Sendable {
    package struct Session: Sendable {
      package let name: String
      package let pushes: Int
      package let nextPush: UInt64
      package let queued: Int
      /// Sorted by name.
      package let consumers: [Consumer]
      /// When a start first found that the configuration lacks the session, in milliseconds since 1970. nil if the
      /// configuration had it at the last start.
      package let unusedSince: Int64?

      init(_ session: StoredSession) {
        name = session.name
        pushes = session.state.log.pushes.count
        nextPush = session.state.log.nextPush
        queued = session.state.outbox.messages.keys.count { $0 > session.state.outbox.intended }
        consumers = session.state.consumers.byName.sorted { $0.key < $1.key }.map { Consumer($0.key, $0.value) }
        unusedSince = session.unusedSince
      }
    }

    package struct Consumer: Equatable, Sendable {
      package let name: String
      package let isWorkSharing: Bool
      /// All pushes up to this number are settled.
      package let position: UInt64
      /// The number of leased pushes, including expired leases.
      package let leases: Int
      package let deadLetters: Int

      init(_ name: String, _ consumer: StoredConsumer) {
        self.name = name
        isWorkSharing = consumer.settings.isWorkSharing
        position = consumer.progress.position >> 1
        leases = consumer.pushes.values.count { $0.bits != nil }
        deadLetters = consumer.dead.count
      }
    }

    package let term: UInt64
    package let schema: Int
    /// The bytes of the database and its log.
    package let bytes: Int
    package let endedUncleanly: Bool
    package let isBackup: Bool
    /// nil if the store has an older schema.
    package let sessions: [Session]?
  }

  /// An operation that takes long in a large file.
  package enum Activity: Sendable {
    case checking, reading, copying
  }

  /// Called about every two seconds, with the bytes processed so far, and the bytes of the file.
  package typealias Progress = @Sendable (Activity, Int, Int) -> Void

  /// Checks the whole file, and returns a summary of its contents. Changes nothing.
  package static func check(_ path: String, progress: @escaping Progress = { _, _, _ in }) throws(StoreError) -> Summary
  {
    let lock = try take(path)
    let used = try StoreFile.fileToUse(path)
    try StorePlace.check(used)
    var environment = StoreFile.Environment()
    environment.isChecking = { progress(.checking, $1, $2) }
    environment.isReading = { progress(.reading, $1, $2) }
    let file = try StoreFile.inspect(used, lock, environment)
    do throws(SQLiteDatabase.Failure) {
      try file.check("integrity_check")
    } catch {
      throw StoreFile.storeError(error, path)
    }
    let condition = file.condition
    let isCurrent = condition.schema == StoreSchema.steps.count
    let sessions = isCurrent ? try file.sessions().map(Summary.Session.init) : nil
    return Summary(
      term: condition.term, schema: condition.schema, bytes: file.bytes, endedUncleanly: condition.endedUncleanly,
      isBackup: condition.isBackup, sessions: sessions)
  }

  /// Writes a copy of a store to `target`, where no file may exist. A gateway that opens the copy begins terms that
  /// differ from the terms of the original. It reports to readers that pushes after the backup are missing.
  package static func backUp(
    _ path: String, to target: String, progress: @escaping Progress = { _, _, _ in }
  ) throws(StoreError) {
    let lock = try take(path)
    let used = try StoreFile.fileToUse(path)
    try StorePlace.check(used)
    let file = try StoreFile.inspect(used, lock)
    let bytes = file.bytes
    let reason = ProgressReports.during(file.environment.progressInterval) {
      progress(.copying, StorePlace.size(of: target + StoreFile.partialSuffix), bytes)
    } _: {
      file.backUp(to: target)
    }
    if let reason {
      throw .failed(path: path, reason: "no backup was made (\(reason))")
    }
  }

  private static func take(_ path: String) throws(StoreError) -> StoreLock {
    try require(path)
    return try StoreLock.take(StorePlace.resolved(path))
  }

  /// Throws if the file cannot be read. Without this check, an empty store would be created.
  private static func require(_ path: String) throws(StoreError) {
    guard unsafe access(path, R_OK) == 0 else { throw .failed(path: path, reason: SystemError.reason(of: errno)) }
  }

  /// Passes all readable contents to `write` as lines of JSON: the pushes of each session, then its messages without a
  /// final state, then its consumers with their dead letters. Returns the number of unreadable rows. Changes nothing in
  /// the tables.
  package static func export(_ path: String, _ write: (borrowing ByteQueue) -> Void) throws(StoreError) -> Int {
    let lock = try take(path)
    defer { withExtendedLifetime(lock) {} }
    let used = try StoreFile.fileToUse(path)
    do throws(SQLiteDatabase.Failure) {
      let database = try SQLiteDatabase(used)
      // A checkpoint at the end could write to a damaged file.
      database.keepLogOnClose(true)
      try database.execute("PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY; PRAGMA query_only=ON")
      var names: [Int64: String] = [:]
      var unreadable = 0
      readRows("sessions", "id, name", in: database, &unreadable) { names[$0.integer(0)] = $0.text(1) }
      exportPushes(database, names, &unreadable, write)
      exportStates(database, names, &unreadable, write)
      return unreadable
    } catch {
      throw StoreFile.storeError(error, path)
    }
  }

  /// Reads a table from its beginning to the first damaged page, and then backwards from its end.
  private static func readRows(
    _ table: String, _ columns: String, in database: SQLiteDatabase, _ unreadable: inout Int,
    _ body: (SQLiteStatement) -> Void
  ) {
    var last: Int64 = .min
    func read(_ order: String, _ condition: String) -> Bool {
      do throws(SQLiteDatabase.Failure) {
        try database.query("SELECT \(columns) FROM \(table)\(condition) ORDER BY id \(order)") { row in
          if order == "ASC" { last = row.integer(0) }
          body(row)
          return true
        }
        return true
      } catch {
        return false
      }
    }
    if read("ASC", "") { return }
    unreadable += 1
    _ = read("DESC", " WHERE id > \(last)")
  }

  private static func exportPushes(
    _ database: SQLiteDatabase, _ names: [Int64: String], _ unreadable: inout Int,
    _ write: (borrowing ByteQueue) -> Void
  ) {
    var damaged = 0
    readRows("pushes", "id, session, entries", in: database, &unreadable) { row in
      let isWhole = row.withBytes(2) { bytes in
        JournalEntry.read(bytes) { entry in
          guard case .log(.push(let push)) = entry else { return true }
          var line = begin(names[row.integer(1)], "push")
          line.append(push.rendered.bytes)
          line.append("}\n" as StaticString)
          write(line)
          return true
        }
      }
      if !isWhole { damaged += 1 }
    }
    unreadable += damaged
  }

  private static func exportStates(
    _ database: SQLiteDatabase, _ names: [Int64: String], _ unreadable: inout Int,
    _ write: (borrowing ByteQueue) -> Void
  ) {
    var states: [Int64: RestoredSession] = [:]
    var damaged = 0
    readRows("changes", "id, session, entries", in: database, &unreadable) { row in
      let isWhole = row.withBytes(2) { bytes in
        JournalEntry.read(bytes) {
          // Ignores an entry that does not follow the entry before it, as happens after a damaged row.
          _ = states[row.integer(1), default: RestoredSession(epoch: 0)].apply($0)
          return true
        }
      }
      if !isWhole { damaged += 1 }
    }
    unreadable += damaged
    for (id, state) in states.sorted(by: { $0.key < $1.key }) {
      for message in state.outbox.messages.values.sorted(by: { $0.number < $1.number }) {
        var line = begin(names[id], "message")
        append(message, of: state, to: &line)
        write(line)
      }
      for (name, consumer) in state.consumers.byName.sorted(by: { $0.key < $1.key }) {
        export(consumer, name, of: names[id], write)
      }
    }
  }

  private static func export(
    _ consumer: StoredConsumer, _ name: String, of session: String?, _ write: (borrowing ByteQueue) -> Void
  ) {
    let summary = Summary.Consumer(name, consumer)
    var line = begin(session, "consumer")
    line.append("{\"name\":" as StaticString)
    line.append(jsonString: name)
    line.append(
      summary.isWorkSharing ? ",\"share\":true,\"position\":" : ",\"share\":false,\"position\":" as StaticString)
    line.append(decimal: summary.position)
    line.append(",\"leases\":" as StaticString)
    line.append(decimal: summary.leases)
    line.append("}}\n" as StaticString)
    write(line)
    for letter in consumer.dead {
      var line = begin(session, "dead_letter")
      line.append("{\"consumer\":" as StaticString)
      line.append(jsonString: name)
      line.append(
        letter.reason == .rejected ? ",\"reason\":\"rejected\"" : ",\"reason\":\"deliveries\"" as StaticString)
      line.append(",\"deliveries\":" as StaticString)
      line.append(decimal: Int(letter.deliveries))
      line.append(",\"push\":" as StaticString)
      line.append(letter.push.rendered.bytes)
      line.append("}}\n" as StaticString)
      write(line)
    }
  }

  private static func begin(_ session: String?, _ kind: StaticString) -> ByteQueue {
    var line = ByteQueue()
    line.append("{\"session\":" as StaticString)
    if let session { line.append(jsonString: Array(session.utf8).span) } else { line.append("null" as StaticString) }
    line.append(",\"" as StaticString)
    line.append(kind)
    line.append("\":" as StaticString)
    return line
  }

  private static func append(_ message: StoredMessage, of session: RestoredSession, to line: inout ByteQueue) {
    line.append("{\"number\":" as StaticString)
    line.append(decimal: message.number)
    line.append(
      message.number > session.outbox.intended ? ",\"state\":\"queued\"" : ",\"state\":\"unknown\"" as StaticString)
    line.append(",\"topic\":" as StaticString)
    if let topic = message.topic {
      line.append(jsonString: Array(topic.utf8).span)
    } else {
      line.append("null" as StaticString)
    }
    if session.memory.kind == .socketIO, EventRecord.isValid(message.payload.bytes) {
      append(EventRecord(message.payload.bytes), to: &line)
    } else if message.kind.isText {
      line.append(",\"data\":" as StaticString)
      line.append(jsonString: message.payload.bytes)
    } else {
      line.append(",\"data_base64\":\"" as StaticString)
      Base64.encode(message.payload.bytes, into: &line)
      line.append(UInt8(ascii: "\""))
    }
    line.append("}}\n" as StaticString)
  }

  /// Appends an event in the form of the envelope of `POST /v1/messages`.
  private static func append(_ event: EventRecord, to line: inout ByteQueue) {
    line.append(",\"event\":" as StaticString)
    line.append(jsonString: event.name)
    line.append(",\"namespace\":" as StaticString)
    line.append(jsonString: event.namespace)
    line.append(",\"args\":[" as StaticString)
    line.append(event.arguments)
    line.append("],\"attachments\":[" as StaticString)
    for index in 0..<event.attachmentCount {
      line.append(index == 0 ? "\"" : ",\"" as StaticString)
      Base64.encode(event.attachment(index), into: &line)
      line.append(UInt8(ascii: "\""))
    }
    line.append("]" as StaticString)
  }
}
