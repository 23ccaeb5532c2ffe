import ByteStreams
import UpstreamProtocol
import Glibc
import Reactor
import TLSEngine
import UpstreamSession
import WebSocketCodec

/// One dial, and the connection it becomes: a task from the first look-up to the answered upgrade, and one that reads from then
/// on. Two, because a task keeps the memory of its deepest call to its end, and an opening goes four times as deep.
///
/// It knows its driver and reports to it under its generation; what follows is not its business. Reading is in
/// `UpstreamLink+Reading`, the way there in `UpstreamLink+Opening`, writing in `UpstreamLink+Writing`.
final class UpstreamLink: LoopTask, TurnEndTarget {
  let dial: Dial
  let url: UpstreamURL
  /// The proxy between; nil where there is none.
  let proxy: ProxyURL?
  let driver: UpstreamDriver
  /// Those that it was started with; a reload may have given the driver others since.
  let sharedSettings: SharedSettings
  let loop: LoopContext
  /// Set while addresses are being tried, so that giving up can end it.
  var race: ConnectRace?
  /// Set while a file is read or a command runs, likewise.
  var blockingWait: BlockingWait?
  /// For `wss`, from the preparation to the handshake.
  var tlsContext: TLSContext?
  var transport: UpstreamTransport?
  /// Of use once `isOpen`.
  var socket = WebSocketConnection(role: .client)
  var isOpen = false
  /// Counted among the dials of its host that are under way.
  var isDialling = true
  /// The session gave this link up: nothing is reported any more.
  private(set) var isDiscarded = false

  // Writing.
  /// Messages of the session itself: they overtake the queue.
  var lane = PriorityMessages()
  /// Where each message in the output ends, for telling which are with the kernel.
  var marks: [Mark] = []
  var firstMark = 0
  var isFlushScheduled = false
  /// The queue had more than one turn may take.
  var isMoreWaiting = false
  /// The kernel takes nothing now; a `FlushTask` waits for it.
  var isBlocked = false
  /// Beyond high water; until low water nothing is taken from the queue.
  var isHeld = false

  /// A message of the queue went out here: the upstream may respond to clients.
  var carriesMessages = false

  // The session's own messages.
  /// The subscriptions were made.
  var hasSubscribed = false
  var decoder: PayloadDecoder
  /// For the blanks in them.
  var values = TemplateValues()
  /// Opening messages that are made, by their step.
  var prepared: [Int: PriorityMessage] = [:]
  /// The opening message whose answer is awaited.
  var awaited: Int?
  /// The beginning of the message that refused it, for a person.
  var refusalText = ""

  /// One message in the output: from where to where its frame reaches.
  struct Mark {
    let start: UInt64
    let end: UInt64
    let sequence: UInt64
  }

  init(_ dial: Dial, url: UpstreamURL, driver: UpstreamDriver) {
    self.dial = dial
    self.url = url
    proxy = driver.settings.proxy(for: url)
    self.driver = driver
    sharedSettings = driver.sharedSettings
    loop = driver.loop
    decoder = PayloadDecoder(driver.settings.conventions.codec, limit: driver.settings.limits.messageBytes)
  }

  var generation: Generation { dial.generation }

  var settings: UpstreamSettings {
    _read { yield sharedSettings.value }
  }

  func run() async {
    do throws(OpeningEnd) {
      try await open()
    } catch {
      transport?.close()
      driver.openingEnded(self, error)
      return
    }
    loop.spawn(ReadTask(self))
  }

  /// Ends the link wherever it stands. After it the driver hears nothing more of it.
  func discard() {
    guard !isDiscarded else { return }
    isDiscarded = true
    race?.cancel()
    blockingWait?.end()
    guard let transport else { return }
    if socket.hasSentClose, !isBlocked, flushLast() {
      // Closed in order, as far as we are concerned: FIN, and the close frame is not thrown away.
      transport.close()
    } else if !isOpen {
      transport.close()
    } else {
      transport.reset()
    }
  }
}
