import ByteStreams
import JSONCodec

/// How an upstream wants to be spoken to, beyond WebSocket itself. Everything is off unless set.
package struct UpstreamConventions: Equatable, Sendable {
  package var onOpen: [OpeningMessage] = []
  package var client = ClientHeartbeat()
  package var server = ServerHeartbeat()
  package var codec = PayloadCodec.raw
  package var cursor = CursorSource()
  package var subscriptions = SubscriptionRules()
  package var credential = CredentialUse()

  package init() {}

  /// A step of the opening: something to say, something to hear, or both.
  package struct OpeningMessage: Hashable, Sendable {
    /// nil: only listens.
    package var send: Template?
    /// The message that completes the step; nil: none is waited for.
    package var expect: Matcher?
    /// The message that says the credentials are refused.
    package var refuse: Matcher?
    package var timeout = TimeSpan.seconds(10)

    package init() {}
  }

  /// A heartbeat that we send.
  package struct ClientHeartbeat: Hashable, Sendable {
    /// nil: none is sent.
    package var message: Template?
    package var interval = TimeSpan.seconds(30)
    /// The answer, which no client gets to see; nil: none is expected.
    package var expect: Matcher?
    package var timeout = TimeSpan.seconds(10)

    package init() {}
  }

  /// A heartbeat that the upstream sends.
  package struct ServerHeartbeat: Hashable, Sendable {
    /// What it looks like; no client gets to see it.
    package var match: Matcher?
    /// nil: it is not answered.
    package var reply: Template?
    /// How often it must come at least, or any message where `match` is nil; zero: it is not watched.
    package var within = TimeSpan.zero

    package init() {}
  }

  /// Where `${cursor}` comes from.
  package struct CursorSource: Hashable, Sendable {
    /// The value in a push that says how far the pushes have come; nil: there is none.
    package var pointer: JSONPointer?
    /// Which pushes carry it; nil: any that has a value there.
    package var match: Matcher?
    /// The cursor before the first push.
    package var initial: Template?

    package init() {}

    /// Longest cursor, in bytes; a longer value is none.
    package static let maximumBytes = 1_024
  }

  /// Whether messages of the upstream must be looked at, each.
  package var examinesMessages: Bool {
    codec != .raw || client.expect != nil || server.match != nil || server.within > .zero || cursor.pointer != nil
      || subscriptions.ended.match != nil || onOpen.contains { $0.expect != nil }
  }

  /// The files that a connection needs.
  package var files: Set<String> {
    let templates = onOpen.map(\.send) + [client.message, server.reply, cursor.initial, credential.header]
    return templates.reduce(into: []) { $0.formUnion($1?.files ?? []) }
  }
}
