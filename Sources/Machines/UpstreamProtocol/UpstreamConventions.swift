import ByteStreams
import JSONCodec

/// The conventions of an upstream above WebSocket itself. All are off by default.
package struct UpstreamConventions: Equatable, Sendable {
  package var onOpen: [OpeningMessage] = []
  /// Messages before a close frame of the gateway.
  package var onClose: [Template] = []
  package var client = ClientHeartbeat()
  package var server = ServerHeartbeat()
  /// Messages that end the session at the upstream. The first entry that matches applies.
  package var failures: [Failure] = []
  /// Responses to pushes. The first entry that matches applies.
  package var acknowledgements: [Acknowledgement] = []
  package var codec = PayloadCodec.raw
  package var binary = BinaryMessages.binary
  package var cursor = CursorSource()
  package var topics = TopicSource()
  /// nil if there are no calls.
  package var correlation: Correlation?
  package var subscriptions = SubscriptionRules()
  /// At most `CaptureRule.maximumCount`, with different names.
  package var captures: [CaptureRule] = []
  package var credential = CredentialUse()
  package var kind = UpstreamKind.websocket
  package var socketIO = SocketIOSettings()

  package init() {}

  /// A setup step: a message to send, a response to expect, or both.
  package struct OpeningMessage: Hashable, Sendable {
    /// nil if the step sends nothing.
    package var send: Template?
    /// The message that completes the step; nil if no response is expected.
    package var expect: Matcher?
    /// The message by which the upstream rejects the credentials.
    package var refuse: Matcher?
    /// Matches the responses by which the upstream reports that it has resumed and no push is missing; nil if the step
    /// does not resume.
    package var resumed: Matcher?
    /// The captured value on which the step depends; nil if the step is always executed.
    package var condition: Condition?
    package var timeout = TimeSpan.seconds(10)

    package init() {}

    /// A step whose condition is not met is skipped: nothing is sent, and no response is expected.
    package struct Condition: Hashable, Sendable {
      /// The name of the captured value.
      package let capture: String
      /// Whether the step needs the value. If false, the step is executed only without the value.
      package let isCaptured: Bool

      package init(capture: String, isCaptured: Bool) {
        self.capture = capture
        self.isCaptured = isCaptured
      }
    }
  }

  /// A heartbeat that the gateway sends.
  package struct ClientHeartbeat: Hashable, Sendable {
    /// nil if the gateway sends no heartbeats.
    package var message: Template?
    package var interval = TimeSpan.seconds(30)
    /// The value that replaces `interval` once it is captured; nil if there is none.
    package var intervalCapture: CapturedInterval?
    /// The response, which is not passed to clients; nil if none is expected.
    package var expect: Matcher?
    package var timeout = TimeSpan.seconds(10)

    package init() {}
  }

  /// A heartbeat that the upstream sends.
  package struct ServerHeartbeat: Hashable, Sendable {
    /// Recognises the heartbeat, which is not passed to clients.
    package var match: Matcher?
    /// nil if no response is sent.
    package var reply: Template?
    /// Maximum time between two heartbeats, or between any two messages if `match` is nil; zero if this is not checked.
    package var within = TimeSpan.zero

    package init() {}
  }

  /// A message of the upstream after which the connection is useless, although it stays open.
  package struct Failure: Hashable, Sendable {
    package let match: Matcher
    /// The meaning of the message, for operators.
    package let cause: String
    /// Whether the kept values and the cursor are of no use either.
    package let forgetsCaptures: Bool

    package init(match: Matcher, cause: String, forgetsCaptures: Bool = false) {
      self.match = match
      self.cause = cause
      self.forgetsCaptures = forgetsCaptures
    }

    /// Maximum size of a cause, in bytes.
    package static let maximumCause = 256
  }

  /// The response to a push.
  package struct Acknowledgement: Hashable, Sendable {
    package enum Moment: String, CaseIterable, Sendable {
      case received
      /// When the push is stored. Without a store, as `received`.
      case stored
    }

    package let match: Matcher
    package let send: Template
    package let moment: Moment

    package init(match: Matcher, send: Template, when moment: Moment) {
      self.match = match
      self.send = send
      self.moment = moment
    }

    /// Maximum number of entries in `acknowledgements`. Each entry may scan every push.
    package static let maximumCount = 16
  }

  /// How binary messages of the upstream are passed on.
  package enum BinaryMessages: String, CaseIterable, Sendable {
    case binary
    /// As text, if they are UTF-8.
    case text
  }

  /// The source of `${cursor}`.
  package struct CursorSource: Hashable, Sendable {
    /// The location of the cursor in a push; nil if pushes have no cursor.
    package var pointer: JSONPointer?
    /// Matches the pushes that contain a cursor; nil if each value at `pointer` is a cursor.
    package var match: Matcher?
    /// The cursor before the first push.
    package var initial: Template?

    package init() {}

    /// Maximum size of a cursor, in bytes. A longer value is ignored.
    package static let maximumBytes = 1_024
  }

  /// Whether each message of the upstream must be examined.
  package var examinesMessages: Bool {
    codec != .raw || client.expect != nil || server.match != nil || server.within > .zero || cursor.pointer != nil
      || subscriptions.ended.match != nil || correlation?.ids == .sequence || !failures.isEmpty
      || !captures.isEmpty || !acknowledgements.isEmpty || binary == .text || onOpen.contains { $0.expect != nil }
  }

  /// The names of the captured values that outlive connections.
  package var keptCaptures: [String] { captures.filter(\.isKept).map(\.name) }

  /// The files to read for a connection.
  package var files: Set<String> {
    (templates.map(\.template) + protocolTemplates).reduce(into: []) { $0.formUnion($1.files) }
  }

  /// The templates, each with the path of its setting below `upstream`. The sections of protocols have further
  /// templates (`protocolTemplates`).
  package var templates: [(key: String, template: Template)] {
    let settings: [(key: String, templates: [Template?])] = [
      ("on_open", onOpen.map(\.send)), ("on_close", onClose), ("heartbeat", [client.message, server.reply]),
      ("acknowledge", acknowledgements.map(\.send)),
      ("credential.header", [credential.header]), ("cursor.initial", [cursor.initial]),
    ]
    return settings.flatMap { setting in setting.templates.compactMap { $0 }.map { (setting.key, $0) } }
  }
}
