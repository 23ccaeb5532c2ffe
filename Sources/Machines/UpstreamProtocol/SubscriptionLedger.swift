import ByteStreams
import JSONCodec

/// How the messages are recognised that make and end subscriptions.
package struct SubscriptionRules: Hashable, Sendable {
  /// Messages that have something in common, and where each has the key that tells them apart.
  package struct Rule: Hashable, Sendable {
    package var match: Matcher?
    package var key: JSONPointer?

    package init() {}

    /// The key, where the message is one of those.
    func key(in payload: Span<UInt8>) -> [UInt8]? {
      guard let match, let key, match.matches(payload) else { return nil }
      return key.content(in: payload)
    }
  }

  /// What a client says to make one.
  package var add = Rule()
  /// What a client says to end it.
  package var remove = Rule()
  /// What the upstream says when it has ended it.
  package var ended = Rule()
  /// Subscriptions that are kept.
  package var entries = 1_024
  /// Bytes of their messages and keys, together.
  package var bytes = 1 << 20

  package init() {}
}

/// The subscriptions that clients have made, by their key: an upstream forgets them with the connection, so they are said again
/// on the next one. What is said under a known key replaces what was said before.
package struct SubscriptionLedger: Sendable {
  /// What a message did to the ledger.
  package enum Effect: Equatable, Sendable {
    case none
    case kept
    case removed
    /// It makes a subscription, and there is no room to keep it: it will be missing on the next connection.
    case noRoom
  }

  package struct Entry: Sendable {
    package let kind: MessageKind
    package let payload: SharedBytes
    fileprivate let key: [UInt8]
    /// Its place in the order in which they were made.
    fileprivate let sequence: UInt64

    fileprivate var size: Int { payload.count + key.count }
  }

  /// Changed ones hold from the next message on.
  package var rules: SubscriptionRules
  private var entries: [[UInt8]: Entry] = [:]
  private var lastSequence: UInt64 = 0
  /// Bytes of the messages and keys that are kept.
  package private(set) var bytes = 0

  package init(_ rules: SubscriptionRules) { self.rules = rules }

  package var count: Int { entries.count }

  /// What is to be said on a new connection, in the order in which it was said first or, where it was replaced, last.
  package var messages: [Entry] { entries.values.sorted { $0.sequence < $1.sequence } }

  /// A client's message goes to the upstream.
  package mutating func sent(_ payload: SharedBytes, kind: MessageKind) -> Effect {
    if let key = rules.remove.key(in: payload.bytes) { return remove(key) ? .removed : .none }
    guard let key = rules.add.key(in: payload.bytes) else { return .none }
    lastSequence += 1
    let entry = Entry(kind: kind, payload: payload, key: key, sequence: lastSequence)
    // What is replaced is out of date, even where the new one finds no room.
    remove(key)
    guard entries.count < rules.entries, bytes + entry.size <= rules.bytes else { return .noRoom }
    entries[key] = entry
    bytes += entry.size
    return .kept
  }

  /// A message of the upstream has come.
  package mutating func received(_ payload: Span<UInt8>) -> Effect {
    guard !entries.isEmpty, let key = rules.ended.key(in: payload) else { return .none }
    return remove(key) ? .removed : .none
  }

  @discardableResult
  private mutating func remove(_ key: [UInt8]) -> Bool {
    guard let entry = entries.removeValue(forKey: key) else { return false }
    bytes -= entry.size
    return true
  }
}
