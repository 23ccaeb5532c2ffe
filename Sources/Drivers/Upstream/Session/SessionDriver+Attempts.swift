import ByteStreams
import Metrics
import Reactor
import UpstreamSession
import WebSocketCodec

/// Starts connection attempts: chooses the URL, and asks the limiter of its host.
extension SessionDriver {
  /// Where an attempt leads, and the settings of its connection.
  private struct Destination {
    /// nil if the URL must be read first.
    var url: WebSocketURL?
    var settings: PreparedSettings
    /// Whether the upstream has sent the URL.
    var isCaptured = false
  }

  /// Starts an attempt, or returns the time at which the host's limit allows it.
  func start(_ dial: Dial) -> MonotonicTime? {
    let destination = destination(of: dial)
    if let url = destination.url, let slot = admit(url, dial) { return slot }
    let connection = UpstreamConnection(
      dial, url: destination.url, destination.settings, metrics: metrics,
      flushesAfterEachMessage: sink.flushesAfterEachMessage, permission: handle.permission,
      mustPauseReading: handle.journal.map { [handle] journal in
        { [weak self] in handle.mustPauseReading(journal) || self?.delayed?.isFull == true }
      },
      owner: self, loop: loop)
    delayedURL = nil
    connection.isCountedAttempt = destination.url != nil
    connection.hasCapturedURL = destination.isCaptured
    connections.append(connection)
    // The status shows the sending connection, if there is one.
    if machine.sending == nil { status.show(connection) }
    connection.open(with: dialer)
    return nil
  }

  private func destination(of dial: Dial) -> Destination {
    switch dial.target {
    case .redirection(from: let index):
      guard let redirection else { return configured(index) }
      // If the URL that redirected was read from a file or command, its origin still counts as configured, and may get
      // secrets.
      return Destination(
        url: redirection, settings: redirectingURL.map { preparedSettings.reading($0.value) } ?? preparedSettings,
        isCaptured: isRedirectedFromCapturedURL)
    case .endpoint(let index):
      let own = configured(index)
      guard let captured = capturedURL(insteadOf: own.url) else { return own }
      return Destination(url: captured, settings: preparedSettings, isCaptured: true)
    }
  }

  private func configured(_ index: Int) -> Destination {
    guard settings.urlSource.isSet else { return Destination(url: settings.urls[index], settings: preparedSettings) }
    guard let delayed = delayedURL?.value, loop.now <= delayed.end else {
      return Destination(url: nil, settings: preparedSettings)
    }
    return Destination(url: delayed.url, settings: preparedSettings.reading(delayed.url))
  }

  /// The URL of a connection was read, which took `time`. If the limit of its host delays the attempt, it begins again
  /// at that time, or earlier if the URL must be read again before.
  func located(_ connection: UpstreamConnection, at url: WebSocketURL, after time: TimeSpan) {
    if let slot = admit(url, connection.dial) {
      drop(connection)
      let plan = DelayedURLPlan(slot: slot, readingTook: time, now: loop.now)
      delayedURL = plan.end.map { Boxed(DelayedURL(url: url, end: $0)) }
      apply(machine.postponed(until: plan.attempt, connection.generation, now: loop.now))
    } else {
      connection.isCountedAttempt = true
      if machine.sending == nil { status.show(connection) }
      apply([])
    }
  }

  /// Returns nil if an attempt to `url` may start now, or the time at which the limit of its host allows it.
  private func admit(_ url: WebSocketURL, _ dial: Dial) -> MonotonicTime? {
    let key = handle.attemptKey(of: url.server)
    switch handle.attemptLimiter.admit(key, ticket, overridesPause: dial.overridesPause, now: loop.now) {
    case .wait(let new):
      if ticket?.host != new.host { giveBackTicket() }
      ticket = new
      metrics.delayedAttempts.add()
      return new.slot
    case .go:
      // Either this attempt has used the ticket, or the ticket is for another host and is given back.
      if ticket?.host == key { ticket = nil } else { giveBackTicket() }
      return nil
    }
  }

  /// Gives back the reserved time, which the session will not use: the session is closed, waits for another event, or
  /// connects to another host.
  func giveBackTicket() {
    guard let ticket else { return }
    handle.attemptLimiter.giveBack(ticket, now: loop.now)
    self.ticket = nil
  }

  /// An attempt has ended, with or without success. It no longer counts against the host's limit.
  func endAttempt(_ connection: UpstreamConnection) {
    guard connection.isCountedAttempt, let url = connection.url else { return }
    connection.isCountedAttempt = false
    handle.attemptLimiter.ended(handle.attemptKey(of: url.server))
  }
}

/// A URL that was read for a delayed attempt.
struct DelayedURL: Sendable {
  let url: WebSocketURL
  /// After this time, the URL is read again.
  let end: MonotonicTime
}
