import ByteStreams
import HTTPCodec
import Logging
import Reactor
import Threading
import UpstreamProtocol
import UpstreamSession
import WebSocketCodec

/// Captured values of the upstream's messages (`upstream.capture`).
extension SessionDriver {
  /// Acts on the values of the last message. Called before the message is passed on, so that its push and the kept
  /// values are stored together.
  func noteCaptures(of connection: UpstreamConnection, _ conversation: Conversation) {
    guard let news = conversation.state.takeCaptureNews() else { return }
    for (name, refusal) in news.refused.sorted(by: { $0.key < $1.key }) {
      logger.warning(
        "a value of the upstream is not captured", [.text("capture", name), .text("reason", refusal.description)])
    }
    guard !news.changed.isEmpty else { return }
    noteInterval(news, of: connection)
    // While another connection sends, `connection` may still fail, and its values would replace values that are in use.
    if machine.sending == nil || machine.sending == connection.generation { keepCaptures(of: connection) }
    showCaptures()
  }

  private func noteInterval(_ news: CaptureNews, of connection: UpstreamConnection) {
    guard let source = connection.settings.conventions.client.intervalCapture, let value = news.changed[source.capture]
    else { return }
    guard let interval = source.span(value) else {
      // The upstream may send such a value with each message.
      guard !connection.hasWarnedOfInterval else { return }
      connection.hasWarnedOfInterval = true
      logger.warning(
        "a captured value is not a time, so heartbeats keep their interval", [.text("capture", source.capture)])
      return
    }
    machine.heartbeatIntervalAnnounced(interval, connection.generation, now: loop.now)
    armTimer()
  }

  /// Keeps the values of a connection for later connections with the same client identity. After a reload, the
  /// predecessor of a hand-over may have another client identity.
  func keepCaptures(of connection: UpstreamConnection) {
    guard let conversation = connection.conversation, conversation.can(.captures), !conversation.hasForgottenCaptures,
      connection.settings.isSameClient(as: settings)
    else { return }
    runner.keep(conversation.state.capturesToKeep, connection.preparedSettings)
    // While two connections deliver pushes, an earlier push may still be delayed, and the values must not be stored
    // together with it. In this case, `storeCaptures` stores them later.
    if handle.journal != nil, !merger.isOverlapping { sink.remembers(runner.takeUnstoredCaptures()) }
  }

  /// Forgets the kept values and the cursor, since the upstream says that they are of no more use. Later messages of
  /// the connection do not bring them back. While another connection sends, the values in use are the values of that
  /// connection.
  func forgetCaptures(of connection: UpstreamConnection) {
    connection.conversation?.hasForgottenCaptures = true
    guard machine.sending == nil || machine.sending == connection.generation,
      connection.settings.isSameClient(as: settings)
    else { return }
    // Other connections of the session must not bring the values back: a predecessor of a hand-over by later messages,
    // and a connection in setup by the kept values with which it began.
    for other in connections where other !== connection && other.settings.isSameClient(as: settings) {
      let isOlder = other.generation < connection.generation
      if isOlder { other.conversation?.hasForgottenCaptures = true }
      other.conversation?.state.forgetKept(withCursor: isOlder)
    }
    // Values that are still to be stored come first, or the store would have them again.
    storeCaptures()
    runner.forgetCaptures()
    sink.resumes(from: nil)
    runner.forgetCursor()
  }

  /// Stores the kept values that were not stored together with a push.
  func storeCaptures() {
    guard handle.journal != nil, !merger.isOverlapping else { return }
    sink.remembers(runner.takeUnstoredCaptures())
    sink.storeRemembered()
  }

  // MARK: Captured URLs

  /// After this many failed attempts, a captured URL is dropped.
  private static var capturedURLLimit: Int { 2 }

  /// Returns the URL that the upstream has sent for the next attempt, in place of a configured URL. Returns nil if
  /// there is none or it must not be used.
  func capturedURL(insteadOf configured: WebSocketURL?) -> WebSocketURL? {
    guard let name = settings.capturedURL, let value = runner.keptCaptures[name] else { return nil }
    let reason: String
    do throws(WebSocketURLError) {
      let url = try WebSocketURL(String(decoding: value.content, as: UTF8.self)).withoutCredentials
        .withQuery(of: configured).withSecretPath
      guard let refusal = settings.refusal(ofCapturedURL: url) else {
        // A server gets the credentials that are configured for it.
        return url.with(credentials: settings.urls.first { $0.hasSameOrigin(as: url) }?.credentials)
      }
      reason = refusal
    } catch {
      reason = error.description
    }
    dropCapturedURL(name, value, because: reason, configured)
    return nil
  }

