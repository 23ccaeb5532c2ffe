import ByteStreams
import Reactor
import Replication
import Threading

@testable import RedisStore

/// The data that several gateways share, in memory: an engine without a server, for tests. It never loses confirmed
/// data.
final class MemoryServer: Sendable {
  struct Session {
    var record = SharedRecord()
    var pushes: [LogRow] = []
    var changes: [LogRow] = []
    var staged: [LogRow] = []

    func meets(_ condition: LogCondition) -> Bool {
      holds(condition) && record.sequence == condition.sequence
    }

    func holds(_ condition: LogCondition) -> Bool {
      record.token == condition.token && record.history == condition.history
    }
  }

  private struct Content {
    var sessions: [String: Session] = [:]
    var gateways: [GatewayID: [UInt8]] = [:]
    var hosts: [GatewayID: [UInt8]] = [:]
    var secret: [UInt8]?
    var definitions: [[UInt8]: [UInt8]] = [:]
    /// The owners of sessions, by name.
    var owners: [[UInt8]: String] = [:]
    var removed: Set<[UInt8]> = []
    var version: (list: UInt64, number: Int)?
    var notifications: [(LogSubject, [UInt8])] = []

    var versionText: [UInt8]? {
      version.map { version in
        text {
          $0.append(hexadecimal: version.list, digits: 16)
          $0.append(" \(version.number)")
        }
      }
    }
  }

  private let content = Locked(Content())
  private let mailboxes = Locked<[MemoryLog.Mailbox]>([])

  func add(_ mailbox: MemoryLog.Mailbox) { mailboxes.withLock { $0.append(mailbox) } }

  func session(_ name: String) -> Session? { content.withLock { $0.sessions[name] } }

  /// Interrupts all gateways: they lose their commands in progress and connect again.
  func interrupt() {
    for mailbox in mailboxes.withLock({ $0 }) { mailbox.post(.interrupted) }
  }

  func execute(_ commands: [LogCommand]) -> [LogReply] {
    let (replies, notifications) = content.withLock { content in
      let replies = commands.map { Self.execute($0, &content) }
      defer { content.notifications = [] }
      return (replies, content.notifications)
    }
    for (subject, message) in notifications {
      for mailbox in mailboxes.withLock({ $0 }) { mailbox.post(.notified(subject, message)) }
    }
    return replies
  }

