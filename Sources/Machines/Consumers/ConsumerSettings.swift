import ByteStreams
import Inbox
import JSONCodec

/// The settings of a consumer, as a client has requested them.
package struct ConsumerSettings: Equatable, Sendable {
  /// Whether the consumer is work-sharing, which means that it delivers each push to one of several workers.
  package var isWorkSharing = false
  /// How long a lease lasts.
  package var visibility = TimeSpan.seconds(30)
  /// After this many deliveries without an acknowledgement, a push becomes a dead letter.
  package var maximumDeliveries: UInt32 = 5
  /// nil if pushes are independent of each other.
  package var order: ConsumerOrder?
  /// The topics as the client wrote them; empty for all topics.
  package private(set) var topics: [String] = []
  package private(set) var filter: TopicFilter?
  /// A consumer that is not used for this long is removed.
  package var idle = TimeSpan.hours(24 * 7)
  /// Whether the worker is the gateway. A push that the gateway has begun to deliver becomes a dead letter when
  /// retention removes it. This flag is not stored.
  package var isWebhook = false

  /// The minimum is long enough for a response to reach the worker. The maximum ensures that a push is not withheld for
  /// days when its worker has died.
  package static let visibilities = TimeSpan.milliseconds(100)...TimeSpan.hours(12)
  package static let deliveries: ClosedRange<UInt32> = 1...1_000
  package static let idleTimes = TimeSpan.seconds(1)...TimeSpan.hours(24 * 365)
  /// How long a push can be withheld after its release.
  package static let delays = TimeSpan.zero...TimeSpan.hours(24)

  package init() {}

  /// Memory of a consumer with these settings, in bytes, without its name and without records above
  /// `guaranteedRecords`.
  var memory: Int {
    // Each topic is kept as text and as a pattern.
    topics.reduce(512 + (isWorkSharing ? LeaseQueue.guaranteedRecords * LeaseQueue.recordBytes : 0)) {
      $0 + 64 + 2 * $1.utf8.count
    }
  }

  /// Adds a topic. With a final `*`, adds all topics that begin with the text before the `*`. Returns false if
  /// `TopicFilter` does not accept it.
  package mutating func add(topic: [UInt8]) -> Bool {
    var changed = filter ?? TopicFilter()
    guard changed.add(topic.span) else { return false }
    filter = changed
    topics.append(String(decoding: topic, as: UTF8.self))
    return true
  }
}

/// Which pushes must be handled one after another.
package enum ConsumerOrder: Equatable, Sendable {
  /// All pushes.
  case all
  /// Pushes with the same topic.
  case topic
  /// Pushes with the same value at this place in their JSON.
  case pointer(JSONPointer)

  /// `all`, `topic`, or a JSON pointer that begins with `/`.
  package init?(_ text: String) {
    switch text {
    case "all": self = .all
    case "topic": self = .topic
    default:
      guard text.utf8.first == UInt8(ascii: "/"), let pointer = JSONPointer(text) else { return nil }
      self = .pointer(pointer)
    }
  }

  package var text: String {
    switch self {
    case .all: "all"
    case .topic: "topic"
    case .pointer(let pointer): pointer.description
    }
  }

  /// Whether the key must be searched for in the payload.
  var readsPayloads: Bool { if case .pointer = self { true } else { false } }

  /// The key of a push, as a keyed hash; nil if the push has no key. A push without a key is independent of all others.
  /// Pushes whose hashes are equal by chance are handled one after another. This delays them, and has no other effect.
  func key(of message: RetainedMessage) -> UInt64? {
    var hasher = Hasher()
    switch self {
    case .all: return 0
    case .topic:
      guard let topic = message.topic else { return nil }
      hasher.combine(topic)
    case .pointer(let pointer):
      guard let payload = message.embeddedPayload, let value = pointer.content(in: payload.bytes) else { return nil }
      hasher.combine(value)
    }
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }
}
