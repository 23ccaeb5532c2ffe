import ByteStreams
import Dialing
import Host
import Outbox
import ProxyCodec
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// One connection to an upstream, from the attempt until its end: WebSocket frames over a transport.
///
/// The connection reports events (`ConnectionEvent`) to its owner, which decides what to do. Two tasks run it, one
/// after the other: the attempt and the reader. It is used only on the loop of its owner.
///
/// Reading is in `UpstreamConnection+Reading`, writing in `UpstreamConnection+Writing`.
final class UpstreamConnection: TurnEndTarget {
  let dial: Dial
  /// The URL; nil until it was read from `upstream.url.file` or `upstream.url.command`.
  private(set) var url: WebSocketURL?
  /// The proxy; nil if the connection to the upstream is direct.
  private(set) var proxy: ProxyURL?
  /// The settings with which the connection was started. A reload may have changed the settings of the session.
  private(set) var preparedSettings: PreparedSettings
  let loop: LoopContext
  let metrics: UpstreamMetrics
  /// Whether messages posted during the report of a message are written at once.
  let flushesAfterEachMessage: Bool
  /// The permission to write; nil if the connection may always write.
  private let permission: WritePermission?
  private let owner: SessionDriver

  /// The reading of the URL, which comes before the attempt; nil at other times.
  private var reading: URLReading?
  /// The connection attempt; nil when the connection is open or discarded.
  private var attempt: ConnectionAttempt?
  /// The files and the credential that were read for this connection; nil if there are none.
  private var secrets: Boxed<TemplateValues>?
  /// The application protocol; nil if every message is sent and passed on unchanged.
  let conversation: Conversation?
  private(set) var transport: Transport?
  /// Usable when `isOpen`. Its `payload` belongs to the message that is being reported.
  var socket = WebSocketConnection(role: .client)
  private(set) var isOpen = false
  /// Whether the owner has discarded the connection. A discarded connection reports no events.
  private(set) var isDiscarded = false

  // State that belongs to the owner.
  /// Whether the limiter counts the connection as an attempt in progress at its host.
  var isCountedAttempt = false
  /// Whether the upstream has sent the URL of this connection (`upstream.url_from`). Becomes false with the first push,
  /// which shows that the URL works.
  var hasCapturedURL = false
  /// Whether the log has a warning that a captured heartbeat interval is not a valid time.
  var hasWarnedOfInterval = false
  /// Whether the connection has become ready, and the subscriptions were sent.
  var hasResubscribed = false
  /// Whether a client's message was sent on this connection, so that the upstream may send responses to clients on it.
  var carriesMessages = false
  /// The namespaces of the upstream, and the maximum size of a message that it accepts.
  var announced: (namespaces: [NamespaceStatus], maximumPayload: Int?) = ([], nil)
  /// The number of pings that were sent since the last pong, and the time of the first of these pings.
  var unansweredPings: (count: Int, since: MonotonicTime)?

  // Writing.
  /// The code of the close frame that was sent; 1005 if the frame had no code.
  var sentCloseCode: UInt16?
  var priority = PriorityMessages()
  var marks = OutputMarks()
  var isFlushScheduled = false
  /// Whether the owner has more messages than one turn may write.
  var hasMoreToSend = false
  /// Whether the kernel accepts no more output. `unblocked` is called when the kernel accepts output again.
  var isBlocked = false
  /// Whether the output has reached its high-water mark and has not fallen to its low-water mark since. While this is
  /// true, no messages are requested.
  var isThrottled = false
  /// Returns whether reading must pause because too many changes are not stored yet or too many acknowledgements are
  /// pending; nil if the session is not stored.
  private let mustPauseReading: (() -> Bool)?
  /// The large message that another thread processes.
  var preparedMessage: LargeMessage?
  /// The reading task while it is paused.
  private var pausedReading: CheckedContinuation<Void, Never>?

  init(
    _ dial: Dial, url: WebSocketURL?, _ preparedSettings: PreparedSettings, metrics: UpstreamMetrics,
    flushesAfterEachMessage: Bool, permission: WritePermission?, mustPauseReading: (() -> Bool)?,
    owner: SessionDriver, loop: LoopContext
  ) {
    self.mustPauseReading = mustPauseReading
    self.dial = dial
    self.url = url
    self.preparedSettings = preparedSettings
    self.metrics = metrics
    self.flushesAfterEachMessage = flushesAfterEachMessage
    self.permission = permission
    self.owner = owner
    self.loop = loop
    proxy = url.flatMap { preparedSettings.value.proxy(for: $0) }
    conversation = Conversation(preparedSettings)
  }