  /// An attempt with a captured URL has failed, or its connection has ended. A server that accepts each connection and
  /// ends it at once would keep the session from the configured URL, so a connection counts as failed until it has
  /// brought a push.
  func noteCapturedURLFailed(_ connection: UpstreamConnection) {
    guard connection.hasCapturedURL, !machine.isShuttingDown, connection.settings.isSameClient(as: settings)
    else { return }
    capturedURLFailures += 1
    guard capturedURLFailures >= Self.capturedURLLimit else { return }
    dropCapturedURL(because: "\(capturedURLFailures) attempts have failed or brought no push")
  }

  /// Returns the failure for the machine. If the server at a captured URL has refused, the URL is dropped at once, and
  /// neither the server nor the session pauses: the next attempt leads to the configured URL.
  func failure(_ report: AttemptReport, of connection: UpstreamConnection) -> AttemptFailure {
    guard connection.hasCapturedURL, connection.settings.isSameClient(as: settings) else { return report.failure }
    switch report.failure.reason {
    case .status, .denied, .wrongVersion:
      dropCapturedURL(because: report.detail)
      return AttemptFailure(phase: report.failure.phase, reason: .network)
    default: return report.failure
    }
  }

  /// Returns whether a redirection is followed. If a captured URL redirects to a URL that could not be captured itself,
  /// the captured URL is dropped, and the next attempt leads to the configured URL.
  func permitsRedirection(of connection: UpstreamConnection, to url: WebSocketURL) -> Bool {
    guard connection.hasCapturedURL, let refusal = settings.refusal(ofCapturedURL: url) else { return true }
    dropCapturedURL(because: "it redirects to \(url.redacted): \(refusal)")
    connection.hasCapturedURL = false
    return false
  }

  private func dropCapturedURL(because reason: String) {
    guard let name = settings.capturedURL, let value = runner.keptCaptures[name] else { return }
    dropCapturedURL(name, value, because: reason, settings.urls.first)
  }

  private func dropCapturedURL(
    _ name: String, _ value: CapturedValue, because reason: String, _ configured: WebSocketURL?
  ) {
    capturedURLFailures = 0
    runner.forgetCapture(name)
    // A text that is not a URL may be any secret.
    let url = try? WebSocketURL(String(decoding: value.content, as: UTF8.self)).withSecretPath
    let shown = url?.redacted ?? "not a URL"
    logger.warning(
      "a URL of the upstream is not used; the next attempt goes to the configured URL",
      [
        .text("capture", name), .text("captured", PrintableText.escaped(shown)),
        .text("url", configured?.redacted ?? ""),
        .text("reason", reason),
      ])
  }

  /// Shows the values of the sending connection. If there is none, shows the values of the newest attempt, or the kept
  /// values.
  func showCaptures() {
    let rules = settings.conventions.captures.filter(\.isShown)
    let own = (sending ?? connections.last)?.conversation?.state.captures ?? [:]
    let kept = runner.keptCaptures
    handle.show(rules.map { ShownCapture(name: $0.name, value: own[$0.name] ?? ($0.isKept ? kept[$0.name] : nil)) })
  }
}

/// A captured value that clients may see.
package struct ShownCapture: Sendable {
  package let name: String
  /// nil if no message has had a value.
  package let value: CapturedValue?
}

extension CapturedValue {
  /// The value as clients may see it. A URL has no credentials and no query, since these may be secret.
  package var shown: CapturedValue {
    let text = String(decoding: content, as: UTF8.self)
    guard isText, text.contains("://") else { return self }
    return CapturedValue(Array(MaskedURL.text(text).utf8), isText: true)
  }
}

extension SessionHandle {
  /// The captured values that clients may see; nil if no such value is configured.
  package var shownCaptures: [ShownCapture]? { guarded.withLock { $0.captures } }

  static func shownCaptures(_ conventions: UpstreamConventions) -> [ShownCapture]? {
    let shown = conventions.captures.filter(\.isShown).map { ShownCapture(name: $0.name, value: nil) }
    return shown.isEmpty ? nil : shown
  }

  func show(_ captures: [ShownCapture]) {
    guarded.withLock { $0.captures = captures.isEmpty ? nil : captures }
  }
}
