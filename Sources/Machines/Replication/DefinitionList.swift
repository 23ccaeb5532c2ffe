import ByteStreams

/// A gateway's copy of the list of created sessions, the hash `sessions`.
///
/// The driver first subscribes to the changes, and then reads the hash in pages. Each change contains the version of
/// the list after the change. So a missing change is detected, and the hash is read again.
///
/// A failover may restore a session whose removal was confirmed, because the new primary did not have the removal yet.
/// The copy remembers the removal, and the gateway then repeats it (`returned`).
package struct DefinitionList: Sendable {
  package enum Change: Hashable, Sendable {
    case defined(name: String, SessionDefinition)
    /// - code: the close code for the upstream.
    case removed(name: String, SessionDefinition, code: UInt16)
  }

  /// The version of the list: an id, and the number of changes since the list was begun. A list that replaces a lost
  /// list has a new id.
  package struct Version: Hashable, Sendable {
    package let id: [UInt8]
    package let count: UInt64

    /// The version of a missing hash.
    static let none = Version(id: [], count: 0)

    private init(id: [UInt8], count: UInt64) {
      self.id = id
      self.count = count
    }

    /// Reads `id count`.
    package init?(_ text: Span<UInt8>) {
      guard let space = text.firstIndex(of: UInt8(ascii: " ")), space > 0,
        let count = text.extracting(space + 1..<text.count).decimalValue(), count > 0
      else { return nil }
      self.init(id: [UInt8](copying: text.extracting(first: space)), count: UInt64(count))
    }

    /// Whether `next` is the version after one more change.
    func isFollowed(by next: Version) -> Bool { next.count == count + 1 && (id == next.id || self == .none) }
  }

  /// A notified change: `id count name +definition` or `id count name -code incarnation`.
  private struct Notice {
    enum Change {
      case defined([UInt8])
      case removed(code: UInt16, incarnation: UInt64)
    }

    let version: Version
    let name: String
    let change: Change

    init?(_ text: Span<UInt8>) {
      let space = UInt8(ascii: " ")
      guard let first = text.firstIndex(of: space), let second = text.firstIndex(of: space, from: first + 1),
        let third = text.firstIndex(of: space, from: second + 1), third + 1 < text.count,
        let version = Version(text.extracting(first: second))
      else { return nil }
      self.version = version
      name = text.extracting(second + 1..<third).text()
      let value = text.extracting(third + 2..<text.count)
      switch text[third + 1] {
      case UInt8(ascii: "+"): change = .defined([UInt8](copying: value))
      case UInt8(ascii: "-"):
        guard let end = value.firstIndex(of: space),
          let code = value.extracting(first: end).decimalValue().flatMap(UInt16.init(exactly:)),
          let incarnation = value.extracting(end + 1..<value.count).hexadecimalValue()
        else { return nil }
        change = .removed(code: code, incarnation: incarnation)
      default: return nil
      }
    }

    static var normalClosure: UInt16 { 1000 }
  }

  private struct Entry {
    var definition: SessionDefinition
    /// When the session is removed unless it is defined again. nil if Redis has the session.
    var end: MonotonicTime?
  }

  /// A hash that is being read.
  private struct Reading {
    /// The version before the first page was read.
    var version = Version.none
    var seen: Set<String> = []
    /// The changes that were notified during the reading.
    var notices: [Notice] = []
    /// Whether there were too many changes. If so, the requested page is ignored, and the hash is read again.
    var isOverrun = false
  }

  private enum State {
    /// Changes are not notified, because the gateway has not subscribed.
    case unknown
    case reading(Reading)
    case complete(Version)
  }

  /// Maximum number of changes that are kept while the hash is read. With more changes, the hash is read again. If more
  /// sessions than this have been read, as many changes as sessions are kept.
  private static var noticeLimit: Int { 4_096 }

  /// How long the copy keeps a session that Redis has lost. The holder of the session can define it again within this
  /// time.
  private let patience: TimeSpan
  private var entries: [String: Entry] = [:]
  /// Whether an entry may have an end. Avoids a search, since there are many entries and few of them ever have an end.
  private var mayLackEntries = false
  private var state = State.unknown
  /// For each name that this gateway has changed, the version of the list after its change. An entry is kept until the
  /// change is notified. Until then, notified older changes of the name are ignored.
  private var adopted: [String: Version] = [:]
  /// The versions that differed in the last comparison.
  private var difference: (own: Version, other: Version)?
  /// Where the next page begins; nil if no page must be read.
  private var next: [UInt8]?
  private var removed = RemovedIncarnations()
  /// Removed sessions that Redis has again, by name, with their close codes. They must be removed again before any
  /// other change of these names. An entry stays until Redis has removed the session, or the hash is read again.
  package private(set) var returned: [String: (definition: SessionDefinition, code: UInt16)] = [:]

  package init(patience: TimeSpan) { self.patience = patience }

  // MARK: State

  /// Whether the copy has all changes that Redis has notified.
  package var isComplete: Bool {
    if case .complete = state { true } else { false }
  }

  package func definition(of name: String) -> SessionDefinition? { entries[name]?.definition }

  package var count: Int { entries.count }

  /// Whether this session was removed. If Redis has the session, Redis has lost the removal.
  package func hasRemoved(_ definition: SessionDefinition) -> Bool { removed.code(of: definition.incarnation) != nil }

  /// The sessions that Redis has lost. Their holders define them again. A session that no gateway defines again is
  /// removed.
  package var missing: [(name: String, definition: SessionDefinition)] {
    guard mayLackEntries else { return [] }
    return entries.compactMap { name, entry in entry.end == nil ? nil : (name, entry.definition) }
  }

  /// The definition of a missing session.
  package func missingDefinition(of name: String) -> SessionDefinition? {
    entries[name].flatMap { $0.end == nil ? nil : $0.definition }
  }

  /// Returns the cursor of the next page; nil if no page must be read. Each cursor is returned only once. The version
  /// must be read before the first page.
  package mutating func takePage() -> (cursor: [UInt8], isFirst: Bool)? {
    guard let cursor = next else { return nil }
    next = nil
    return (cursor, cursor == Self.start)
  }

  private static let start: [UInt8] = [UInt8(ascii: "0")]

  // MARK: Reports

  /// Called when the gateway has subscribed to changes. Begins to read the hash.
  package mutating func subscribed() {
    state = .reading(Reading())
    next = Self.start
    returned = [:]
  }

  /// Called when the subscription to changes has ended. The copy stays.
  package mutating func disconnected() {
    (state, next, difference) = (.unknown, nil, nil)
    (adopted, returned) = ([:], [:])
  }

  /// Called with the version before the first page; nil if Redis has no list.
  package mutating func began(at version: [UInt8]?) {
    guard case .reading(var reading) = state else { return }
    reading.version = version.flatMap { Version($0.span) } ?? .none
    state = .reading(reading)
  }

  /// Adds a page that was read.
  ///
  /// - Parameter cursor: where the next page begins; `0` after the last page.
  /// - Returns: the changes of the copy, and the names of the definitions that cannot be read.
  package mutating func add(
    _ page: [(name: [UInt8], text: [UInt8])], next cursor: [UInt8], now: MonotonicTime
  ) -> (changes: [Change], unreadable: [String]) {
    guard case .reading(var reading) = state else { return ([], []) }
    guard !reading.isOverrun else {
      subscribed()
      return ([], [])
    }
    var changes: [Change] = []
    var unreadable: [String] = []
    for (name, text) in page where !name.isEmpty {
      let name = name.span.text()
      let definition = SessionDefinition(text.span)
      // A session that was removed is not marked as seen. `entries` may have a later session of the same name, which
      // Redis has lost, and which must count as missing.
      if definition.map(hasRemoved) != true { reading.seen.insert(name) }
      if let definition {
        changes += define(name, definition)
      } else {
        unreadable.append(name)
      }
    }
    state = .reading(reading)
    guard cursor == Self.start else {
      next = cursor
      return (changes, unreadable)
    }
    // Keeps the versions that are later than the version that was read.
    adopted = adopted.filter { $0.value.id == reading.version.id && $0.value.count > reading.version.count }
    for (name, entry) in entries
    where entry.end == nil && !reading.seen.contains(name) && adopted[name] == nil {
      entries[name]?.end = now + patience
      mayLackEntries = true
    }
    state = .complete(reading.version)
    for notice in reading.notices { changes += apply(notice) }
    return (changes, unreadable)
  }

  /// Called when a page could not be read, or may belong to another list. The hash is read again.
  package mutating func failed() {
    if case .unknown = state { return }
    subscribed()
  }

  /// Called when a change was notified.
  package mutating func notified(_ text: Span<UInt8>) -> [Change] {
    guard let notice = Notice(text) else { return [] }
    guard case .reading(var reading) = state else { return apply(notice) }
    if !reading.isOverrun { reading.notices.append(notice) }
    if reading.notices.count > max(Self.noticeLimit, reading.seen.count) {
      (reading.notices, reading.isOverrun) = ([], true)
    }
    state = .reading(reading)
    return []
  }

  private mutating func apply(_ notice: Notice) -> [Change] {
    // The removal is recorded even if the copy has a later version, because it may have to be repeated after a
    // failover.
    if case .removed(let code, let incarnation) = notice.change {
      noteRemoval(of: notice.name, incarnation, code: code)
    }
    // If an earlier change was missing, the hash is read again. The next reading includes this change.
    guard case .complete(let version) = state else { return [] }
    if version.id == notice.version.id, notice.version.count <= version.count { return [] }
    guard version.isFollowed(by: notice.version) else {
      subscribed()
      return []
    }
    state = .complete(notice.version)
    if let own = adopted[notice.name] {
      if own.id == notice.version.id, own.count > notice.version.count { return [] }
      adopted[notice.name] = nil
    }
    switch notice.change {
    case .defined(let text):
      guard let definition = SessionDefinition(text.span) else {
        return remove(notice.name, code: Notice.normalClosure)
      }
      return define(notice.name, definition)
    case .removed(let code, let incarnation):
      // The copy may already have the next session of this name, from a page or because this gateway has defined it.
      guard entries[notice.name]?.definition.incarnation == incarnation else { return [] }
      return remove(notice.name, code: code)
    }
  }

  /// Called when this gateway has defined the session or has found its definition, at this version of the list. A
  /// notification of the change arrives, too, before or after this call.
  package mutating func adopt(_ name: String, _ definition: SessionDefinition, at version: [UInt8]?) -> [Change] {
    if isKnown(version) { return [] }
    note(version, of: name)
    return define(name, definition)
  }

  /// Called when this gateway has removed the session, or has found that it was removed.
  ///
  /// - Parameter version: the version after the removal; nil if the session was removed earlier.
  package mutating func adopt(
    removalOf name: String, _ definition: SessionDefinition, code: UInt16, at version: [UInt8]?
  ) -> [Change] {
    noteRemoval(of: name, definition.incarnation, code: code)
    guard !isKnown(version), entries[name]?.definition == definition else { return [] }
    note(version, of: name)
    return remove(name, code: code)
  }

  private mutating func note(_ version: [UInt8]?, of name: String) {
    guard let version = version.flatMap({ Version($0.span) }) else { return }
    if let last = adopted[name], last.id == version.id, last.count > version.count { return }
    adopted[name] = version
  }

  private func isKnown(_ version: [UInt8]?) -> Bool {
    guard case .complete(let own) = state, let version = version.flatMap({ Version($0.span) }) else { return false }
    return own.id == version.id && version.count <= own.count
  }

  /// Compares the version of this copy with the version in Redis. If they differ in two consecutive comparisons, a
  /// change was lost, and the hash is read again.
  package mutating func compare(_ text: [UInt8]?) {
    guard case .complete(let own) = state else { return }
    let other = text.flatMap { Version($0.span) } ?? .none
    guard own != other else {
      difference = nil
      return
    }
    let isOld = difference.map { $0.own == own } ?? false
    difference = (own, other)
    if isOld { subscribed() }
  }

  /// Removes lost sessions that no gateway has defined again in time.
  ///
  /// - Parameter isLocal: whether this gateway is the holder of a session, which it then defines again until Redis
  ///   accepts the definition.
  package mutating func expire(
    now: MonotonicTime, unless isLocal: (_ name: String, SessionDefinition) -> Bool
  ) -> [Change] {
    guard isComplete, mayLackEntries else { return [] }
    mayLackEntries = entries.values.contains { $0.end != nil }
    let ended = entries.filter { name, entry in
      entry.end.map { $0 <= now } ?? false && !isLocal(name, entry.definition)
    }
    return ended.keys.flatMap { remove($0, code: Notice.normalClosure) }
  }

  // MARK: Changes

  private mutating func noteRemoval(of name: String, _ incarnation: UInt64, code: UInt16) {
    removed.insert(incarnation, code: code)
    if returned[name]?.definition.incarnation == incarnation { returned[name] = nil }
  }

  private mutating func define(_ name: String, _ definition: SessionDefinition) -> [Change] {
    if let code = removed.code(of: definition.incarnation) {
      returned[name] = (definition, code)
      return entries[name]?.definition.incarnation == definition.incarnation ? remove(name, code: code) : []
    }
    let last = entries.updateValue(Entry(definition: definition), forKey: name)?.definition
    if last == definition { return [] }
    let removal = last.map { [Change.removed(name: name, $0, code: Notice.normalClosure)] } ?? []
    return removal + [.defined(name: name, definition)]
  }

  private mutating func remove(_ name: String, code: UInt16) -> [Change] {
    guard let entry = entries.removeValue(forKey: name) else { return [] }
    return [.removed(name: name, entry.definition, code: code)]
  }
}
