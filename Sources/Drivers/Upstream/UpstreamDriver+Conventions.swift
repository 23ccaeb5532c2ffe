import ByteStreams
import UpstreamProtocol
import Logging
import Metrics
import Outbox
import Reactor
import UpstreamSession

/// The opening and the heartbeats that are messages.
extension UpstreamDriver {
  var conventions: UpstreamConventions { settings.conventions }

  var keepsSubscriptions: Bool { settings.keepsSubscriptions }

  // MARK: Opening

  /// Makes the opening messages from `first` on, up to one whose answer is awaited; false where one cannot be made, and the
  /// opening has failed. Made before the session is told to go on: once it is, there is no way back.
  func prepareOpening(_ link: UpstreamLink, from first: Int) -> Bool {
    guard link.settings.conventions.onOpen.isEmpty || link.settings.isConfigured(link.url) else {
      failOpening(
        link, .redirect, "redirected to \(link.url.redacted), another origin, which gets nothing of 'upstream.on_open'")
      return false
    }
    for index in first..<link.settings.conventions.onOpen.count {
      let step = link.settings.conventions.onOpen[index]
      if let template = step.send {
        do throws(TemplateError) {
          link.prepared[index] = try render(template, .setup, for: link)
        } catch {
          failOpening(link, .preparation, "'send' of \(OpeningPhase.name(ofStep: index)) cannot be made: \(error)")
          return false
        }
      }
      if step.expect != nil { return true }
    }
    return true
  }

  func sendOpening(step: Int, _ link: UpstreamLink) {
    if let message = link.prepared.removeValue(forKey: step) { link.sendOwn(message) }
    link.awaited = link.settings.conventions.onOpen[step].expect == nil ? nil : step
    lastAwaited = link.awaited.map { (step: $0, since: loop.now) }
  }

  func openingAnswered(_ link: UpstreamLink) {
    guard let step = link.awaited else { return }
    link.awaited = nil
    guard prepareOpening(link, from: step + 1) else { return }
    apply(machine.openingAnswered(link.generation, now: loop.now, using: &entropy))
  }

  /// Ends an opening that went wrong after the upgrade.
  func failOpening(_ link: UpstreamLink, _ reason: OpeningFailure.Reason, _ text: String) {
    let report = OpeningReport(.opening, reason, text)
    detail = text
    self.report = report
    link.sendClose(1000)
    drop(link)
    apply(machine.openingFailed(report.failure, link.generation, now: loop.now, using: &entropy))
  }

  /// What a transition's cause does not tell by itself.
  func explanation(of cause: TransitionCause) -> String? {
    switch cause {
    case .openingFailed(let failure) where failure.reason == .openingAnswer:
      missingResponse()
    case .openingFailed(let failure) where failure.reason == .timedOut:
      failure.phase.timeoutText(settings.session.limits.limit(of: failure.phase), key: failure.phase.timeoutKey)
    case .openingFailed(let failure) where failure.reason == .openingTimedOut:
      failure.phase.timeoutText(settings.session.limits.wholeOpening, key: "opening")
    case .lost(.silence):
      "nothing came from the upstream in the time after a ping ('upstream.heartbeat.timeout')"
    case .lost(.heartbeat):
      "no heartbeat, or no answer to one, came in time ('upstream.heartbeat')"
    default: nil
    }
  }

  private func missingResponse() -> String {
    let awaited = lastAwaited ?? (step: 0, since: loop.now)
    let steps = conventions.onOpen
    let limit = awaited.step < steps.count ? steps[awaited.step].timeout : .zero
    let step = "upstream.on_open[\(awaited.step)]"
    let key = loop.now - awaited.since < limit ? "upstream.timeouts.on_open" : "\(step).timeout"
    return "the upstream sent nothing in time that '\(step).expect' matches"
      + " (step \(awaited.step + 1); '\(key)')"
  }

  // MARK: Subscriptions

