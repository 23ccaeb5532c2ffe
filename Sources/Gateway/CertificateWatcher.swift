import ByteStreams
import HTTPServer
import Host
import Logging
import Metrics
import Reactor
import TLSEngine
import Threading

/// Replaces the TLS context of the HTTPS listeners when the certificate's files have changed, and when the keys of
/// session tickets have reached `ticketKeyLifetime`. Logs a warning if the certificate expires soon. Runs on its own
/// thread, since reading files may block.
final class CertificateWatcher: Sendable {
  /// Time between two checks of the files.
  private static let interval = TimeSpan.seconds(5)
  /// How long the keys of session tickets are used. RFC 9325 §4.6 requires their rotation.
  private static let ticketKeyLifetime = TimeSpan.hours(12)
  private static let warningTime: Int64 = 7 * 86_400
  private static let warningInterval = TimeSpan.hours(24)

  private let certificate: CurrentCertificate
  private let settings: TLSServerSettings
  private let logger: Logger

  /// The thread's state between two checks.
  private struct State {
    var built = ProcessInformation.monotonicTime()
    var nextWarning = MonotonicTime.zero
    /// The error of the last check, and whether it has been logged.
    var error: TLSSettingsError?
    var isLogged = false
  }

  private let state = Locked(State())

  init(_ certificate: CurrentCertificate, logger: Logger, metrics: MetricsRegistry) {
    self.certificate = certificate
    settings = certificate.current.settings
    self.logger = logger
    metrics.gauge(
      "drawbridge_http_certificate_expiry_timestamp_seconds",
      "When the certificate of the HTTPS listeners expires, in seconds since 1970."
    ) { Double(certificate.current.expiry) }
  }

  func start() {
    let isStarted = DetachedThread.start(named: "certificates") { [self] in
      let pause = CountingSemaphore()
      while true {
        warnOfExpiry()
        _ = pause.wait(atMost: Self.interval)
        check(isRequested: false)
      }
    }
    if !isStarted { logger.warning("changed certificates are not detected: the system cannot start a thread") }
  }

  /// Reads the files, and uses them if they have changed.
  ///
  /// - Parameter isRequested: whether an operator has requested the check. If not, an error is logged only if the next
  ///   check finds it again. A certificate and its key are usually replaced one after the other, and do not match in
  ///   between.
  func check(isRequested: Bool) {
    let now = ProcessInformation.monotonicTime()
    do throws(TLSSettingsError) {
      let contents = try ListenerCertificate.contents(of: settings)
      let isChanged = try certificate.current.differs(from: contents)
      let isOld = state.withLock { now - $0.built >= Self.ticketKeyLifetime }
      guard isChanged || isOld else {
        state.withLock { $0.error = nil }
        return
      }
      let new = try TLSServerContext(settings, contents: contents)
      certificate.replace(with: new)
      state.withLock {
        $0.built = now
        $0.error = nil
        if isChanged { $0.nextWarning = .zero }
      }
      guard isChanged else { return }
      logger.info(
        "certificate replaced", [.text("file", settings.certificateFile), .number("expires", Int(new.expiry))])
      warnOfExpiry()
    } catch {
      let isReported = state.withLock { state in
        let isRepeated = state.error == error
        if !isRepeated { (state.error, state.isLogged) = (error, false) }
        guard isRequested || isRepeated, !state.isLogged else { return false }
        state.isLogged = true
        return true
      }
      if isReported {
        logger.error(
          "the new certificate cannot be used; the old one remains in use", [.text("reason", error.description)])
      }
    }
  }

  private func warnOfExpiry() {
    let now = ProcessInformation.monotonicTime()
    let left = certificate.current.expiry - Int64(ProcessInformation.wallClockSeconds())
    guard left < Self.warningTime else { return }
    let isDue = state.withLock { state in
      guard now >= state.nextWarning else { return false }
      state.nextWarning = now + Self.warningInterval
      return true
    }
    guard isDue else { return }
    logger.warning(
      left > 0
        ? "the certificate of the HTTPS listeners expires soon" : "the certificate of the HTTPS listeners has expired",
      [.text("file", settings.certificateFile), .number("seconds_left", Int(left))])
  }
}
