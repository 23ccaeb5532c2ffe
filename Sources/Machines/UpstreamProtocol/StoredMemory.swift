import ByteStreams
import Continuity
import JournalCoding

/// A message that is sent again on every new connection.
package struct StoredSubscription: Equatable, Sendable {
  package let key: [UInt8]
  package let kind: MessageKind
  package let payload: ByteString
  /// Whether the message is the request of a call. Its id is then written anew for each connection
  /// (`Correlation.IDs.sequence`).
  package let isCall: Bool

  package init(key: [UInt8], kind: MessageKind, payload: ByteString, isCall: Bool = false) {
    self.key = key
    self.kind = kind
    self.payload = payload
    self.isCall = isCall
  }

  package static func == (left: StoredSubscription, right: StoredSubscription) -> Bool {
    left.key == right.key && left.kind == right.kind && left.isCall == right.isCall
      && left.payload.bytes.equals(right.payload.bytes)
  }
}

/// A captured value that outlives connections. `client` is the client identity when the value was received: a digest of
/// the upstream's URLs and of the settings that identify the gateway to the upstream. With another client identity, the
/// value is not used, since it may be a secret of the earlier client or server.
package struct StoredCapture: Equatable, Sendable {
  package let value: CapturedValue
  package let client: [UInt8]

  package init(value: CapturedValue, client: [UInt8]) {
    self.value = value
    self.client = client
  }
}

/// A change of the protocol's memory (`ProtocolMemory`), as stored in the journal.
package enum MemoryChange: Equatable, Sendable {
  /// A subscription was made or replaced. It is now the latest.
  case subscribed(StoredSubscription)
  /// The subscription with this key has ended.
  case unsubscribed(key: [UInt8])
  /// The value of `${cursor}`; nil if it no longer has a value.
  case cursor([UInt8]?)
  /// The data that the upstream needs to restore the state of this namespace, such as the offset of the last push. It
  /// is submitted together with this push.
  case continued(namespace: String, Continuation)
  /// The data of all earlier `continued` changes is void. This change is submitted together with the changes that
  /// replace the data.
  case discontinued
  /// The captured value with this name; nil if it is forgotten.
  case captured(name: String, StoredCapture?)
  /// The upstream uses this protocol from now on. If it used another protocol before, the whole memory is cleared.
  case speaks(UpstreamKind)

  /// The size in bytes of the variable parts of the change.
  package var size: Int {
    switch self {
    case .subscribed(let subscription): subscription.payload.count + subscription.key.count
    case .cursor(let value): value?.count ?? 0
    case .continued(_, let continuation): continuation.pid.count + (continuation.offset?.count ?? 0)
    case .captured(let name, let capture):
      name.utf8.count + (capture.map { $0.value.content.count + $0.client.count } ?? 0)
    case .unsubscribed, .discontinued, .speaks: 0
    }
  }
}

extension SubscriptionLedger {
  /// Returns the change to store after this effect.
  package func change(after effect: Effect) -> MemoryChange? {
    switch effect {
    case .none: nil
    case .stored:
      entry(lastKey).map {
        .subscribed(StoredSubscription(key: lastKey, kind: $0.kind, payload: $0.payload, isCall: $0.isCall))
      }
    case .removed, .full: .unsubscribed(key: lastKey)
    }
  }
}

/// The stored form of a protocol's memory, which survives connections to the upstream.
package struct StoredMemory: Equatable, Sendable {
  /// A dictionary, because there may be a million subscriptions and a change concerns one of them.
  private var byKey: [[UInt8]: (order: UInt64, subscription: StoredSubscription)] = [:]
  private var nextOrder: UInt64 = 0
  package private(set) var cursor: [UInt8]?
  /// By namespace of the upstream.
  package private(set) var continuations: [String: Continuation] = [:]
  /// By name.
  package private(set) var captures: [String: StoredCapture] = [:]
  package private(set) var kind = UpstreamKind.websocket

  package init() {}

  /// In the order in which the subscriptions were made.
  package var subscriptions: [StoredSubscription] {
    byKey.values.sorted { $0.order < $1.order }.map(\.subscription)
  }

  package mutating func apply(_ change: MemoryChange) {
    switch change {
    case .subscribed(let subscription):
      byKey[subscription.key] = (nextOrder, subscription)
      nextOrder += 1
    case .unsubscribed(let key): byKey[key] = nil
    case .cursor(let value): cursor = value
    case .continued(let namespace, let continuation): continuations[namespace] = continuation
    case .discontinued: continuations = [:]
    case .captured(let name, let capture): captures[name] = capture
    // Earlier entries have already ended the messages that were queued for the former protocol.
    case .speaks(let kind) where kind != self.kind:
      self = StoredMemory()
      self.kind = kind
    case .speaks: break
    }
  }

  /// The changes that lead from an empty memory to this memory.
  package var changes: [MemoryChange] {
    // `speaks` is the first change, because it would clear the other data.
    var result: [MemoryChange] = kind == .websocket ? [] : [.speaks(kind)]
    result += subscriptions.map { .subscribed($0) }
    if let cursor { result.append(.cursor(cursor)) }
    result += captures.sorted { $0.key < $1.key }.map { .captured(name: $0.key, $0.value) }
    return result + continuations.sorted { $0.key < $1.key }.map { .continued(namespace: $0.key, $0.value) }
  }

  package static func == (left: StoredMemory, right: StoredMemory) -> Bool { left.changes == right.changes }
}

