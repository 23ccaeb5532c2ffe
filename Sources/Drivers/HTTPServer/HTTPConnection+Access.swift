import ByteStreams
import HTTPCodec
import Host
import Metrics
import Reactor

/// The access log of a connection. All of this is skipped while `access` is nil.
extension HTTPConnection {
  /// Called before input is passed to the parser, if the access log is on or was on.
  @inline(never)
  func recordInput() {
    // A request is recorded from its first byte or not at all.
    guard http.isIdle else { return }
    guard worker.accessLog.isOn else {
      access = nil
      return
    }
    let access = access ?? makeAccessRecord()
    self.access = access
    access.beginInput(at: worker.loop.now)
  }

  private func makeAccessRecord() -> AccessRecord {
    AccessRecord(client: connectionAddress?.description ?? "-")
  }

  /// Records the request whose head has been read.
  func recordRequest(in access: AccessRecord) {
    // Requests of probes and for metrics are not recorded, since they would be most of the log.
    guard worker.application.isClientRequest(http.request, on: listener) else { return }
    access.begin(at: worker.loop.now)
    access.describe(http.request, route: worker.application.route(of: http.request))
    if isBehindProxy { access.setClient(clientText) }
  }

  /// Records the response that is about to be written from `worker.response`.
  func recordResponse(in access: AccessRecord) {
    if !access.isOpen {
      guard listener.role == .client else { return }
      // The server refuses a request whose head is incomplete or malformed.
      access.begin(at: worker.loop.now)
      if http.hasRequest { access.describe(http.request, route: worker.application.route(of: http.request)) }
    }
    let status = worker.response.prepared?.status ?? worker.response.status
    access.respond(with: status, id: worker.response.requestID)
  }

  /// Reports that the kernel has accepted all output.
  @inline(never)
  func reportSent() { access?.reportSent(to: worker.accessLog, at: ProcessInformation.monotonicTime()) }

  /// Reports that the connection has ended.
  func reportAborted() {
    guard let access else { return }
    let doing: AccessLine.Abort =
      switch waiting {
      case .none: .receiving
      case .request, .body: .held
      case .stream: .sending
      }
    if !access.isOpen, !http.hasRequest, http.isReceivingRequest, listener.role == .client {
      access.begin(at: worker.loop.now)
    }
    access.reportAborted(
      doing, unsentBytes: hasUnsent ? pending.count + (layers?.pendingBytes ?? 0) : nil, to: worker.accessLog,
      at: ProcessInformation.monotonicTime())
  }

  /// Passes the client's own id of the request to the application, for a problem document.
  func noteRequestID() {
    guard http.hasRequest, http.request.fields.contains(.xRequestID) else { return }
    RequestID.copy(from: http.request, to: &worker.response.requestID)
  }
}