  /// Kept from when it is written: one that waits in the queue must not be said twice.
  @inline(__always)
  func noteSubscription(_ message: OutboxMessage) {
    guard keepsSubscriptions else { return }
    note(subscriptions.sent(message.payload, kind: message.kind))
  }

  /// A push may say that a subscription has ended.
  func noteEnd(_ payload: Span<UInt8>) { note(subscriptions.received(payload)) }

  private func note(_ effect: SubscriptionLedger.Effect) {
    switch effect {
    case .none: return
    case .kept, .removed: break
    case .noRoom:
      let limits = conventions.subscriptions
      logger.warning(
        "a subscription is not kept: it will be missing on the next connection",
        [
          .number("subscriptions", subscriptions.count), .number("entries", limits.entries),
          .number("bytes", limits.bytes),
        ])
    }
    metrics.subscriptions.set(subscriptions.count)
  }

  /// Makes the subscriptions anew, once on each connection, ahead of the queue.
  func sayAgain(on link: UpstreamLink) {
    guard !link.hasSubscribed else { return }
    link.hasSubscribed = true
    for entry in subscriptions.messages {
      link.sendOwn(PriorityMessage(.setup, kind: entry.kind, payload: entry.payload))
    }
  }

  // MARK: Heartbeats

  func sendHeartbeat(_ counter: UInt64, _ generation: Generation) {
    guard let link = link(generation), let template = conventions.client.message else { return }
    link.values.counter = counter
    do throws(TemplateError) {
      link.sendOwn(try render(template, .heartbeat, for: link))
      metrics.sentHeartbeats.add()
    } catch {
      logger.warning("a heartbeat cannot be made", [.text("reason", error.description)])
    }
  }

  func answer(_ link: UpstreamLink, with template: Template) {
    do throws(TemplateError) {
      link.sendOwn(try render(template, .reply, for: link))
    } catch {
      logger.warning("a heartbeat of the upstream cannot be answered", [.text("reason", error.description)])
    }
    link.values.answered = []
  }

  func heartbeatReceived(_ link: UpstreamLink) {
    machine.heartbeatReceived(link.generation, now: loop.now)
  }

  func heartbeatAnswered(_ link: UpstreamLink) { machine.heartbeatAnswered(link.generation) }

  private func render(
    _ template: Template, _ purpose: PriorityMessage.Purpose, for link: UpstreamLink
  ) throws(TemplateError) -> PriorityMessage {
    link.values.now = loop.wallClock
    link.values.cursor = cursor
    if cursor == nil, let initial = conventions.cursor.initial {
      link.values.cursor = try initial.rendered(with: link.values)
    }
    let payload = SharedBytes(try template.rendered(with: link.values))
    return PriorityMessage(purpose, kind: .text, payload: payload)
  }
}

extension OpeningPhase {
  /// A step of `upstream.on_open`, counted as people do, and with its key as errors of the configuration have it.
  static func name(ofStep index: Int?) -> String {
    let index = index ?? 0
    return "step \(index + 1) of the opening ('upstream.on_open[\(index)]')"
  }

  /// What was not there within `limit`, and which setting of `upstream.timeouts` says how long that is.
  fileprivate func timeoutText(_ limit: TimeSpan, key: String) -> String {
    "\(awaited) did not arrive within \(limit.seconds) s ('upstream.timeouts.\(key)')"
  }

  /// What a connection attempt waits for in this phase.
  private var awaited: String {
    switch self {
    case .resolving: "the name server's response for the upstream's name"
    case .connecting: "the upstream's response to the TCP handshake"
    case .proxying: "the proxy's tunnel to the upstream"
    case .securing: "the end of the TLS handshake with the upstream"
    case .upgrading: "the upstream's response to the opening request"
    case .opening: "the upstream's response to an opening message"
    }
  }

  /// The setting that limits this phase, below `upstream.timeouts`.
  fileprivate var timeoutKey: String {
    switch self {
    case .resolving: "resolve"
    case .connecting: "connect"
    case .proxying: "proxy"
    case .securing: "tls"
    case .upgrading: "upgrade"
    case .opening: "on_open"
    }
  }
}