  /// Executes a command with the effect of the script in Redis.
  private static func execute(_ command: LogCommand, _ content: inout Content) -> LogReply {
    switch command {
    case .heartbeat(let gateway, let entry, let old):
      for (gateway, entry) in old where content.gateways[gateway] == entry { content.gateways[gateway] = nil }
      defer { content.gateways[gateway] = entry }
      return .gateways(content.gateways.map { ($0.key, $0.value) })
    case .shareSecret(let secret):
      content.secret = content.secret ?? Array(secret.utf8)
      return .value(content.secret)
    case .storeHosts(let gateway, let text):
      content.hosts[gateway] = Array(text.utf8)
      return .done
    case .readHosts(let gateway): return .value(content.hosts[gateway])
    case .forgetHosts(let gateways):
      for gateway in gateways { content.hosts[gateway] = nil }
      return .done
    case .acquire(let acquisition, let name):
      var session = content.sessions[name] ?? Session()
      let (present, expected) = (session.record, acquisition.expected)
      guard present.token == expected.token, present.history == expected.history,
        present.sequence == expected.sequence, session.pushes.last?.id ?? .none == expected.last
      else { return .other }
      if let owner = acquisition.owner, content.gateways[owner] != acquisition.entry { return .other }
      if let parts = SessionDefinition.parts(of: name) {
        let definition = content.definitions[Array(parts.name.utf8)] ?? []
        guard definition.prefix(16).elementsEqual(parts.incarnation.utf8) else { return .other }
      }
      session.record = acquisition.result
      session.record.history = acquisition.history
      session.record.format = SharedRecord.newestFormat
      content.sessions[name] = session
      content.notifications.append((.session(name), Array("2".utf8)))
      return .done
    case .append(let name, let condition, let number, let firstKept, let changes, let pushes):
      guard var session = content.sessions[name], session.meets(condition) else { return .other }
      if !changes.isEmpty, number <= condition.sequence { return .other }
      var last = session.pushes.last?.id ?? .none
      for row in pushes {
        guard row.id > last else { return .other }
        last = row.id
      }
      session.record.sequence = number
      if !changes.isEmpty { session.changes.append(LogRow(id: PushEntryID(push: number, count: 0), bytes: changes)) }
      session.pushes += pushes
      if let firstKept { session.pushes.removeAll { $0.id.push < firstKept } }
      content.sessions[name] = session
      if !pushes.isEmpty { content.notifications.append((.session(name), Array("1".utf8))) }
      return .done
    case .stage(let name, let condition, let number, let part, let bytes):
      guard var session = content.sessions[name], session.holds(condition) else { return .other }
      if part == 1 { session.staged = [] }
      guard part == 1 || session.staged.last?.id == PushEntryID(push: number, count: UInt64(part - 1)) else {
        return .other
      }
      session.staged.append(LogRow(id: PushEntryID(push: number, count: UInt64(part)), bytes: bytes))
      content.sessions[name] = session
      return .done
    case .replace(let name, let condition, let number, let parts):
      guard var session = content.sessions[name], session.meets(condition),
        session.staged.last?.id == PushEntryID(push: number, count: UInt64(parts))
      else { return .other }
      (session.changes, session.staged) = (session.staged, [])
      session.record.sequence = number
      content.sessions[name] = session
      return .done
    case .stamp(let name, let condition, let history, let counter):
      guard let session = content.sessions[name], session.meets(condition) else { return .other }
      content.sessions[name]?.record.history = history
      content.sessions[name]?.record.counter = counter
      content.notifications.append((.session(name), Array("2".utf8)))
      return .done
    case .release(let name, let condition, let successor):
      guard let session = content.sessions[name], session.meets(condition) else { return .other }
      content.sessions[name]?.record.token = nil
      content.sessions[name]?.record.successor = successor
      content.notifications.append((.session(name), Array("2".utf8)))
      return .done
    case .read(let name, let stream, let last, let bytes):
      let session = content.sessions[name] ?? Session()
      var record = session.record
      record.last = session.pushes.last?.id ?? .none
      var entries: [(id: PushEntryID, bytes: [UInt8])] = []
      var (read, hasMore) = (0, false)
      for row in stream == .pushes ? session.pushes : session.changes where row.id > last {
        hasMore = read >= bytes
        if hasMore { break }
        entries.append((row.id, row.bytes))
        read += row.bytes.count + 64
      }
      return .part(StreamPart(record: record, entries: entries, hasMore: hasMore && bytes > 0))
    case .notify(let subject, let message):
      content.notifications.append((subject, message))
      return .done
    case .define(let name, let definition, let limits, let first, let newList):
      let key = Array(name.utf8)
      let text = Array(definition.text)
      var version = content.version ?? (newList, 0)
      if let present = content.definitions[key] {
        let version = content.versionText ?? []
        return .definition(present == text ? .done(version: version) : .other(present, version: version))
      }
      if content.removed.contains(Array(text.prefix(16))) { return .definition(.removed) }
      if let limits {
        let own = content.owners.values.count { $0 == definition.owner }
        if own >= limits.perOwner { return .definition(.tooManyOfOwner) }
        if content.definitions.count >= limits.total { return .definition(.tooMany) }
      }
      version.number += 1
      content.version = version
      content.definitions[key] = text
      content.owners[key] = definition.owner
      if let first { content.sessions[definition.storedName(name), default: Session()].record.successor = first }
      let versionText = content.versionText ?? []
      content.notifications.append((.definitions, versionText + Array(" \(name) +".utf8) + text))
      return .definition(.done(version: versionText))
    case .remove(let name, let definition, let code, let holder):
      let key = Array(name.utf8)
      let present = content.definitions[key] ?? []
      let incarnation = Array(definition.text.prefix(16))
      guard Array(present.prefix(16)) == incarnation else { return .definition(.other(present, version: nil)) }
      let stored = definition.storedName(name)
      if let holder, content.sessions[stored]?.record.token != holder { return .definition(.fenced) }
      content.version?.number += 1
      content.sessions[stored] = nil
      (content.definitions[key], content.owners[key]) = (nil, nil)
      content.removed.insert(incarnation)
      let version = content.versionText ?? []
      content.notifications.append((.definitions, version + Array(" \(name) -\(code) ".utf8) + incarnation))
      return .definition(.done(version: version))
    case .readVersion: return .value(content.versionText)
    case .readDefinition(let name): return .value(content.definitions[Array(name.utf8)])
    case .readPage:
      var entries = content.definitions.map { (name: $0.key, text: $0.value) }
      if let version = content.versionText { entries.append(([], version)) }
      return .page(DefinitionPage(cursor: Array("0".utf8), entries: entries))
    case .readMemory: return .value(nil)
    case .readReplication: return .replication(history: MemoryLog.history, text: "")
    }
  }
}

