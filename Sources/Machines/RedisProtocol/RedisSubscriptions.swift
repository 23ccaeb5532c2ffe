import ByteStreams
import RESPCodec

/// The conversation on a connection that only subscribes to channels: changes and their confirmations, messages, and
/// liveness.
///
/// If nothing arrives for `pingInterval`, a PING is sent. If nothing arrives for `pongTimeout` after the PING, the
/// connection has failed. A process that was stopped for a while sends a PING first, so its own pause is not taken for
/// silence of the server.
package struct RedisSubscriptions: Sendable {
  package enum Event: Hashable, Sendable {
    /// From now on, all messages of the channel arrive.
    case subscribed(String)
    case unsubscribed(String)
    case message(channel: String, payload: [UInt8])
  }

  /// How long nothing may arrive before a PING is sent.
  package static var pingInterval: TimeSpan { .seconds(1) }
  /// How long nothing may arrive after a PING.
  package static var pongTimeout: TimeSpan { .seconds(2) }
  /// How long a change may lack a confirmation while other data arrives. Redis confirms some 300,000 changes per
  /// second.
  package static var changeTimeout: TimeSpan { .seconds(5) }
  /// Maximum number of unconfirmed changes, apart from the initial changes. The limit keeps the memory from growing
  /// without end while Redis does not confirm.
  package static var changeLimit: Int { 131_072 }
  /// Number of channels per command. Between two such commands, Redis executes commands of other clients.
  static var channelsPerCommand: Int { 1_000 }

  private struct Change {
    var subscribes = false
    var channel = ""
    var deadline = MonotonicTime.distantFuture
  }

  private var changes = RingDeque(filler: Change())
  private var lastReceived: MonotonicTime
  /// The time of the oldest PING after which nothing has arrived.
  private var unansweredPing: MonotonicTime?
  private var pongsExpected = 0

  /// Appends the commands that subscribe to the initial channels. Their number is not limited, since the owner stores
  /// them anyway.
  package init(to channels: [String], now: MonotonicTime, into output: inout ByteQueue) {
    lastReceived = now
    write(channels, subscribing: true, now: now, into: &output)
  }

  /// Number of unconfirmed changes.
  package var pendingChanges: Int { changes.count }

  // MARK: Changes

  /// Appends commands that subscribe to `channels`, or end the subscriptions. Returns false, and does nothing, if there
  /// would be too many unconfirmed changes.
  package mutating func change(
    _ channels: [String], subscribing: Bool, now: MonotonicTime, into output: inout ByteQueue
  ) -> Bool {
    guard channels.count <= Self.changeLimit - changes.count else { return false }
    write(channels, subscribing: subscribing, now: now, into: &output)
    return true
  }

  private mutating func write(
    _ channels: [String], subscribing: Bool, now: MonotonicTime, into output: inout ByteQueue
  ) {
    var rest = channels[...]
    while !rest.isEmpty {
      let some = rest.prefix(Self.channelsPerCommand)
      rest = rest.dropFirst(some.count)
      output.append(command: [subscribing ? "SUBSCRIBE" : "UNSUBSCRIBE"] + some.map { .text($0) })
    }
    for channel in channels {
      changes.append(Change(subscribes: subscribing, channel: channel, deadline: now + Self.changeTimeout))
    }
  }

  /// Processes a reply of the server. Returns nil for a pong.
  package mutating func receive(_ reply: RESPReply, now: MonotonicTime) throws(RedisFailure) -> Event? {
    lastReceived = now
    unansweredPing = nil
    switch reply {
    case .error(let text): throw .refused(RedisError(text))
    // Without any subscription, PING gets the reply of an ordinary connection.
    case .simple("PONG"):
      try takePong()
      return nil
    case .array(let elements): return try read(elements)
    case .simple, .integer, .bulk, .null: throw .violation("a reply that does not belong to a subscription")
    }
  }

  private mutating func read(_ elements: [RESPReply]) throws(RedisFailure) -> Event? {
    guard let kind = elements.first?.text else { throw .violation("an array without a kind") }
    switch (kind, elements.count) {
    case ("message", 3):
      guard let channel = elements[1].text, let payload = elements[2].bytes else { break }
      return .message(channel: channel, payload: payload)
    case ("subscribe", 3), ("unsubscribe", 3):
      let subscribes = kind == "subscribe"
      guard !changes.isEmpty, let channel = elements[1].text else { break }
      let change = changes[changes.front]
      guard change.subscribes == subscribes, change.channel == channel else { break }
      changes.removeFirst()
      return subscribes ? .subscribed(channel) : .unsubscribed(channel)
    case ("pong", 2):
      try takePong()
      return nil
    default: break
    }
    throw .violation("'\(PrintableText.escaped(String(kind.prefix(16))))' that was not expected")
  }

  private mutating func takePong() throws(RedisFailure) {
    guard pongsExpected > 0 else { throw .violation("a PONG without a PING") }
    pongsExpected -= 1
  }

  // MARK: Time

  /// When `timeout` must be called.
  package var deadline: MonotonicTime {
    let confirmation = changes.isEmpty ? MonotonicTime.distantFuture : changes[changes.front].deadline
    return min(confirmation, unansweredPing.map { $0 + Self.pongTimeout } ?? lastReceived + Self.pingInterval)
  }

  /// Sends a PING if one is due. Throws if the server has been silent for too long.
  package mutating func timeout(now: MonotonicTime, into output: inout ByteQueue) throws(RedisFailure) {
    if !changes.isEmpty, changes[changes.front].deadline <= now {
      throw .timeout("Redis did not confirm a subscription")
    }
    if let ping = unansweredPing {
      if ping + Self.pongTimeout <= now { throw .timeout("Redis did not reply to PING") }
    } else if lastReceived + Self.pingInterval <= now {
      unansweredPing = now
      pongsExpected += 1
      output.append(command: ["PING"])
    }
  }
}
