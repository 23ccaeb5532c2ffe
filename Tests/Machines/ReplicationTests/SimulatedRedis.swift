import ByteStreams
import Inbox

@testable import Replication

/// An entry of the stream `p`. Its content is in a table of the world, so that a copy of the stream copies only
/// numbers.
struct PushEntry: Equatable {
  let id: PushEntryID
  /// The index of the push; nil for a gap.
  let content: Int?
  var marks: GapMarks = []
}

/// A change of the state, in the stream `c`.
enum StoredChange {
  case opened
  case accepted(Int)
  case intended(through: Int)
  case settled(Int, MessageOutcome)
}

enum MessageOutcome: UInt8 {
  case none, queued, confirmed, unknown
}

/// The state that the changes lead to. The number of a message is its position in the order of posting.
struct StoredState {
  /// Sorted by number.
  var queue: [Int] = []
  var intended = -1
  /// By number of the message.
  var outcomes: [UInt8] = []

  func outcome(_ message: Int) -> MessageOutcome {
    message < outcomes.count ? MessageOutcome(rawValue: outcomes[message]) ?? .none : .none
  }

  mutating func set(_ message: Int, _ outcome: MessageOutcome) {
    while outcomes.count <= message { outcomes.append(0) }
    outcomes[message] = outcome.rawValue
  }

  mutating func apply(_ change: StoredChange) {
    switch change {
    case .opened: break
    case .accepted(let message):
      queue.append(message)
      set(message, .queued)
    case .intended(let message): intended = message
    case .settled(let message, let outcome):
      queue.removeAll { $0 == message }
      set(message, outcome)
    }
  }
}

/// The data of one server.
struct RedisContent {
  var record = SharedRecord()
  var pushes: [PushEntry] = []
  var state = StoredState()
  var gateways: [GatewayID: [UInt8]] = [:]
}

enum RedisReply {
  case ok
  /// FENCED, HISTORY, BEHIND, CHANGED, ALIVE or READONLY.
  case refused
  case entries([(gateway: GatewayID, text: [UInt8])])
  case record(SharedRecord)
  case pushes(SharedRecord, [PushEntry])
  case content(RedisContent)
}

/// A server with the effects of the scripts, as far as the simulation needs them.
final class RedisServer {
  let name: String
  var history = ""
  var isAlive = true
  var isPrimary = false
  /// When a replaced primary is noticed, or a killed server returns as a replica.
  var returnTime = 0
  var content = RedisContent()

  init(_ name: String) { self.name = name }

  private func isSame(_ left: HolderToken?, _ right: HolderToken?, _ bug: PlantedBug?) -> Bool {
    if bug == .tokenByCounter { return left?.term.counter == right?.term.counter }
    return left == right
  }

  func heartbeat(_ gateway: GatewayID, _ text: [UInt8], forgetting old: [(gateway: GatewayID, text: [UInt8])])
    -> RedisReply
  {
    for (gateway, text) in old where content.gateways[gateway] == text { content.gateways[gateway] = nil }
    let entries = content.gateways.map { ($0.key, $0.value) }
    content.gateways[gateway] = text
    return .entries(entries)
  }

  func acquire(_ acquisition: Acquisition, _ bug: PlantedBug?) -> RedisReply {
    let (present, expected) = (content.record, acquisition.expected)
    guard isSame(present.token, expected.token, bug), present.history == expected.history,
      present.sequence == expected.sequence, present.last == expected.last
    else { return .refused }
    if let owner = acquisition.owner, content.gateways[owner] != acquisition.entry { return .refused }
    let last = present.last
    content.record = acquisition.result
    content.record.last = last
    if bug == .stampedByAcquiring { content.record.history = history }
    if bug == .sameTerm, expected.terms.last != nil { content.record.terms = expected.terms }
    return .ok
  }

  func append(
    _ token: HolderToken, _ history: String, expected: UInt64, number: UInt64, _ pushes: [PushEntry],
    _ changes: [StoredChange], _ bug: PlantedBug?
  ) -> RedisReply {
    guard isSame(content.record.token, token, bug), content.record.history == history else { return .refused }
    guard content.record.sequence == expected || bug == .sequenceIgnored else { return .refused }
    if bug != .sequenceIgnored {
      var last = content.record.last
      for push in pushes {
        guard push.id > last else { return .refused }
        last = push.id
      }
    }
    content.pushes += pushes
    for change in changes { content.state.apply(change) }
    content.record.sequence = number
    if let last = pushes.last { content.record.last = last.id }
    return .ok
  }

  func replace(
    _ token: HolderToken, _ history: String, expected: UInt64, number: UInt64, _ state: StoredState, _ bug: PlantedBug?
  ) -> RedisReply {
    guard isSame(content.record.token, token, bug), content.record.history == history,
      content.record.sequence == expected
    else { return .refused }
    content.state = state
    content.record.sequence = number
    return .ok
  }

  func stamp(
    _ token: HolderToken, from: String, to: String, expected: UInt64, counter: UInt32, _ bug: PlantedBug?
  ) -> RedisReply {
    guard isSame(content.record.token, token, bug), content.record.history == from, content.record.sequence == expected
    else { return .refused }
    content.record.history = to
    content.record.counter = counter
    return .ok
  }

  func release(
    _ token: HolderToken, _ history: String, expected: UInt64, to successor: GatewayID?, _ bug: PlantedBug?
  ) -> RedisReply {
    guard isSame(content.record.token, token, bug), content.record.history == history,
      content.record.sequence == expected
    else { return .refused }
    content.record.token = nil
    content.record.successor = successor
    return .ok
  }

  /// The entries after `id`.
  func pushes(after id: PushEntryID) -> [PushEntry] {
    var low = 0
    var high = content.pushes.count
    while low < high {
      let middle = (low + high) / 2
      if content.pushes[middle].id > id { high = middle } else { low = middle + 1 }
    }
    return Array(content.pushes[low...])
  }
}

/// A connection of one gateway, with its commands in order.
final class RedisConnection {
  struct Command {
    let time: Int
    let publishes: Int
    let execute: (RedisServer) -> RedisReply
    let then: (RedisReply, Bool) -> Void
  }

  let server: RedisServer
  var isOpen = true
  var isSubscribed = false
  var notify: (Int) -> Void = { _ in }
  var sent: [Command] = []
  /// Executed commands whose WAIT is pending.
  var executed: [(command: Command, reply: RedisReply)] = []
  /// Replies and notifications that the gateway has not read.
  var received: [() -> Void] = []

  init(_ server: RedisServer) { self.server = server }
}
