import ByteStreams
import JSONCodec
import Totals

/// How the gateway recognises messages that create or end subscriptions.
package struct SubscriptionRules: Hashable, Sendable {
  /// Matches one kind of message, and locates the key that identifies the subscription.
  package struct Rule: Hashable, Sendable {
    package var match: Matcher?
    package var key: JSONPointer?

    package init() {}

    /// The key, if the message matches.
    func key(in payload: Span<UInt8>) -> [UInt8]? {
      guard let match, let key, match.matches(payload) else { return nil }
      return key.content(in: payload)
    }
  }

  /// A client's message that creates a subscription.
  package var add = Rule()
  /// A client's message that ends a subscription.
  package var remove = Rule()
  /// A message of the upstream that reports the end of a subscription.
  package var ended = Rule()

  /// Values of a message that are replaced when it is sent again.
  package struct Replacement: Hashable, Sendable {
    package let place: JSONPointer
    /// The name of the captured value that is written in place of the value.
    package let capture: String

    package init(_ place: JSONPointer, with capture: String) {
      self.place = place
      self.capture = capture
    }

    /// Maximum number of replacements. Each may scan every message.
    package static let maximumCount = 8
  }

  package var replacements: [Replacement] = []
  /// Maximum number of stored subscriptions, without the reserve (`Reserve`). One client may have all of them.
  package var entries = 1_024
  /// Maximum total size of the messages and keys of the stored subscriptions, in bytes, without the reserve.
  package var bytes = 1 << 20

  package init() {}

  var entryReserve: Reserve { Reserve(limit: entries) }
  var byteReserve: Reserve { Reserve(limit: bytes) }
}