  var generation: Generation { dial.generation }
  /// The number of the connection's generation. A later connection has a larger number.
  var number: UInt64 { generation.number }

  var settings: UpstreamSettings {
    _read { yield preparedSettings.value }
  }

  /// Whether the connection leads to a configured origin or a listed host, which may get secrets.
  var hasConfiguredOrigin: Bool { url.map { settings.isConfigured($0) } == true }

  /// Hides this connection's secrets in texts of the upstream.
  var mask: SecretMask {
    SecretMask(
      of: secrets?.value ?? TemplateValues(), settings, url: url, proxy: proxy,
      captures: conversation?.state.captures ?? [:], encodedTexts: conversation?.state.encodedTexts ?? [])
  }

  /// Starts the attempt. If the URL must be read first, the owner decides with `located` whether the attempt follows.
  func open(with dialer: any Dialer) {
    guard let url else {
      let reading = URLReading(preparedSettings, loop: loop) { self.handle($0, dialer) }
      self.reading = reading
      return loop.spawn(reading)
    }
    let attempt = ConnectionAttempt(
      dial, url: url, proxy: proxy, preparedSettings, dialer: dialer, permission: permission, loop: loop
    ) { self.handle($0) }
    self.attempt = attempt
    loop.spawn(attempt)
  }

  private func handle(_ event: URLReading.Event, _ dialer: any Dialer) {
    guard !isDiscarded else { return }
    reading = nil
    switch event {
    case .read(let url, let time):
      self.url = url
      preparedSettings = preparedSettings.reading(url)
      proxy = settings.proxy(for: url)
      report(.located(url, after: time))
      if !isDiscarded { open(with: dialer) }
    case .failed(let failure): report(.failed(failure))
    }
  }

  private func handle(_ event: ConnectionAttempt.Event) {
    guard !isDiscarded else { return }
    switch event {
    case .prepared(let values):
      if conversation != nil || values.hasSecrets { secrets = Boxed(values) }
      conversation?.state.begin(connection: number, values)
      report(.prepared)
    case .advanced(let phase):
      report(.advanced(phase))
    case .upgraded(let transport, let agreement, let received):
      attempt = nil
      self.transport = transport
      var compression = agreement.compression
      compression?.largestAtOnce = Self.compressedPerTurn
      compression?.inflatedAtOnce = Self.inflatedPerTurn
      socket = WebSocketConnection(role: .client, limits: settings.limits, compression: compression)
      socket.receive(received.span)
      isOpen = true
      report(.upgraded(agreement))
      loop.spawn(ReadTask(self))
    case .redirected(let url):
      attempt = nil
      report(.redirected(url))
    case .failed(let failure):
      attempt = nil
      report(.failed(failure))
    case .cancelled:
      attempt = nil
    }
  }

  /// The work on a large message, for another thread.
  var preparation: MessagePreparation { owner.preparation(of: self) }

  func report(_ event: ConnectionEvent) { owner.connection(self, reports: event) }

  /// The local address; nil before there is a socket.
  var localAddress: SocketAddress? {
    guard let channel = (transport ?? attempt?.transport)?.channel, !channel.isClosed else { return nil }
    return try? Sockets.localAddress(of: channel.descriptor)
  }

  // MARK: Pauses

  /// Whether reading must pause because too much output is not sent yet, or too many changes are not stored yet. While
  /// reading is paused, TCP slows the upstream down.
  var mustNotRead: Bool { priority.isFull && socket.canSend || mustPauseReading?() == true }

  /// Not inlined. If it were, the task of each idle connection would keep the stack memory of this function.
  @inline(never)
  func waitUntilReadingIsAllowed() async {
    while !isDiscarded, mustNotRead { await withCheckedContinuation { pausedReading = $0 } }
  }

  var isReadingPaused: Bool { pausedReading != nil || preparedMessage != nil }

  /// Resumes reading if it is paused. Returns whether it was paused.
  @discardableResult
  func resumeReading() -> Bool {
    guard let task = pausedReading else { return false }
    pausedReading = nil
    task.resume()
    return true
  }

  /// Ends the connection in any state. It may report `written` during this call, and reports no event afterwards.
  func discard() {
    guard !isDiscarded else { return }
    isDiscarded = true
    resumeReading()
    reading?.cancel()
    reading = nil
    preparedMessage?.cancel()
    attempt?.cancel()
    attempt = nil
    guard let transport else { return }
    if socket.hasSentClose, !isBlocked, flushFinally() {
      // Sends FIN and not a reset: after a reset, the upstream's kernel could discard the close frame.
      transport.close()
    } else {
      transport.reset()
    }
  }
}