// MARK: Bytes

extension MemoryChange {
  package func write(_ coder: inout JournalCoder) {
    switch self {
    case .subscribed(let subscription):
      _ = coder.byte(subscription.isCall ? 20 : 10)
      _ = StoredSubscription(subscription, isCall: subscription.isCall, &coder)
    case .unsubscribed(let key):
      _ = coder.byte(11)
      _ = coder.bytes(key)
    case .cursor(let value):
      _ = coder.byte(12)
      _ = Self.cursor(value, &coder)
    case .continued(let namespace, let continuation):
      _ = coder.byte(15)
      _ = coder.text(namespace)
      _ = Continuation(continuation, &coder)
    case .discontinued: _ = coder.byte(16)
    case .speaks(let kind):
      _ = coder.byte(17)
      _ = UpstreamKind(kind, &coder)
    case .captured(let name, let capture):
      _ = coder.byte(19)
      _ = coder.text(name)
      _ = coder.optional(capture) { StoredCapture($1, &$0) }
    }
  }

  /// Returns nil if the tag does not belong to a change of the memory.
  package init?(tag: UInt8, _ coder: inout JournalCoder) {
    switch tag {
    case 10: self = .subscribed(StoredSubscription(nil, isCall: false, &coder))
    case 20: self = .subscribed(StoredSubscription(nil, isCall: true, &coder))
    case 11: self = .unsubscribed(key: coder.bytes(nil))
    case 12: self = .cursor(Self.cursor(nil, &coder))
    case 15: self = .continued(namespace: coder.text(nil), Continuation(nil, &coder))
    case 16: self = .discontinued
    case 17: self = .speaks(UpstreamKind(nil, &coder))
    case 19: self = .captured(name: coder.text(nil), coder.optional(nil) { StoredCapture($1, &$0) })
    default: return nil
    }
  }

  /// The first byte is the kind of the value. 1, `${cursor}`, is the only kind.
  private static func cursor(_ value: [UInt8]?, _ coder: inout JournalCoder) -> [UInt8]? {
    coder.require(coder.byte(1) == 1)
    return coder.optional(value) { $0.bytes($1) }
  }
}

extension StoredSubscription {
  /// The tag of the change says whether the message is a call.
  fileprivate init(_ subscription: Self?, isCall: Bool, _ coder: inout JournalCoder) {
    self.isCall = isCall
    key = coder.bytes(subscription?.key)
    kind = coder.raw(subscription?.kind, or: .text)
    payload = coder.byteString(subscription?.payload)
  }
}

extension StoredCapture: JournalRecord {
  package init(_ capture: Self?, _ coder: inout JournalCoder) {
    let content = coder.bytes(capture?.value.content)
    value = CapturedValue(content, isText: coder.flag(capture?.value.isText))
    client = coder.bytes(capture?.client)
  }
}

extension Continuation: JournalRecord {
  package init(_ continuation: Self?, _ coder: inout JournalCoder) {
    self.init(pid: coder.bytes(continuation?.pid), offset: coder.optional(continuation?.offset) { $0.bytes($1) })
  }
}

extension UpstreamKind: JournalRecord {
  /// The index of each kind is its stored number.
  private static var stored: [UpstreamKind] { [.websocket, .socketIO] }

  package init(_ kind: Self?, _ coder: inout JournalCoder) {
    let number = Int(coder.byte(kind.flatMap { Self.stored.firstIndex(of: $0) }.map { UInt8($0) }))
    coder.require(number < Self.stored.count)
    self = coder.isDamaged ? .websocket : Self.stored[number]
  }
}