/// The subscriptions of clients, by key. An upstream forgets them when the connection ends, so they are sent again on
/// the next connection. A new message with a known key replaces the stored message.
package struct SubscriptionLedger: Sendable {
  /// The effect of a message on the ledger.
  package enum Effect: Equatable, Sendable {
    case none
    case stored
    case removed
    /// The message creates a subscription, but the ledger is full, so the subscription is not sent on the next
    /// connection.
    case full(SubscriptionRefusal)
  }

  package struct Entry: Sendable {
    package let kind: MessageKind
    package let payload: ByteString
    package let key: [UInt8]
    /// Whether the message is the request of a call, whose id the gateway has made.
    package let isCall: Bool
    /// The number of the client's message; nil if an earlier process accepted it.
    package let message: UInt64?
    /// The client whose share the subscription uses; 0 if unknown.
    fileprivate let client: UInt64
    /// Position in the order of creation.
    fileprivate let sequence: UInt64

    fileprivate var size: Int { payload.count + key.count }
  }

  /// Maximum size of a message that is examined, in bytes, since the examination takes 3 ms for each MiB. A larger
  /// message is not stored as a subscription.
  private static var largestExamined: Int { 1 << 20 }

  package private(set) var rules: SubscriptionRules
  private var entries: [[UInt8]: Entry] = [:]
  private var lastSequence: UInt64 = 0
  /// Total size of the stored messages and keys, in bytes.
  package private(set) var bytes = 0
  private var clientTotals = ClientTotals()

  package init(_ rules: SubscriptionRules) { self.rules = rules }

  package var count: Int { entries.count }
  /// The key of the last change.
  package private(set) var lastKey: [UInt8] = []

  package func entry(_ key: [UInt8]) -> Entry? { entries[key] }

  /// Adds a subscription of an earlier process. Returns false if it is not added, since it exceeds the limits or would
  /// not be recognised now.
  package mutating func restore(
    _ key: [UInt8], _ payload: ByteString, kind: MessageKind, isCall: Bool = false
  ) -> Bool {
    lastSequence += 1
    let entry = Entry(
      kind: kind, payload: payload, key: key, isCall: isCall, message: nil, client: 0, sequence: lastSequence)
    // The client of the subscription is no longer known, and may have used the reserve. So the maximum includes the
    // reserve.
    guard isRecognised(entry), entries[key] == nil, entries.count < rules.entryReserve.maximum,
      bytes + entry.size <= rules.byteReserve.maximum
    else { return false }
    insert(entry)
    return true
  }

  /// Applies other rules from the next message on. Returns the keys of the dropped subscriptions, which would not be
  /// recognised now.
  package mutating func change(_ rules: SubscriptionRules) -> [[UInt8]] {
    guard rules != self.rules else { return [] }
    self.rules = rules
    let dropped = entries.values.filter { !isRecognised($0) }.map(\.key)
    for key in dropped { remove(key) }
    return dropped
  }

  private func isRecognised(_ entry: Entry) -> Bool { rules.add.key(in: entry.payload.bytes) == entry.key }

  /// The messages to send on a new connection, in the order in which they were stored. A replaced message moves to the
  /// end.
  package var messages: [Entry] { entries.values.sorted { $0.sequence < $1.sequence } }

  /// Called for each client message that is sent to the upstream.
  ///
  /// - Parameters:
  ///   - message: the number of the message.
  ///   - client: the client whose share a new subscription uses; 0 if clients cannot be distinguished.
  ///   - callID: the location of the id of a call; nil if the message is not a call. The gateway makes this id. A
  ///     subscription with the id as its key is not stored, since no client could remove it.
  ///   - isNumbered: whether the connection replaces the ids of calls (`correlation.ids: sequence`). Only then does the
  ///     entry remember that it is a call: earlier versions cannot read a store with such an entry.
  package mutating func sent(
    _ payload: ByteSlice, kind: MessageKind, message: UInt64? = nil, by client: UInt64 = 0,
    callID: JSONPointer? = nil, isNumbered: Bool = false
  ) -> Effect {
    guard payload.count <= Self.largestExamined else { return .none }
    if let key = rules.remove.key(in: payload.bytes) { return remove(key) ? .removed : .none }
    guard let key = rules.add.key(in: payload.bytes), callID?.content(in: payload.bytes) != key else { return .none }
    lastSequence += 1
    let entry = Entry(
      kind: kind, payload: payload.standalone, key: key, isCall: callID != nil && isNumbered, message: message,
      client: client, sequence: lastSequence)
    // The replaced entry is out of date, even if the new entry does not fit.
    remove(key)
    lastKey = key
    if let refusal = refusal(of: entry) { return .full(refusal) }
    insert(entry)
    return .stored
  }

  private func refusal(of entry: Entry) -> SubscriptionRefusal? {
    let own = entry.client == 0 ? nil : clientTotals[entry.client]
    if !rules.entryReserve.admits(1, used: entries.count, own: own?.count) {
      return SubscriptionRefusal(.entries, isOfClient: own.map { $0.count >= rules.entryReserve.share } ?? false)
    }
    guard !rules.byteReserve.admits(entry.size, used: bytes, own: own?.bytes) else { return nil }
    return SubscriptionRefusal(
      .bytes, isOfClient: own.map { $0.bytes + entry.size > rules.byteReserve.share } ?? false)
  }

  private mutating func insert(_ entry: Entry) {
    entries[entry.key] = entry
    bytes += entry.size
    clientTotals.add(entry.size, by: entry.client)
  }

  /// Called when the message that created this subscription turns out not to have been sent.
  package mutating func drop(_ entry: Entry) -> Effect { remove(entry.key) ? .removed : .none }

  /// Called for each message that arrives from the upstream.
  package mutating func received(_ payload: Span<UInt8>) -> Effect {
    guard !entries.isEmpty, payload.count <= Self.largestExamined, let key = rules.ended.key(in: payload) else {
      return .none
    }
    return remove(key) ? .removed : .none
  }

  @discardableResult
  private mutating func remove(_ key: [UInt8]) -> Bool {
    guard let entry = entries.removeValue(forKey: key) else { return false }
    lastKey = key
    bytes -= entry.size
    clientTotals.remove(entry.size, by: entry.client)
    return true
  }
}

/// Why a subscription is not stored.
package struct SubscriptionRefusal: Equatable, Sendable {
  package enum Limit: String, Sendable { case entries, bytes }

  package let limit: Limit
  /// Whether the client has used up its share. If false, all clients together have used up the limit and the reserve.
  package let isOfClient: Bool

  init(_ limit: Limit, isOfClient: Bool) {
    self.limit = limit
    self.isOfClient = isOfClient
  }
}