/// The log of one gateway in a `MemoryServer`.
final class MemoryLog: SharedLog, SignalTarget {
  enum Event: Sendable {
    case up
    case interrupted
    case landed
    case subscribed(LogSubject)
    case notified(LogSubject, [UInt8])
  }

  /// Delivers events on the loop of the log.
  final class Mailbox: Sendable {
    private let events = Locked<[Event]>([])
    private let signal = Locked<Signal?>(nil)

    func open(_ signal: Signal) { self.signal.withLock { $0 = signal } }

    func post(_ event: Event) {
      events.withLock { $0.append(event) }
      // Within the lock, because the loop may end after `close`.
      signal.withLock { $0?.notify() }
    }

    /// Must be called before the loop ends.
    func close() { signal.withLock { $0 = nil } }

    func takeAll() -> [Event] { events.withLock { exchange(&$0) } }

    private func exchange(_ events: inout [Event]) -> [Event] {
      defer { events = [] }
      return events
    }
  }

  static let history = String(repeating: "a", count: 40)

  private let server: MemoryServer
  private weak var owner: (any SharedLogOwner)?
  private let loop: LoopContext
  private let mailbox: Mailbox
  private var subjects: Set<LogSubject> = []
  private var landings: [(landing: LogLanding, then: (LogLanding) -> Void)] = []
  private(set) var isUp = false

  init(_ server: MemoryServer, _ mailbox: Mailbox, loop: LoopContext, owner: any SharedLogOwner) {
    self.server = server
    self.mailbox = mailbox
    self.loop = loop
    self.owner = owner
  }

  func start() {
    mailbox.open(loop.makeSignal(for: self))
    server.add(mailbox)
    mailbox.post(.up)
  }

  func close() {
    isUp = false
    landings = []
  }

  func reset(_ reason: String) {
    guard isUp else { return }
    close()
    subjects = []
    owner?.logIsDown(LogFailure(reason))
    mailbox.post(.up)
  }

  func send(_ commands: [LogCommand], on lane: LogLane, then: @escaping (LogLanding) -> Void) -> Bool {
    guard isUp else { return false }
    landings.append((LogLanding(replies: server.execute(commands), isConfirmed: true), then))
    mailbox.post(.landed)
    return true
  }

  func subscribe(to subjects: [LogSubject]) {
    guard isUp else { return }
    self.subjects.formUnion(subjects)
    for subject in subjects { mailbox.post(.subscribed(subject)) }
  }

  func unsubscribe(from subjects: [LogSubject]) { self.subjects.subtract(subjects) }

  func signalled() {
    guard let owner else { return }
    for event in mailbox.takeAll() {
      switch event {
      case .up:
        isUp = true
        owner.logIsUp(history: Self.history, at: "memory")
      case .interrupted: reset("it was interrupted")
      case .landed:
        guard !landings.isEmpty else { continue }
        let (landing, then) = landings.removeFirst()
        then(landing)
      case .subscribed(let subject): if subjects.contains(subject) { owner.logSubscribed(to: subject) }
      case .notified(let subject, let message): if subjects.contains(subject) { owner.logNotified(subject, message) }
      }
    }
  }
}
