import ByteStreams
import Configuration
import ProxyCodec
import Reactor
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// One connection to an upstream, from the attempt to open it to its end: WebSocket frames in and out over a transport.
///
/// It gets what it needs at creation, and reports to its owner what happens (`ConnectionEvent`); what follows is the owner's decision.
/// Two tasks run it, one after the other: the attempt, and the one that reads. It lives on its owner's loop.
///
/// Reading is in `UpstreamConnection+Reading`, writing in `UpstreamConnection+Writing`.
final class UpstreamConnection: TurnEndTarget {
  let dial: Dial
  let url: WebSocketURL
  /// nil where the upstream is connected to directly.
  let proxy: ProxyURL?
  /// Those that it was started with; a reload may have given the session others since.
  let sharedSettings: SharedSettings
  let loop: LoopContext
  let metrics: UpstreamMetrics
  /// Whether what is posted during the report of a message is written at once.
  let flushesAfterEachMessage: Bool
  private let owner: any ConnectionOwner

  /// nil once the connection is open, and where there is none any more.
  private var attempt: ConnectionAttempt?
  /// The secrets of this connection.
  private(set) var secrets = TemplateValues()
  /// What is spoken above WebSocket; nil where every message is sent and passed on as it is.
  let conversation: Conversation?
  private(set) var transport: Transport?
  /// Of use once `isOpen`. `payload` is that of the message that is being reported.
  var socket = WebSocketConnection(role: .client)
  private(set) var isOpen = false
  /// The owner gave it up: its events do not matter any more.
  private(set) var isDiscarded = false

  // Kept here for the owner.
  /// Counted among the attempts of its host that are under way.
  var isCountedAttempt = true
  /// The subscriptions were made.
  var hasResubscribed = false
  /// A client's message went out here: the upstream may respond to clients.
  var carriesMessages = false

  // Writing.
  var priority = PriorityMessages()
  var marks = OutputMarks()
  var isFlushScheduled = false
  /// The owner has more messages than one turn may write.
  var hasMoreToSend = false
  /// The kernel takes nothing now; a `FlushTask` waits for it.
  var isBlocked = false
  /// Beyond high water. Until low water no message is asked for.
  var isHeld = false

  init(
    _ dial: Dial, url: WebSocketURL, _ sharedSettings: SharedSettings, metrics: UpstreamMetrics,
    flushesAfterEachMessage: Bool, owner: any ConnectionOwner, loop: LoopContext
  ) {
    self.dial = dial
    self.url = url
    self.sharedSettings = sharedSettings
    self.metrics = metrics
    self.flushesAfterEachMessage = flushesAfterEachMessage
    self.owner = owner
    self.loop = loop
    proxy = sharedSettings.value.proxy(for: url)
    conversation = Conversation(sharedSettings)
  }

  var generation: Generation { dial.generation }

  var settings: UpstreamSettings {
    _read { yield sharedSettings.value }
  }

  /// Hides this connection's secrets in what the upstream says.
  var mask: SecretMask { SecretMask(of: secrets, settings, url: url, proxy: proxy) }

  /// Starts the attempt.
  func open(with dialer: any Dialer) {
    let attempt = ConnectionAttempt(
      dial, url: url, proxy: proxy, sharedSettings, dialer: dialer, loop: loop
    ) { self.attempted($0) }
    self.attempt = attempt
    loop.spawn(attempt)
  }

  private func attempted(_ event: ConnectionAttempt.Event) {
    guard !isDiscarded else { return }
    switch event {
    case .prepared(let values):
      secrets = values
      conversation?.adopt(values)
      report(.prepared)
    case .advanced(let phase):
      report(.advanced(phase))
    case .upgraded(let transport, let agreement, let received):
      attempt = nil
      self.transport = transport
      socket = WebSocketConnection(role: .client, limits: settings.limits, compression: agreement.compression)
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

  func report(_ event: ConnectionEvent) { owner.connection(self, reports: event) }

  /// Our end of the connection; nil before there is one.
  var localAddress: SocketAddress? {
    guard let channel = (transport ?? attempt?.transport)?.channel, !channel.isClosed else { return nil }
    return try? Sockets.localAddress(of: channel.descriptor)
  }

  /// Ends the connection wherever it is. After it only `written` is reported, and that during this call.
  func discard() {
    guard !isDiscarded else { return }
    isDiscarded = true
    attempt?.cancel()
    attempt = nil
    guard let transport else { return }
    if socket.hasSentClose, !isBlocked, flushLast() {
      // Closed in order, as far as we are concerned: FIN, and the close frame is not thrown away.
      transport.close()
    } else {
      transport.reset()
    }
  }
}
